"""The store in PostgreSQL: rows and short statements on any connection, by the server's clock. No session matters."""

from __future__ import annotations

import math
import os
import random
from typing import Any

from leased.checks import shown
from leased.clocks import now
from leased.errors import InvalidRequest
from leased.stores import _postgres_schema
from leased.stores._drivers import driver
from leased.stores._loops import running_loop
from leased.stores._pool import Pool, pool_size
from leased.stores._postgres_assurance import read_server
from leased.stores._postgres_push import PostgresPush
from leased.stores._postgres_session import PostgresSession, Tables
from leased.stores._postgres_waiting import BlockingWaiting, LoopWaiting, Waiting
from leased.stores._postgres_wire import Address, connect
from leased.stores._sql_memory import Memory
from leased.stores._sql_store import SqlStore
from leased.stores._standing import ServerClock, Standing
from leased.targets import Face, Options, hide_secrets

_OURS = {"application_name": "leased", "client_encoding": "UTF8"}


def open(url: str, *, face: Face, options: Options) -> SqlStore[PostgresSession]:  # noqa: A001 - as every store module
    """The store for `postgresql://user@host:port/database?…`, with libpq's parameters. Nothing is opened yet."""
    name = hide_secrets(url)
    address = _address(url)
    tables = Tables(options.own.get("table", _postgres_schema.DEFAULT_NAME), namespace=options.namespace)
    standing = Standing(options, shown=name)
    push = PostgresPush(address, name=name, clock=options.clock, channel=tables.channel)
    clock = ServerClock(options.clock, options, shown=name)
    memory = Memory()
    waiting: Waiting = BlockingWaiting() if face == "blocking" else LoopWaiting()

    async def session(seconds: float) -> PostgresSession:
        until = now() + seconds
        wire = await connect(address, waiting, name=name, seconds=seconds)
        try:
            found, followed = await read_server(wire, until, clock_margin=options.clock_margin)
            standing.read(found, followed=followed)
            push.possible = wire.prepares
            opened = PostgresSession(wire, tables, name=name, clock=clock, memory=memory)
            await opened.begin(until)
        except BaseException:
            wire.close()
            raise
        return opened

    loop = running_loop if face == "async" else None
    pool = Pool(session, clock=options.clock, most=pool_size(options), loop=loop)
    return SqlStore(pool, mode=face, clock=options.clock, standing=standing, push=push)


def place_of(url: str) -> str:
    """The server and database that a URL means, however it is spelled and whoever uses them."""
    given = _read(url)
    host = given.get("service") or given.get("host") or given.get("hostaddr") or "localhost"
    return f"{str(host).lower()}:{given.get('port', 5432)}/{given.get('dbname', given.get('user', ''))}"


def schema(url: str, options: Options) -> str:
    """The statements that make the tables of this store, for who may not let it make them."""
    _address(url)
    return _postgres_schema.ddl(options.own.get("table", _postgres_schema.DEFAULT_NAME))


def _address(url: str) -> Address:
    """The URL as libpq takes it, for each of its hosts, with what every connection of ours needs."""
    given = _read(url)
    ours = {name: value for name, value in _OURS.items() if name not in given or name == "client_encoding"}
    places = [
        {name: part for name, part in zip(("host", "hostaddr", "port"), parts, strict=True) if part is not None}
        for parts in zip(*_parts(url, given), strict=True)
    ]
    if given.get("load_balance_hosts") == "random":
        random.shuffle(places)
    told = driver("psycopg.conninfo", extra="postgres").make_conninfo
    patience = float(given.get("connect_timeout") or 0)
    return Address(tuple(told(url, **ours, **place) for place in places), patience if patience > 0 else math.inf)


def _parts(url: str, given: dict[str, Any]) -> list[list[str | None]]:
    """Host, address and port of each host; an empty one stands for libpq's default, one port for all."""
    lists: list[list[str | None]] = []
    for name in ("host", "hostaddr", "port"):
        said = given.get(name)
        if said is None and "service" not in given:
            said = os.environ.get(f"PG{name.upper()}")
        lists.append([None] if said is None else [*str(said).split(",")])
    most = max(len(parts) for parts in lists)
    host, address, port = (parts * most if parts == [None] else parts for parts in lists)
    lists = [host, address, port * most if len(port) == 1 else port]
    if any(len(parts) != most for parts in lists):
        raise InvalidRequest(f"{hide_secrets(url)!r} has not as many ports as hosts", hint="or one port for all")
    return lists


def _read(url: str) -> dict[str, Any]:
    """What the URL says, by libpq's names; or `InvalidRequest`, without libpq's words if they may hold a password."""
    said = ""
    try:
        given: dict[str, Any] = driver("psycopg.conninfo", extra="postgres").conninfo_to_dict(url)
    except driver("psycopg", extra="postgres").Error as error:
        if "@" not in url and "password" not in url.lower():
            said = f": {shown(' '.join(str(error).split()))}"
    else:
        if not _misread(url, given):
            return given
    raise InvalidRequest(
        f"{hide_secrets(url)!r} is not a URL that PostgreSQL's library takes{said}",
        hint="such as postgresql://user:password@host:5432/database?sslmode=require; in a user or password '%' is"
        " written %25, '@' %40, '/' %2F and ':' %3A",
    )


def _misread(url: str, given: dict[str, Any]) -> bool:
    """Whether libpq takes a part of a password for a port or database: it would stand in the next error."""
    path = url.partition("?")[0].partition("//")[2].partition("/")[2]
    return "@" in path or any(part and not part.isdecimal() for part in str(given.get("port", "")).split(","))
