"""Sends commands to the server that has the locks and brings their answers; it knows scripts by name, no operations.

What is known of the outcome of each command is kept apart: an answer, a refusal, or nobody knows.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from leased.errors import StoreUnavailable
from leased.store import Clock, again
from leased.stores._loops import loop_finder
from leased.stores._pool import Pool
from leased.stores._redis_connection import Connection, Cut, connect_blocking, connect_in_loop
from leased.stores._redis_failures import code_of, cut_off, refused, senseless
from leased.stores._redis_greeting import check_greeting, greeting
from leased.stores._redis_scripts import Command, Script, letter_of
from leased.stores._redis_sentinel import find_primary
from leased.stores._redis_standing import QUESTIONS, Facts, read_facts
from leased.stores._redis_url import Address, Node
from leased.stores._redis_wire import ServerError, packed
from leased.stores._senseless import SENSELESS
from leased.targets import Face

_TRIES = 3
_SHARE_OF_WAIT = 0.6
"""Of the time left, what replicas may take; the rest is for taking back what they did not confirm."""
_CONFIRMED = (b"g", b"r", b"h")
"""The letters of answers to commands on which somebody counts."""
_MAY_WANT_TLS = "if that port speaks TLS, write rediss:// (valkeys://)"
_ASKING = packed(b"ASKING")


def nothing() -> None:
    """What to check where nothing has to be."""


@dataclass(frozen=True, slots=True)
class Linking:
    """How a store is linked: from which face, with how many connections and confirmations.

    `on_connect` is told of the facts of the server behind each new connection, `on_nodes` which nodes a cluster has.
    """

    face: Face
    clock: Clock
    most: int
    confirmations: int
    on_connect: Callable[[Node, Facts], None]
    on_nodes: Callable[[Sequence[Node]], None]


class Links(Protocol):
    """One server or many: who has what is found out behind this."""

    async def run(
        self, commands: Sequence[Command], *, seconds: float, check: Callable[[], None] = nothing
    ) -> list[Any]:
        """An answer for each command, or the `StoreUnavailable` it ended in; raises that if none could be sent.

        `check` is called once a server is there, before anything is sent to it.
        """
        ...

    async def one(
        self, command: Command, *, asked_at: float, seconds: float, check: Callable[[], None] = nothing
    ) -> Any:
        """As `run`, for one command, with the time counted from `asked_at`, which is now. A failure is raised."""
        ...

    async def primaries(self, *, seconds: float) -> Sequence[Link]:
        """Links to all servers that together have all locks."""
        ...

    def check_open(self) -> None:
        """Raise `StoreNotUsable` once closed."""
        ...

    def close(self) -> None:
        """Close what is idle, and what is in use once it is given back."""
        ...


class Link:
    """The connections of one store to one server, or to the one that the sentinels say is the primary."""

    def __init__(self, address: Address, linking: Linking) -> None:
        self._address = address
        self._clock = linking.clock
        self._on_connect = linking.on_connect
        self._confirmations = linking.confirmations
        self._open = connect_blocking if linking.face == "blocking" else connect_in_loop
        loop = loop_finder() if linking.face == "async" else None
        self._pool: Pool[Connection] = Pool(self._connect, clock=linking.clock, most=linking.most, loop=loop)
        self._connections: weakref.WeakValueDictionary[int, Connection] = weakref.WeakValueDictionary()

    async def run(
        self, commands: Sequence[Command], *, seconds: float, check: Callable[[], None] = nothing
    ) -> list[Any]:
        """See `Links`."""
        return self._told(await self.answers(commands, seconds=seconds, check=check))

    async def one(
        self, command: Command, *, asked_at: float, seconds: float, check: Callable[[], None] = nothing
    ) -> Any:
        """See `Links`. This is what nearly every call is: each step counts."""
        connection = None if self._confirmations or check is not nothing else self._pool.idle()
        if connection is None:
            answers = await self.answers([command], seconds=seconds, check=check)
        else:
            try:
                answers = await connection.exchange(command.data, count=1, seconds=seconds)
            except Cut as cut:
                self._pool.drop(connection)
                if cut.sent:
                    raise cut_off(cut, self._address.shown) from cut
                answers = await self.answers([command], seconds=asked_at + seconds - self._clock.now())
            except BaseException:
                self._pool.drop(connection)
                raise
            else:
                if type(answers[0]) is bytes:
                    self._pool.give(connection)
                    return answers[0]
                self._give_back(connection, answers)
                answers = await self._teach(answers, [command], give_up_at=asked_at + seconds)
        (answer,) = self._told(answers)
        if isinstance(answer, StoreUnavailable):
            raise answer
        return answer

    async def primaries(self, *, seconds: float) -> Sequence[Link]:
        """See `Links`."""
        return [self]

    async def answers(
        self,
        commands: Sequence[Command],
        *,
        seconds: float,
        check: Callable[[], None] = nothing,
        asking: bool = False,
    ) -> list[Any]:
        """As `run`, with refusals as the server worded them. `asking`: the keys are about to move to this server."""
        give_up_at = self._clock.now() + seconds
        data = [command.data for command in commands]
        answers = await self._ask(data, commands, give_up_at=give_up_at, check=check, asking=asking)
        return await self._teach(answers, commands, give_up_at=give_up_at, asking=asking)

    async def _teach(
        self,
        answers: list[Any],
        commands: Sequence[Command],
        *,
        give_up_at: float,
        asking: bool = False,
    ) -> list[Any]:
        """The answers, once those who met a server without their script have sent it along."""
        unknown = _refused_as("NOSCRIPT", answers)
        if not unknown:
            return answers
        asked = [commands[place] for place in unknown]
        taught: set[Script] = set()
        data = []
        for command in asked:  # the text once: those after it find the script by its hash
            data.append(command.data if command.script in taught else command.by_text)
            taught.add(command.script)
        try:
            found = await self._ask(data, asked, give_up_at=give_up_at, check=nothing, asking=asking)
        except StoreUnavailable as error:
            found = [again(error) for _ in unknown]
        for place, answer in zip(unknown, found, strict=True):
            answers[place] = answer
        return answers

    async def send(
        self, data: bytes, *, count: int, give_up_at: float, check: Callable[[], None] = nothing
    ) -> list[Any]:
        """The answers to what is sent in one go, refusals and failures in their places."""
        tries_left = _TRIES
        while True:
            connection = await self._pool.take(max(give_up_at - self._clock.now(), 0.0))
            if check is not nothing:
                try:
                    check()
                except BaseException:  # nothing was sent
                    self._pool.give(connection)
                    raise
            try:
                left = give_up_at - self._clock.now()
                if left <= 0:
                    raise Cut("the time was over before it was sent", sent=False, answers=[])
                answers = await connection.exchange(data, count=count, seconds=left)
            except Cut as cut:
                self._pool.drop(connection)
                tries_left -= 1
                if not cut.sent and tries_left:
                    continue
                failure = cut_off(cut, self._address.shown)
                if not cut.sent:
                    raise failure from cut
                lost = count - len(cut.answers)
                return [*cut.answers, *(cut_off(cut, self._address.shown) for _ in range(lost))]
            except BaseException:
                self._pool.drop(connection)
                raise
            self._give_back(connection, answers)
            return answers

    def _give_back(self, connection: Connection, answers: Sequence[Any]) -> None:
        """Back to the pool, unless the server is no primary any more: then nothing that leads to it is used again."""
        if not _refused_as("READONLY", answers):
            self._pool.give(connection)
            return
        self._pool.drop(connection)
        for reference in self._connections.valuerefs():  # a copy, made in one step: others may add some
            if (other := reference()) is not None:
                other.stale = True

    def _told(self, answers: list[Any]) -> list[Any]:
        if ServerError not in map(type, answers):
            return answers
        return [
            refused(answer, self._address.shown) if isinstance(answer, ServerError) else answer for answer in answers
        ]

    def check_open(self) -> None:
        """See `Links`."""
        self._pool.check_open()

    def close(self) -> None:
        """See `Links`."""
        self._pool.close()

    async def _ask(
        self,
        data: Sequence[bytes],
        commands: Sequence[Command],
        *,
        give_up_at: float,
        check: Callable[[], None],
        asking: bool,
    ) -> list[Any]:
        """Send commands as they are packed, and wait for the replicas behind what has to be confirmed."""
        each = 2 if asking else 1
        count = len(commands) * each
        if asking:
            data = [_ASKING + command for command in data]
        if not self._confirmations or not any(command.lasts for command in commands):
            answers = await self.send(b"".join(data), count=count, give_up_at=give_up_at, check=check)
            return answers[each - 1 :: each]
        patience = max(1, int((give_up_at - self._clock.now()) * 1000.0 * _SHARE_OF_WAIT))
        wait = packed(b"WAIT", b"%d" % self._confirmations, b"%d" % patience)
        *answers, confirmed = await self.send(
            b"".join([*data, wait]), count=count + 1, give_up_at=give_up_at, check=check
        )
        answers = answers[each - 1 :: each]
        if type(confirmed) is int and confirmed >= self._confirmations:
            return answers
        return await self._take_back(commands, answers, give_up_at=give_up_at, confirmed=confirmed)

    async def _take_back(
        self, commands: Sequence[Command], answers: Sequence[Any], *, give_up_at: float, confirmed: Any
    ) -> list[Any]:
        """Too few replicas have what was written: abandon what was granted, and say so of each that counts on them."""
        came = confirmed if type(confirmed) is int else 0
        why = f"{self._address.shown}: {came} of {self._confirmations} replicas confirmed it in time"
        outcomes = list(answers)
        undo: dict[int, bytes] = {}
        for place, (command, answer) in enumerate(zip(commands, answers, strict=True)):
            if command.lasts and type(answer) is bytes and letter_of(answer) in _CONFIRMED:
                outcomes[place] = StoreUnavailable(why, hint="leased_wait asks for that many replicas")
                if command.undo is not None:
                    undo[place] = command.undo.by_text
        if not undo:
            return outcomes
        try:
            undone = await self.send(b"".join(undo.values()), count=len(undo), give_up_at=give_up_at)
        except StoreUnavailable:  # then nobody knows; what the others were answered stands
            return outcomes
        for place, answer in zip(undo, undone, strict=True):
            if type(answer) is bytes and letter_of(answer) == b"a" and letter_of(answers[place]) == b"g":
                outcomes[place].applied = False  # others ended the lease of somebody, or may have, when they were new
        return outcomes

    async def _connect(self, seconds: float) -> Connection:
        give_up_at = self._clock.now() + seconds
        if self._address.kind == "sentinel":
            node = await find_primary(self._address, self._open, seconds=seconds)
        else:
            node = self._address.nodes[0]
        connection = await self._open(self._address, node, seconds=max(give_up_at - self._clock.now(), 0.0))
        hello = greeting(self._address, self._address.login)
        try:
            data = b"".join([*hello, *QUESTIONS])
            left = max(give_up_at - self._clock.now(), 0.0)
            answers = await connection.exchange(data, count=len(hello) + len(QUESTIONS), seconds=left)
            check_greeting(hello, answers, node=node)
            self._meet(node, read_facts(answers[len(hello) :]))
        except SENSELESS as error:
            connection.close()
            raise senseless(node, applied=False) from error
        except Cut as cut:
            connection.close()
            check_greeting(hello, cut.answers, node=node)  # a server may say why, and close
            failure = cut_off(cut, node, hint=None if cut.answers or self._address.tls else _MAY_WANT_TLS)
            failure.applied = False
            raise failure from cut
        except BaseException:
            connection.close()
            raise
        self._connections[id(connection)] = connection
        return connection

    def _meet(self, node: Node, facts: Facts) -> None:
        if facts.replica and self._address.kind == "cluster":
            return  # it can be asked where the slots are; for a lock it names the node that has it
        if facts.replica:
            raise StoreUnavailable(
                f"{node} is a replica, which takes no writes",
                applied=False,
                hint="name the primary, or let redis+sentinel:// find it",
            )
        self._on_connect(node, facts)


def _refused_as(code: str, answers: Sequence[Any]) -> list[int]:
    """The places of those that the server refused for this reason; nearly always it refused nothing."""
    if ServerError not in map(type, answers):
        return []
    return [place for place, answer in enumerate(answers) if type(answer) is ServerError and code_of(answer) == code]
