"""The store of Redis and Valkey: each operation is one script on the server, and the server's clock decides."""

from __future__ import annotations

import builtins
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from leased.errors import LeasedError, StoreNotUsable, StoreUnavailable
from leased.model import (
    Assurance,
    Claim,
    Contended,
    Held,
    Lost,
    Operation,
    Released,
    Status,
    exclusivity_rank,
)
from leased.store import Bell, Outcome, again
from leased.stores._pool import pool_size
from leased.stores._push import listener
from leased.stores._redis_cluster import Cluster
from leased.stores._redis_commands import Commands
from leased.stores._redis_failures import refused, senseless
from leased.stores._redis_feed import connect_feed
from leased.stores._redis_link import Link, Linking, Links, nothing
from leased.stores._redis_names import Names
from leased.stores._redis_scripts import SECOND, Command, time_of
from leased.stores._redis_standing import Facts, read_assurance
from leased.stores._redis_url import Address, Node, place_of, read_address
from leased.stores._redis_wire import ServerError, packed
from leased.stores._senseless import SENSELESS
from leased.stores._standing import ServerClock, Standing

if TYPE_CHECKING:
    from leased.targets import Face, Options

__all__ = ["RedisStore", "open", "place_of"]

_MOST_REPLICAS = 100
_SCAN = 1000
_STATUSES = 200
_COMPARE_EVERY = 0.1
_log = logging.getLogger("leased")


