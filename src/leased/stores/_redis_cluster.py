"""Finds the node of a Redis Cluster that has a lock, and follows when it moves. It knows no operation."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from leased.errors import StoreNotUsable, StoreUnavailable
from leased.stores._drivers import driver
from leased.stores._redis_failures import code_of, refused
from leased.stores._redis_link import Link, Linking, nothing
from leased.stores._redis_scripts import Command
from leased.stores._redis_url import Address, Node
from leased.stores._redis_wire import ServerError, packed

_NAP = 0.02
_SLOTS = packed(b"CLUSTER", b"SLOTS")
_MOVES = 8
"""How often one command may be sent elsewhere: a slot that moves on is rare, two nodes that name each other a fault."""


class Cluster:
    """The links of one store to the nodes of a cluster. See `Links`."""

    def __init__(self, address: Address, linking: Linking) -> None:
        self._address = address
        self._linking = linking
        self._clock = linking.clock
        self._key_slot: Callable[[bytes], int] = driver("redis.crc", extra="redis").key_slot
        self._links: dict[Node, Link] = {}
        self._owners = _Owners()
        self._known = False
        self._closed = False

    async def run(
        self, commands: Sequence[Command], *, seconds: float, check: Callable[[], None] = nothing
    ) -> list[Any]:
        """See `Links`. A command that was sent to the wrong node has not run there, and is sent to the right one."""
        give_up_at = self._clock.now() + seconds
        await self._look(give_up_at)
        answers: list[Any] = [self._nobody()] * len(commands)
        owners = [self._owners.of(self._key_slot(command.name)) for command in commands]
        left = {place: (owner, False) for place, owner in enumerate(owners) if owner is not None}
        self._known = self._known and None not in owners
        for _ in range(_MOVES):
            groups: dict[tuple[Node, bool], list[int]] = {}
            for place, target in left.items():
                groups.setdefault(target, []).append(place)
            for target, places in groups.items():
                asked = [commands[place] for place in places]
                found = await self._ask(target, asked, give_up_at=give_up_at, check=check)
                for place, answer in zip(places, found, strict=True):
                    answers[place] = answer
            left = await self._follow(commands, {place: (answers[place], *left[place]) for place in left}, give_up_at)
            if not left or self._clock.now() >= give_up_at:
                break
        return [
            refused(answer, self._address.shown) if isinstance(answer, ServerError) else answer for answer in answers
        ]

    async def primaries(self, *, seconds: float) -> Sequence[Link]:
        """See `Links`."""
        await self._look(self._clock.now() + seconds)
        return [self._link(node) for node in self._owners.nodes]

    def check_open(self) -> None:
        """See `Links`."""
        if self._closed:
            raise StoreNotUsable("this store was closed", hint="connect again")

    def close(self) -> None:
        """See `Links`."""
        self._closed = True
        for link in self._links.values():
            link.close()

    async def _ask(
        self, target: tuple[Node, bool], commands: Sequence[Command], *, give_up_at: float, check: Callable[[], None]
    ) -> list[Any]:
        node, asking = target
        left = max(give_up_at - self._clock.now(), 0.0)
        try:
            return await self._link(node).answers(commands, seconds=left, check=check, asking=asking)
        except StoreUnavailable as error:
            return [error] * len(commands)

    async def _follow(
        self, commands: Sequence[Command], asked: Mapping[int, tuple[Any, Node, bool]], give_up_at: float
    ) -> dict[int, tuple[Node, bool]]:
        """Which commands did not run where they were sent, and where to send them now."""
        again: dict[int, tuple[Node, bool]] = {}
        for place, (answer, node, asking) in asked.items():
            code = code_of(answer) if isinstance(answer, ServerError) else ""
            if code in ("MOVED", "ASK"):
                slot, target = _target(answer.text, node)
                if code == "MOVED":
                    self._owners.moved[slot] = target
                again[place] = (target, code == "ASK")
            elif code == "TRYAGAIN":  # some names of the lock are here and some have moved: that is over soon
                again[place] = (node, asking)
            elif isinstance(answer, StoreUnavailable) and answer.applied is False and answer.retryable:
                owner = await self._look_again(commands[place].name, give_up_at)
                if owner not in (None, node):
                    again[place] = (owner, False)
        if any(
            isinstance(asked[place][0], ServerError) and target == asked[place][1:] for place, target in again.items()
        ):
            await self._clock.sleep(min(_NAP, max(give_up_at - self._clock.now(), 0.0)))
        return again

    async def _look(self, give_up_at: float) -> None:
        """Ask which node has which slots, unless that is known."""
        self.check_open()
        if self._known:
            return
        problem = StoreUnavailable(f"{self._address.shown}: no node answered", applied=False)
        for node in dict.fromkeys([*self._owners.nodes, *self._address.nodes]):
            try:
                (answer,) = await self._link(node).send(_SLOTS, count=1, give_up_at=give_up_at)
            except StoreUnavailable as error:
                problem = error
                continue
            if isinstance(answer, ServerError):
                raise _no_cluster(answer, node)
            if isinstance(answer, StoreUnavailable):
                problem = answer
                continue
            self._owners = _Owners(
                (first, last, Node(place[0].decode() if place[0] else node.host, place[1]))
                for first, last, place, *_ in answer
            )
            self._known = True
            return
        raise problem

    async def _look_again(self, name: bytes, give_up_at: float) -> Node | None:
        """Who has it now, after the one that had it was away; `None` where that cannot be found out."""
        self._known = False
        with contextlib.suppress(StoreUnavailable):
            await self._look(give_up_at)
        return self._owners.of(self._key_slot(name))

    def _nobody(self) -> StoreUnavailable:
        return StoreUnavailable(f"{self._address.shown}: no node has the slot of this key now", applied=False)

    def _link(self, node: Node) -> Link:
        link = self._links.get(node)
        if link is None:
            link = Link(replace(self._address, nodes=(node,), shown=str(node)), self._linking)
            link = self._links.setdefault(node, link)
        return link


class _Owners:
    """Which node has which slots: ranges as the cluster told them, and what has moved since."""

    def __init__(self, ranges: Iterable[tuple[int, int, Node]] = ()) -> None:
        self._ranges = sorted(ranges, key=lambda found: found[0])
        self._begins = [first for first, _, _ in self._ranges]
        self.moved: dict[int, Node] = {}

    @property
    def nodes(self) -> list[Node]:
        """All of them, each once."""
        return list(dict.fromkeys([*(node for _, _, node in self._ranges), *self.moved.values()]))

    def of(self, slot: int) -> Node | None:
        """The node that has this slot; `None` where none is known to."""
        found = self.moved.get(slot)
        place = bisect_right(self._begins, slot) - 1
        if found is not None or place < 0:
            return found
        _, last, node = self._ranges[place]
        return node if slot <= last else None


def _target(text: str, node: Node) -> tuple[int, Node]:
    """Slot and node in `MOVED slot host:port` or `ASK slot host:port`; no host means the same one."""
    _, slot, place = text.split()[:3]
    host, _, port = place.rpartition(":")
    return int(slot), Node(host or node.host, int(port))


def _no_cluster(answer: ServerError, node: Node) -> StoreUnavailable:
    if "cluster support disabled" in answer.text:
        return StoreNotUsable(f"{node} is no part of a cluster", hint="write redis:// instead of redis+cluster://")
    return refused(answer, node)
