"""What is said first on a connection to a Redis server: who we are, and which database is meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leased.stores._redis_failures import code_of, refused
from leased.stores._redis_url import Address, Login, Node
from leased.stores._redis_wire import ServerError, packed


def greeting(address: Address, login: Login, *, database: bool = True) -> list[bytes]:
    """The commands to send; a sentinel has no databases."""
    commands = [packed(b"CLIENT", b"SETNAME", address.name.encode())]
    if login.password is not None:
        user = [] if login.username is None else [login.username.encode()]
        commands.insert(0, packed(b"AUTH", *user, login.password.encode()))
    if address.database and database:
        commands.append(packed(b"SELECT", b"%d" % address.database))
    return commands


def check_greeting(answers: Sequence[Any], node: Node) -> None:
    """Raise what the server refused; a name that it does not take is none of that."""
    for answer in answers:
        if isinstance(answer, ServerError) and code_of(answer) != "NOPERM" and "SETNAME" not in answer.text:
            raise refused(answer, node)
