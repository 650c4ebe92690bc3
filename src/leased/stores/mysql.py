"""The store in MySQL or MariaDB: rows in two tables, short statements on any connection, nothing kept in sessions."""

from __future__ import annotations

from leased.clocks import now
from leased.stores._drivers import driver
from leased.stores._loops import running_loop
from leased.stores._mysql_bells import Bells
from leased.stores._mysql_link import open_link
from leased.stores._mysql_place import Place, place
from leased.stores._mysql_session import Link, MysqlSession, saying
from leased.stores._mysql_standing import at_once, identity, is_alone, read_clock, read_settings, refuse_read_only
from leased.stores._mysql_standing import standing as weighed
from leased.stores._mysql_statements import Statements
from leased.stores._pool import Pool, pool_size
from leased.stores._sql_memory import Memory
from leased.stores._sql_store import SqlStore
from leased.stores._standing import ServerClock, Standing
from leased.targets import Face, Options

TABLE = "leased"
"""What the names of both tables begin with."""


def open(url: str, *, face: Face, options: Options) -> SqlStore[MysqlSession]:  # noqa: A001 - as every store module
    """The store for `mysql://user:password@host:3306/database`, or `mariadb:`. Nothing is opened yet."""
    where = place(url)
    driver("pymysql" if face == "blocking" else "asyncmy", extra="mysql")
    table = options.own.get("table", TABLE)
    statements = Statements(table, namespace=options.namespace)
    bells = Bells(f"{where.address}/{table}/{options.namespace}")
    standing = Standing(options, shown=where.shown)
    clock = ServerClock(options.clock, options, shown=where.shown)
    memory = Memory()
    server: tuple[str, ...] = ()

    async def connect(seconds: float) -> MysqlSession:
        nonlocal server
        until = now() + seconds
        link = await _linked(where, face=face, seconds=seconds)
        try:
            ask = saying(link, place=where.shown, until=until)
            settings = await read_settings(ask)
            found = weighed(settings, verified=where.tls.verify if where.tls else None)
            standing.read(found, followed=not is_alone(settings))
            refuse_read_only(settings, place=where.shown)
            if server != identity(settings):  # another server has another clock
                server = identity(settings)
                clock.forget()
            asked_at = options.clock.now()
            clock.read(await read_clock(ask, place=where.shown), asked_at=asked_at)
        except BaseException:
            link.close()
            raise
        return MysqlSession(
            link,
            statements,
            place=where.shown,
            clock=clock,
            time=options.clock.now,
            memory=memory,
            ring=bells.ring,
            at_once=at_once(settings),
        )

    pool = Pool(connect, clock=options.clock, most=pool_size(options), loop=running_loop if face == "async" else None)
    return SqlStore(pool, mode=face, clock=options.clock, standing=standing, push=bells)


def place_of(url: str) -> str:
    """The database that a URL means, however it is spelled."""
    return place(url).address


def schema(url: str, *, options: Options) -> str:
    """The statements that make the tables, for the client program of the server."""
    place(url)
    table = options.own.get("table", TABLE)
    return "".join(f"{statement};\n" for statement in Statements(table, namespace="").create())


async def _linked(where: Place, *, face: Face, seconds: float) -> Link:
    if face == "blocking":
        return await open_link(where, seconds=seconds)
    from leased.stores._mysql_async import open_async_link

    return await open_async_link(where, seconds=seconds)
