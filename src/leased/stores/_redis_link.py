"""Sends commands to the server that has the locks and brings their answers; it knows scripts by name, no operations.

What is known of the outcome of each command is kept apart: an answer, a refusal, or nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from leased.errors import StoreUnavailable
from leased.store import Clock
from leased.stores._pool import Pool
from leased.stores._redis_connection import Connection, Cut, connect_blocking, connect_in_loop
from leased.stores._redis_failures import code_of, cut_off, refused
from leased.stores._redis_scripts import Command
from leased.stores._redis_standing import QUESTIONS, Facts, read_facts
from leased.stores._redis_url import Address, Login, Node
from leased.stores._redis_wire import ServerError, packed
from leased.targets import Face

_TRIES = 3


class Link:
    """The connections of one store to one server. `on_connect` is told the facts of the server behind a new one."""

    def __init__(
        self, address: Address, *, face: Face, clock: Clock, most: int, on_connect: Callable[[Facts], None]
    ) -> None:
        self._address = address
        self._clock = clock
        self._on_connect = on_connect
        self._face = face
        self._pool: Pool[Connection] = Pool(self._connect, clock=clock, most=most, loop=_loop_of(face))

    async def run(self, commands: Sequence[Command], *, seconds: float, check: Callable[[], None]) -> list[Any]:
        """An answer for each command, or the `StoreUnavailable` it ended in; raises that if none could be sent.

        `check` is called once a server is there, before anything is sent to it.
        """
        give_up_at = self._clock.now() + seconds
        by_hash = [command.script.by_hash + command.rest for command in commands]
        answers = await self.send(b"".join(by_hash), count=len(commands), give_up_at=give_up_at, check=check)
        unknown = [place for place, answer in enumerate(answers) if _is_refusal(answer, "NOSCRIPT")]
        if unknown:
            texts: dict[int, bytes] = {}
            for place in unknown:  # the text once: those after it find the script by its hash
                script = commands[place].script
                texts.setdefault(id(script), script.by_text + commands[place].rest)
            again = [texts.pop(id(commands[place].script), by_hash[place]) for place in unknown]
            try:
                found = await self.send(b"".join(again), count=len(again), give_up_at=give_up_at, check=check)
            except StoreUnavailable as error:
                found = [error] * len(again)
            for place, answer in zip(unknown, found, strict=True):
                answers[place] = answer
        return [
            refused(answer, self._address.shown) if isinstance(answer, ServerError) else answer for answer in answers
        ]

    async def send(
        self, data: bytes, *, count: int, give_up_at: float, check: Callable[[], None] = lambda: None
    ) -> list[Any]:
        """The answers to what is sent in one go, refusals and failures in their places."""
        for tries_left in reversed(range(_TRIES)):
            left = give_up_at - self._clock.now()
            connection = await self._pool.take(max(left, 0.0))
            kept = False
            try:
                check()
                left = give_up_at - self._clock.now()
                answers = await connection.exchange(data, count=count, seconds=left)
                kept = not any(_is_refusal(answer, "READONLY") for answer in answers)
            except Cut as cut:
                if not cut.sent and tries_left:
                    continue
                failure = cut_off(cut, self._address.shown)
                if not cut.sent:
                    raise failure from cut
                return [*cut.answers, *[failure] * (count - len(cut.answers))]
            finally:
                (self._pool.give if kept else self._pool.drop)(connection)
            return answers
        raise AssertionError("unreachable")

    def check_open(self) -> None:
        """Raise `StoreNotUsable` once closed."""
        self._pool.check_open()

    def close(self) -> None:
        """Close what is idle, and what is in use once it is given back."""
        self._pool.close()

    async def _connect(self, seconds: float) -> Connection:
        give_up_at = self._clock.now() + seconds
        node = self._address.nodes[0]
        connection = await self._open(node, seconds=seconds)
        try:
            hello = greeting(self._address, self._address.login)
            data = b"".join([*hello, *QUESTIONS])
            left = max(give_up_at - self._clock.now(), 0.0)
            answers = await connection.exchange(data, count=len(hello) + len(QUESTIONS), seconds=left)
            check_greeting(answers[: len(hello)], node)
            self._welcome(read_facts(answers[len(hello) :]), node)
        except Cut as cut:
            connection.close()
            failure = cut_off(cut, node)
            failure.applied = False
            raise failure from cut
        except BaseException:
            connection.close()
            raise
        return connection

    async def _open(self, node: Node, *, seconds: float) -> Connection:
        if self._face == "blocking":
            return await connect_blocking(self._address, node, seconds=seconds)
        return await connect_in_loop(self._address, node, seconds=seconds)

    def _welcome(self, facts: Facts, node: Node) -> None:
        self._on_connect(facts)
        if facts.replica:
            raise StoreUnavailable(
                f"{node} is a replica, which takes no writes",
                applied=False,
                hint="name the primary, or let redis+sentinel:// find it",
            )


def greeting(address: Address, login: Login) -> list[bytes]:
    """What is sent first: who we are, and which database."""
    commands = [packed(b"CLIENT", b"SETNAME", address.name.encode())]
    if login.password is not None:
        user = [] if login.username is None else [login.username.encode()]
        commands.insert(0, packed(b"AUTH", *user, login.password.encode()))
    if address.database:
        commands.append(packed(b"SELECT", b"%d" % address.database))
    return commands


def check_greeting(answers: Sequence[Any], node: Node) -> None:
    """Raise what a server refused; a name it does not want is none of that."""
    for answer in answers:
        if isinstance(answer, ServerError) and not (
            code_of(answer) == "NOPERM" or "SETNAME" in answer.text or "unknown" in answer.text
        ):
            raise refused(answer, node)


def _is_refusal(answer: Any, code: str) -> bool:
    return isinstance(answer, ServerError) and answer.text.startswith(code)


def _loop_of(face: Face) -> Callable[[], Any] | None:
    if face == "blocking":
        return None
    import asyncio

    return asyncio.get_running_loop
