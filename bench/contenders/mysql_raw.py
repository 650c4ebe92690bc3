"""MySQL driven raw: one statement to take a key and one to free it, as the drivers send text."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncmy
import pymysql

from bench.worker import Run

_CREATE = """
CREATE TABLE IF NOT EXISTS bench (
    `key` varbinary(255) PRIMARY KEY, token varbinary(32) NOT NULL, owner varbinary(255), fencing_token bigint NOT NULL,
    expires_at datetime(6) NOT NULL
) ENGINE = InnoDB
"""
_ACQUIRE = """
INSERT INTO bench VALUES
    ('%s', '%s', 'bench', CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED), SYSDATE(6) + INTERVAL 30 SECOND)
ON DUPLICATE KEY UPDATE
    token = IF(expires_at <= SYSDATE(6), VALUES(token), token),
    fencing_token = IF(token = VALUES(token), GREATEST(fencing_token + 1, VALUES(fencing_token)), fencing_token),
    expires_at = IF(token = VALUES(token), VALUES(expires_at), expires_at)
"""
_RELEASE = "DELETE FROM bench WHERE `key` = '%s' AND token = '%s'"


def account(url: str) -> dict[str, Any]:
    """What both drivers take to connect."""
    parts = urlsplit(url)
    return {
        "host": parts.hostname,
        "port": parts.port,
        "user": parts.username,
        "password": parts.password,
        "database": parts.path.removeprefix("/"),
        "autocommit": True,
    }


@contextmanager
def pair(directory: Path, *, url: str) -> Iterator[Run]:
    """The floor of blocking callers."""
    connection = pymysql.connect(**account(url))
    query: Any = connection.query
    query(_CREATE)
    numbers = itertools.count()

    def run(count: int) -> None:
        for number in itertools.islice(numbers, count):
            values = (f"raw-{number}", os.urandom(16).hex())
            changed = query(_ACQUIRE % values) + query(_RELEASE % values)
            if changed != 2:
                raise RuntimeError(f"{changed} rows were changed, 2 wanted")

    yield run
    connection.close()


@contextmanager
def pair_async(directory: Path, *, url: str) -> Iterator[Run]:
    """The floor of tasks."""
    numbers = itertools.count()
    with asyncio.Runner() as runner:
        connection: Any = runner.run(_connected(url))

        async def pairs(count: int) -> None:
            for number in itertools.islice(numbers, count):
                values = (f"raw-async-{number}", os.urandom(16).hex())
                await connection.query(_ACQUIRE % values)
                await connection.query(_RELEASE % values)

        yield lambda count: runner.run(pairs(count))
        connection.close()


async def _connected(url: str) -> Any:
    connect: Any = asyncmy.connect
    connection = await connect(**account(url))
    await connection.query(_CREATE)
    return connection
