"""What is said first on a connection to a Redis server: who we are, and which database is meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leased.stores._redis_failures import code_of, refused, senseless
from leased.stores._redis_url import Address, Login, Node
from leased.stores._redis_wire import ServerError, bulk, packed

_NAMES = bulk(b"SETNAME")


def greeting(address: Address, login: Login, *, database: bool = True) -> list[bytes]:
    """The commands to send; a sentinel has no databases."""
    commands = [packed(b"CLIENT", b"SETNAME", address.name.encode())]
    if login.password is not None:
        user = [] if login.username is None else [login.username.encode()]
        commands.insert(0, packed(b"AUTH", *user, login.password.encode()))
    if address.database and database:
        commands.append(packed(b"SELECT", b"%d" % address.database))
    return commands


def check_greeting(hello: Sequence[bytes], answers: Sequence[Any], *, node: Node) -> None:
    """Raise what the server refused of a greeting, as far as it answered; only a name may be refused.

    Without its `SELECT` a connection would be in another database, and two would hold what only one may.
    """
    for command, answer in zip(hello, answers, strict=False):
        if answer == b"OK" or (_NAMES in command and isinstance(answer, ServerError) and _is_about_names(answer)):
            continue
        raise refused(answer, node) if isinstance(answer, ServerError) else senseless(node, applied=False)


def _is_about_names(answer: ServerError) -> bool:
    """Whether it refuses the name, and nothing that a server says to whatever comes first: that it is full."""
    return code_of(answer) == "NOPERM" or "SETNAME" in answer.text