class RedisStore:
    """Keeps locks on a Redis or Valkey server, of version 6.2 or later; see `leased.store` for what it promises.

    `offset` seconds are added to the server's time, always 0 except in tests. A record is kept for a day after its key
    opened, for the fencing token; after that the server removes it by itself.
    """

    def __init__(self, address: Address, *, face: Face, options: Options) -> None:
        self._mode: Literal["blocking", "async"] = face
        self._clock = options.clock
        self._names = Names(options.namespace)
        self._confirmations = options.own_number("wait", least=0, most=_MOST_REPLICAS, default=0)
        self._commands = Commands(self._names, undoable=self._confirmations > 0)
        most = pool_size(options)
        self._address = address
        self._standing = Standing(options, shown=address.shown)
        self._server_clock = ServerClock(options.clock, options, shown=address.shown)
        self._met: dict[Node, Assurance] = {}
        self._warned = False
        self._followed = False  # replicas were met
        self._requires = options.require is not None
        self._compare_at = 0.0
        linking = Linking(
            face=face,
            clock=options.clock,
            most=most,
            confirmations=self._confirmations,
            on_connect=self._meet,
            on_nodes=self._forget_others,
        )
        self._links: Links = Cluster(address, linking) if address.kind == "cluster" else Link(address, linking)
        self._listener = listener(
            address.listening,
            lambda: connect_feed(address),
            name=address.shown,
        )
        self._watches: set[Callable[[], None]] = set()

    @property
    def mode(self) -> Literal["blocking", "async", "any"]:
        """See `leased.store`."""
        return self._mode

    @property
    def offset(self) -> float:
        """Seconds added to the server's time."""
        return self._commands.offset / SECOND

    @offset.setter
    def offset(self, seconds: float) -> None:
        self._commands.move(round(seconds * SECOND))

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        """See `leased.store`."""
        granted: Held | Contended = await self._ask(self._commands.acquire(claim), timeout=timeout)
        return granted

    async def renew(self, key: str, token: str, *, ttl: float, number: int, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        command = self._commands.renew(key, token, ttl=ttl, number=number)
        renewed: Held | Lost = await self._ask(command, timeout=timeout)
        return renewed

    async def release(self, key: str, token: str, *, late: bool = False, timeout: float) -> Released:
        """See `leased.store`."""
        released: Released = await self._ask(self._commands.release(key, token, late=late), timeout=timeout)
        return released

    async def abandon(self, key: str, token: str, *, heard: int | None = None, timeout: float) -> None:
        """See `leased.store`."""
        await self._ask(self._commands.abandon(key, token, heard=heard), timeout=timeout)

    async def look(self, key: str, token: str, *, timeout: float) -> Held | Lost:
        """See `leased.store`."""
        found: Held | Lost = await self._ask(self._commands.look(key, token), timeout=timeout)
        return found

    async def status(self, key: str, *, timeout: float) -> Status:
        """See `leased.store`."""
        status: Status = await self._ask(self._commands.status(key), timeout=timeout)
        return status

    async def force_release(self, key: str, *, fencing_token: int | None = None, timeout: float) -> bool:
        """See `leased.store`."""
        ended: bool = await self._ask(self._commands.force_release(key, fencing_token), timeout=timeout)
        return ended

    async def many(self, operations: Sequence[Operation], *, timeout: float) -> Sequence[Outcome]:
        """See `leased.store`: all are sent in one go, but what names one key again goes in the next, for a server that
        lacks a script answers so and is asked again later."""
        asked = [self._commands.of(operation) for operation in operations]
        give_up_at = self._clock.now() + timeout
        answers: list[Any] = [None] * len(asked)
        for number, places in enumerate(_rounds(asked)):
            commands = [asked[place] for place in places]
            try:
                found = await self._answers(commands, give_up_at)
            except StoreUnavailable as error:
                if not number:
                    raise
                found = [again(error) for _ in commands]
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer
        return [self._outcome(command, answer) for command, answer in zip(asked, answers, strict=True)]

    async def _answers(self, commands: Sequence[Command], give_up_at: float) -> Sequence[Any]:
        try:
            return await self._run(commands, timeout=max(give_up_at - self._clock.now(), 0.0))
        except StoreNotUsable as error:
            if not self._requires:
                raise
            return await self._without_grants(commands, error, give_up_at)

    async def list(self, prefix: str, *, after: str, limit: int, timeout: float) -> list[Status]:
        """See `leased.store`. It goes through all names in the database: a page costs what all of them cost."""
        give_up_at = self._clock.now() + timeout
        keys = await self._keys(prefix, after=after, give_up_at=give_up_at)
        page: list[Status] = []
        while keys and len(page) < limit:
            asked = [self._commands.status(key) for key in keys[:_STATUSES]]
            keys = keys[_STATUSES:]
            answers = await self._run(asked, timeout=max(give_up_at - self._clock.now(), 0.0))
            for command, answer in zip(asked, answers, strict=True):
                status = self._outcome(command, answer)
                if isinstance(status, LeasedError):
                    raise status
                page += [status] if status.held else []
        return page[:limit]

    async def watch(self, key: str, bell: Bell) -> Callable[[], None]:
        """See `leased.store`."""
        self._links.check_open()
        unwatch = await self._listener.watch(self._names.record(key).decode(), bell, clock=self._clock)
        self._watches.add(unwatch)

        def end() -> None:
            self._watches.discard(unwatch)
            unwatch()

        return end

    def assurance(self) -> Assurance:
        """See `leased.store`."""
        return self._standing.assurance

    async def close(self) -> None:
        """See `leased.store`."""
        self._links.close()
        while self._watches:
            self._watches.pop()()

    def _meet(self, node: Node, facts: Facts) -> None:
        """A new connection leads to this server: what the weakest of all servers gives is what the store gives."""
        if self._address.kind != "cluster":
            self._met.clear()
            self._server_clock.forget()
        found = read_assurance(facts, kind=self._address.kind, confirmations=self._confirmations)
        self._met[node] = found
        self._followed = self._followed or bool(facts.replicas)
        if found.exclusive == "volatile" and not self._warned:
            self._warned = True
            _log.warning("%s: %s", self._address.shown, found.notes[0])
        self._tell_weakest()

    def _forget_others(self, nodes: Sequence[Node]) -> None:
        """What nodes gave that have left the cluster counts no more."""
        left = [node for node in list(self._met) if node not in nodes]
        for node in left:
            self._met.pop(node, None)
        if left:
            self._tell_weakest()

    def _tell_weakest(self) -> None:
        met = list(self._met.values())  # a copy: others may add to it
        if met:
            weakest = min(met, key=lambda assurance: exclusivity_rank(assurance.exclusive))
            self._standing.read(weakest, followed=self._followed)

    async def _ask(self, command: Command, *, timeout: float) -> Any:
        asked_at = self._clock.now()
        check = self._standing.check if self._requires and command.grants else nothing
        answer = await self._links.one(command, asked_at=asked_at, seconds=timeout, check=check)
        if asked_at >= self._compare_at:
            self._compare(answer, asked_at)
        try:
            return command.script.reading(command.asked, answer)
        except SENSELESS as error:
            raise senseless(self._address.shown) from error

    def _outcome(self, command: Command, answer: Any) -> Any:
        """As `_ask`, for one answer of many: what would be raised is returned."""
        if isinstance(answer, StoreUnavailable):
            return answer
        try:
            return command.script.reading(command.asked, answer)
        except LeasedError as error:
            return error
        except SENSELESS:
            return senseless(self._address.shown)

    async def _run(self, commands: Sequence[Command], *, timeout: float) -> Sequence[Any]:
        asked_at = self._clock.now()
        answers = await self._links.run(commands, seconds=timeout, check=self._check_of(commands))
        if asked_at >= self._compare_at:
            self._compare(answers[-1], asked_at)
        return answers

    async def _without_grants(
        self, commands: Sequence[Command], error: StoreNotUsable, give_up_at: float
    ) -> Sequence[Any]:
        """What is left of a batch where the store gives less than grants need: what was held must still end."""
        others = [command for command in commands if not command.grants]
        if not others:
            raise error
        found = iter(await self._run(others, timeout=max(give_up_at - self._clock.now(), 0.0)))
        return [error if command.grants else next(found) for command in commands]

    def _check_of(self, commands: Sequence[Command]) -> Callable[[], None]:
        """What is checked before anything is sent: grants need what `require` asks for."""
        if self._requires and any(command.grants for command in commands):
            return self._standing.check
        return nothing

    def _compare(self, answer: Any, asked_at: float) -> None:
        """Compare the server's clock with the local one; in a cluster each node has another."""
        self._compare_at = asked_at + _COMPARE_EVERY
        if type(answer) is bytes and self._address.kind != "cluster":
            try:
                server = (time_of(answer) - self._commands.offset) / SECOND
            except SENSELESS:
                return
            self._server_clock.read(server, asked_at=asked_at)

    async def _keys(self, prefix: str, *, after: str, give_up_at: float) -> builtins.list[str]:
        """All keys that begin so and come after another, in the order of their bytes, open ones among them."""
        found: set[str] = set()
        pattern = self._names.pattern(prefix)
        for link in await self._links.primaries(seconds=max(give_up_at - self._clock.now(), 0.0)):
            cursor = None
            while cursor != b"0":
                scan = packed(b"SCAN", cursor or b"0", b"MATCH", pattern, b"COUNT", b"%d" % _SCAN)
                (answer,) = await link.send(scan, count=1, give_up_at=give_up_at)
                if isinstance(answer, ServerError):
                    raise refused(answer, self._address.shown)
                if isinstance(answer, StoreUnavailable):
                    raise answer
                try:
                    cursor, names = answer
                    found.update(key for name in names if (key := self._names.key(name)) is not None)
                except SENSELESS as error:
                    raise senseless(self._address.shown) from error
        last = after.encode()
        return sorted(
            (key for key in found if key.startswith(prefix) and key.encode() > last), key=lambda key: key.encode()
        )


def open(url: str, *, face: Face, options: Options) -> RedisStore:  # noqa: A001 (as every store module)
    """The store on the server that the URL names; nothing is opened yet. Raises `InvalidRequest` for a wrong URL."""
    return RedisStore(read_address(url), face=face, options=options)


def _rounds(commands: Sequence[Command]) -> builtins.list[builtins.list[int]]:
    """The places of commands, so that each round names a key once and every key is asked for in order."""
    if len({command.name for command in commands}) == len(commands):
        return [builtins.list(range(len(commands)))] if commands else []
    rounds: builtins.list[builtins.list[int]] = []
    seen: dict[bytes, int] = {}
    for place, command in enumerate(commands):
        number = seen[command.name] = seen.get(command.name, -1) + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(place)
    return rounds
