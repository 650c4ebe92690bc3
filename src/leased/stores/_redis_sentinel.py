"""Asks sentinels which server is the primary now. It keeps nothing: each new connection asks again."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from leased.clocks import now
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.stores._redis_connection import Connection, Cut
from leased.stores._redis_failures import cut_off, refused, senseless
from leased.stores._redis_greeting import check_greeting, greeting
from leased.stores._redis_url import Address, Node
from leased.stores._redis_wire import ServerError, packed
from leased.stores._senseless import SENSELESS

Open: TypeAlias = Callable[..., Coroutine[Any, Any, Connection]]
"""Opens a connection: `(address, node, seconds=…)`."""


async def find_primary(address: Address, open_connection: Open, *, seconds: float) -> Node:
    """Where the first sentinel that knows the service says its primary is. `StoreUnavailable` if none does in time."""
    give_up_at = now() + seconds
    problems: list[str] = []
    hint: str | None = None
    for asked, sentinel in enumerate(address.nodes):
        left = give_up_at - now()
        share = left / (len(address.nodes) - asked)  # one that hangs leaves time for the others
        if left <= 0:
            break
        try:
            found = await _ask(address, sentinel, open_connection, seconds=share)
        except StoreNotUsable:
            raise
        except StoreUnavailable as error:
            problems.append(error.message)
            hint = error.hint or hint
            continue
        if found is not None:
            return found
        problems.append(f"{sentinel} knows no service {address.service!r}")
    raise StoreUnavailable(f"no sentinel named a primary: {'; '.join(problems)}", applied=False, hint=hint)


async def _ask(address: Address, sentinel: Node, open_connection: Open, *, seconds: float) -> Node | None:
    give_up_at = now() + seconds
    connection = await open_connection(address, sentinel, seconds=seconds)
    try:
        hello = greeting(address, address.sentinel_login, database=False)
        question = packed(b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", address.service.encode())
        answers = await connection.exchange(
            b"".join([*hello, question]), count=len(hello) + 1, seconds=max(give_up_at - now(), 0.0)
        )
    except Cut as cut:
        raise cut_off(cut, sentinel) from cut
    finally:
        connection.close()
    check_greeting(hello, answers, node=sentinel)
    found = answers[-1]
    if isinstance(found, ServerError):
        raise refused(found, sentinel)
    if found is None:
        return None
    try:
        host, port = found
        return Node(host.decode(), int(port))
    except SENSELESS as error:
        raise senseless(sentinel, applied=False) from error
