"""The peers on PostgreSQL and MySQL, with their settings as they are: locks of a session, without lease or fencing."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.contenders.one_side import one_side
from bench.worker import Run


def with_driver(url: str, *, face: str = "blocking") -> str:
    """The URL as SQLAlchemy takes it."""
    scheme, _, rest = url.partition("://")
    if scheme == "postgresql":
        return f"postgresql+psycopg://{rest}"
    return f"mysql+{'pymysql' if face == 'blocking' else 'asyncmy'}://{rest}"


def options(url: str) -> dict[str, float]:
    """What a lock of sqlalchemy-dlock is made with: MariaDB refuses its own way to say that a wait has no end."""
    return {} if url.startswith("postgresql:") else {"contextual_timeout": 30.0}


@contextmanager
def sqlalchemy_dlock(directory: Path, *, url: str) -> Iterator[Run]:
    """sqlalchemy-dlock, as its documentation shows it: a connection from the engine's pool for each lock."""
    from sqlalchemy import create_engine  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from sqlalchemy_dlock import create_sadlock  # type: ignore[import-not-found,import-untyped,unused-ignore]

    engine = create_engine(with_driver(url))
    numbers = itertools.count()

    def run(count: int) -> None:
        for number in itertools.islice(numbers, count):
            with engine.connect() as connection, create_sadlock(connection, f"peer-{number}", **options(url)):
                pass

    yield run
    engine.dispose()


@contextmanager
def sqlalchemy_dlock_async(directory: Path, *, url: str, clients: int = 1) -> Iterator[Run]:
    """The same by asyncio, for one task or many."""
    from sqlalchemy.ext.asyncio import create_async_engine  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from sqlalchemy_dlock import create_async_sadlock  # type: ignore[import-not-found,import-untyped,unused-ignore]

    engine = create_async_engine(with_driver(url, face="async"))
    numbers = itertools.count()

    async def client(pairs: int) -> None:
        for number in itertools.islice(numbers, pairs):
            key = f"peer-async-{number}"
            async with engine.connect() as connection, create_async_sadlock(connection, key, **options(url)):
                pass

    async def all_clients(count: int) -> None:
        if clients == 1:
            await client(count)
        else:
            await asyncio.gather(*(client(count // clients) for _ in range(clients)))

    with asyncio.Runner() as runner:
        yield lambda count: runner.run(all_clients(count))
        runner.run(engine.dispose())


@contextmanager
def django_pglock(directory: Path, *, url: str, clients: int = 1) -> Iterator[Run]:
    """django-pglock, for one thread or many, each with the connection that Django gives it."""
    pglock = configured(url)
    numbers = itertools.count()

    def run(count: int) -> None:
        for number in itertools.islice(numbers, count):
            with pglock.advisory(f"peer-{number}"):
                pass

    if clients == 1:
        yield run
        return
    with ThreadPoolExecutor(clients) as pool:

        def all_clients(count: int) -> None:
            for done in [pool.submit(run, count // clients) for _ in range(clients)]:
                done.result()

        yield all_clients


def configured(url: str) -> Any:
    """The module `pglock` in a Django that knows this database and nothing else."""
    import django  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from django.conf import settings  # type: ignore[import-not-found,import-untyped,unused-ignore]

    parts = urlsplit(url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.removeprefix("/"),
        "USER": parts.username,
        "HOST": parts.hostname,
        "PORT": parts.port,
    }
    settings.configure(DATABASES={"default": database}, INSTALLED_APPS=["pgactivity", "pglock"], USE_TZ=True)
    django.setup()
    import pglock  # type: ignore[import-not-found,import-untyped,unused-ignore]

    return pglock


@contextmanager
def hand_off_sqlalchemy_dlock(directory: Path, *, url: str) -> Iterator[Run]:
    """One side of a hand-off by sqlalchemy-dlock."""
    from sqlalchemy import create_engine  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from sqlalchemy_dlock import create_sadlock  # type: ignore[import-not-found,import-untyped,unused-ignore]

    engine = create_engine(with_driver(url))
    with engine.connect() as connection:
        yield one_side(create_sadlock(connection, "peer-hand-off"))
    engine.dispose()


@contextmanager
def hand_off_django_pglock(directory: Path, *, url: str) -> Iterator[Run]:
    """One side of a hand-off by django-pglock."""
    yield one_side(configured(url).advisory("peer-hand-off"))
