"""Finds the node of a Redis Cluster that has a lock, and follows when it moves. It knows no operation."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from leased.errors import StoreNotUsable, StoreUnavailable
from leased.store import again
from leased.stores._drivers import driver
from leased.stores._redis_failures import code_of, refused, senseless
from leased.stores._redis_link import Link, Linking, nothing
from leased.stores._redis_scripts import Command
from leased.stores._redis_url import Address, Node
from leased.stores._redis_wire import ServerError, packed
from leased.stores._senseless import SENSELESS

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
        self._silent: set[Node] = set()
        self._known = False
        self._closed = False

    async def run(
        self, commands: Sequence[Command], *, seconds: float, check: Callable[[], None] = nothing
    ) -> list[Any]:
        """See `Links`. A command that was sent to the wrong node has not run there, and is sent to the right one."""
        give_up_at = self._clock.now() + seconds
        await self._look(give_up_at)
        answers: list[Any] = [self._nobody() for _ in commands]
        owners = [self._owners.of(self._key_slot(command.name)) for command in commands]
        left = {place: (owner, False) for place, owner in enumerate(owners) if owner is not None}
        nodes: dict[int, Node] = {}
        self._known = self._known and None not in owners
        for _ in range(_MOVES):
            nodes.update((place, node) for place, (node, _) in left.items())
            for place, answer in await self._round(commands, left, give_up_at=give_up_at, check=check):
                answers[place] = answer
            left = await self._follow(commands, {place: (answers[place], *left[place]) for place in left}, give_up_at)
            if not left or self._clock.now() >= give_up_at:
                break
        return [
            refused(answer, nodes[place]) if isinstance(answer, ServerError) else answer
            for place, answer in enumerate(answers)
        ]

    async def one(
        self, command: Command, *, asked_at: float, seconds: float, check: Callable[[], None] = nothing
    ) -> Any:
        """See `Links`."""
        (answer,) = await self.run([command], seconds=seconds, check=check)
        if isinstance(answer, StoreUnavailable):
            raise answer
        return answer

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

    async def _round(
        self,
        commands: Sequence[Command],
        targets: Mapping[int, tuple[Node, bool]],
        *,
        give_up_at: float,
        check: Callable[[], None],
    ) -> list[tuple[int, Any]]:
        """Ask each node what is for it. Those that were silent come last, and each leaves time for the others."""
        groups: dict[tuple[Node, bool], list[int]] = {}
        for place, target in targets.items():
            groups.setdefault(target, []).append(place)
        answers: list[tuple[int, Any]] = []
        for asked, target in enumerate(sorted(groups, key=lambda target: target[0] in self._silent)):
            share = max(give_up_at - self._clock.now(), 0.0) / (len(groups) - asked)
            members = [commands[place] for place in groups[target]]
            answers += zip(groups[target], await self._ask(target, members, seconds=share, check=check), strict=True)
        return answers

    async def _ask(
        self, target: tuple[Node, bool], commands: Sequence[Command], *, seconds: float, check: Callable[[], None]
    ) -> list[Any]:
        """The answers of one node. Where it gives less than grants need, all others are carried out there."""
        node, asking = target
        give_up_at = self._clock.now() + seconds
        try:
            answers = await self._link(node).answers(commands, seconds=seconds, check=check, asking=asking)
        except StoreNotUsable as error:
            others = [command for command in commands if not command.grants]
            if check is nothing or not others:
                return [again(error) for _ in commands]
            left = max(give_up_at - self._clock.now(), 0.0)
            found = iter(await self._ask(target, others, seconds=left, check=nothing))
            return [again(error) if command.grants else next(found) for command in commands]
        except StoreUnavailable as error:
            answers = [again(error) for _ in commands]
        self._heard(node, answers)
        return answers

    def _heard(self, node: Node, answers: Sequence[Any]) -> None:
        """Remember who was silent when asked last."""
        if all(isinstance(answer, StoreUnavailable) for answer in answers):
            self._silent.add(node)
        else:
            self._silent.discard(node)

    async def _follow(
        self, commands: Sequence[Command], asked: Mapping[int, tuple[Any, Node, bool]], give_up_at: float
    ) -> dict[int, tuple[Node, bool]]:
        """Which commands did not run where they were sent, and where to send them now."""
        targets: dict[int, tuple[Node, bool]] = {}
        looked = False
        for place, (answer, node, asking) in asked.items():
            code = code_of(answer) if isinstance(answer, ServerError) else ""
            if code in ("MOVED", "ASK"):
                try:
                    slot, target = _target(answer.text, node)
                except ValueError:  # it names no node: it is told as it is
                    continue
                if code == "MOVED":
                    self._owners.moved[slot] = target
                targets[place] = (target, code == "ASK")
            elif code == "TRYAGAIN":  # some names of the lock are here and some have moved: that is over soon
                targets[place] = (node, asking)
            elif isinstance(answer, StoreUnavailable) and answer.applied is False and answer.retryable:
                if not looked:
                    looked = True
                    await self._look_again(give_up_at)
                owner = self._owners.of(self._key_slot(commands[place].name))
                if owner not in (None, node):
                    targets[place] = (owner, False)
        if any(
            isinstance(asked[place][0], ServerError) and target == asked[place][1:] for place, target in targets.items()
        ):
            await self._clock.sleep(min(_NAP, max(give_up_at - self._clock.now(), 0.0)))
        return targets

    async def _look(self, give_up_at: float) -> None:
        """Ask which node has which slots, unless that is known."""
        self.check_open()
        if self._known:
            return
        problems: list[str] = []
        hint: str | None = None
        unusable: StoreNotUsable | None = None
        nodes = sorted(dict.fromkeys([*self._owners.nodes, *self._address.nodes]), key=self._silent.__contains__)
        for asked, node in enumerate(nodes):
            now = self._clock.now()
            share = (give_up_at - now) / (len(nodes) - asked + 1)  # one that hangs leaves time for others, and the call
            try:
                (answer,) = await self._link(node).send(_SLOTS, count=1, give_up_at=now + share)
            except StoreUnavailable as error:
                answer = error
                unusable = error if isinstance(error, StoreNotUsable) else unusable
            self._heard(node, [answer])
            if isinstance(answer, ServerError):
                raise _no_cluster(answer, node)
            if isinstance(answer, StoreUnavailable):
                problems.append(answer.message)
                hint = answer.hint or hint
                continue
            try:
                self._owners = _Owners(
                    (int(first), int(last), Node(place[0].decode() if place[0] else node.host, int(place[1])))
                    for first, last, place, *_ in answer
                )
            except SENSELESS:
                problems.append(senseless(node).message)
                continue
            self._known = True
            self._linking.on_nodes(self._owners.nodes)
            return
        if unusable is not None:
            raise unusable
        raise StoreUnavailable(f"no node of the cluster answered: {'; '.join(problems)}", applied=False, hint=hint)

    async def _look_again(self, give_up_at: float) -> None:
        """Find out who has what now, after one was away, as far as that can be found out."""
        self._known = False
        with contextlib.suppress(StoreUnavailable):
            await self._look(give_up_at)

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
