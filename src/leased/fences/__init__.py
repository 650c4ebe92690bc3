"""For the side that receives the writes: a write of a lease that is over is refused. It asks no lock and no store.

The rule, everywhere: a lower fencing token than one already seen is refused with `StaleFencingToken`, an equal one is
accepted, a missing one is an error, and the check and the write are one atomic step. Each place has its own module:

| module | what it guards |
| --- | --- |
| `leased.fences.sql` | rows with a column for the token, and a guard table for what has none, over any DB-API driver |
| `leased.fences.sqlalchemy` | the same for SQLAlchemy, blocking and asyncio |
| `leased.fences.redis` | one command to Redis or Valkey |
| `leased.fences.s3` | an object in a bucket, by conditional put |
| `leased.fences.http` | the header `Fencing-Token`: middleware for the server, and what a client sends |
"""

from leased.fences._rule import presented as presented

__all__ = ["presented"]
