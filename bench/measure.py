"""Asking contenders in turn, and the numbers that come of it: medians, spans, ratios. It knows no row and no store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from random import Random
from statistics import median
from typing import Any, Literal, Protocol, TypeAlias

Role: TypeAlias = Literal["leased", "floor", "peer"]
MICRO, MILLI = 1e6, 1e3


@dataclass(frozen=True, slots=True)
class Block:
    """One block of one contender: seconds by the clock, seconds of CPU of its process, and what it told of itself."""

    wall: float
    cpu: float
    told: Any = None


class Contender(Protocol):
    """Something that does a block of work when asked."""

    @property
    def name(self) -> str:
        """What the table calls it."""
        ...

    @property
    def role(self) -> Role:
        """Whether it is ours, the floor, or a peer."""
        ...

    @property
    def ask(self) -> Callable[..., Block]:
        """Does a block of work when it is called with what the kind of contender takes."""
        ...


@dataclass(frozen=True, slots=True)
class Series:
    """What one contender showed, block by block: `values` in the unit of its table, `cpu` in µs per operation."""

    name: str
    role: Role
    values: Sequence[float]
    cpu: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """One contender in a table. Ratios are the medians of the ratios of neighbouring blocks: drift cancels out."""

    name: str
    role: Role
    median: float
    least: float
    most: float
    cpu: float | None
    to_floor: float | None
    cpu_to_floor: float | None
    to_peers: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Table:
    """Contenders that were measured together, in one unit."""

    title: str
    unit: str
    lines: Sequence[Line]

    def line(self, name: str) -> Line:
        """The line of this contender."""
        return next(line for line in self.lines if line.name == name)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target and what was measured."""

    target: str
    measured: str
    met: bool


@dataclass(frozen=True, slots=True)
class Result:
    """All that one row showed. `how` says what was done, with all that a reader needs to judge it."""

    row: str
    how: str
    tables: Sequence[Table]
    verdicts: Sequence[Verdict]


def interleave(
    contenders: Sequence[tuple[Contender, Mapping[str, Any]]], *, rounds: int, chance: Random
) -> dict[str, list[Block]]:
    """Ask every contender for one block a round, in an order that chance makes anew each time. One round before the
    first is thrown away: there, files are made and caches filled."""
    blocks: dict[str, list[Block]] = {contender.name: [] for contender, _ in contenders}
    for number in range(-1, rounds):
        for contender, request in chance.sample(contenders, len(contenders)):
            block = contender.ask(**request)
            if number >= 0:
                blocks[contender.name].append(block)
    return blocks


def fitting(contender: Contender, *, seconds: float, at_least: int = 4) -> int:
    """How many operations of this contender make a block of about so many seconds: disks differ, and drift."""
    contender.ask(count=at_least)
    block = contender.ask(count=at_least)
    return max(at_least, round(seconds / block.wall * at_least))


def per_operation(
    contenders: Sequence[tuple[Contender, Mapping[str, Any]]], *, rounds: int, chance: Random, unit: float = MICRO
) -> list[Series]:
    """Measure blocks of `count` operations; the time of one of them, on the clock and on the CPU."""
    blocks = interleave(contenders, rounds=rounds, chance=chance)
    return [
        Series(
            contender.name,
            contender.role,
            [block.wall / request["count"] * unit for block in blocks[contender.name]],
            [block.cpu / request["count"] * MICRO for block in blocks[contender.name]],
        )
        for contender, request in contenders
    ]


def tabulate(title: str, unit: str, series: Sequence[Series]) -> Table:
    """The table of these series. The first floor is the one that the others are compared with."""
    floor = next((one for one in series if one.role == "floor"), None)
    peers = [one for one in series if one.role == "peer"]
    return Table(title, unit, [_line(one, None if one is floor else floor, peers) for one in series])


def _line(one: Series, floor: Series | None, peers: Sequence[Series]) -> Line:
    return Line(
        name=one.name,
        role=one.role,
        median=median(one.values),
        least=min(one.values),
        most=max(one.values),
        cpu=median(one.cpu) if one.cpu else None,
        to_floor=_ratio(one.values, floor.values) if floor else None,
        cpu_to_floor=_ratio(one.cpu, floor.cpu) if floor and one.cpu and floor.cpu else None,
        to_peers={
            peer.name: _ratio(one.values, peer.values) for peer in peers if one.role == "leased" and all(peer.values)
        },
    )


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    if len(ours) != len(theirs):
        return median(ours) / median(theirs)
    return median(mine / other for mine, other in zip(ours, theirs, strict=True))


def at_most(target: str, value: float, limit: float, *, unit: str = "") -> Verdict:
    """Whether a value that has to be small is small enough."""
    return Verdict(target, f"{shown(value)}{unit}", value <= limit)


def at_least(target: str, value: float, limit: float, *, unit: str = "") -> Verdict:
    """Whether a value that has to be great is great enough."""
    return Verdict(target, f"{shown(value)}{unit}", value >= limit)


def near_floor(name: str, line: Line, most: float, *, because: str) -> Verdict:
    """Whether one takes no more than so many times what the floor takes; `because` says where that number is from."""
    return at_most(f"{name}: ≤ {shown(most)}x the floor, {because}", line.to_floor or inf, most, unit="x")


def ahead(table: Table, name: str, peer: str, *, least: float) -> list[Verdict]:
    """Whether one is so many times as fast as a peer; nothing where that peer was not measured."""
    theirs = table.line(name).to_peers.get(peer)
    target = f"{table.title.lower()}: ≥ {shown(least)}x as fast as {peer}"
    return [at_least(target, 1 / theirs, least, unit="x")] if theirs else []


def less_cpu(table: Table, name: str, peer: str, *, least: float) -> list[Verdict]:
    """Whether a peer needs so many times as much CPU; nothing where that peer was not measured."""
    ours = table.line(name)
    target = f"{table.title.lower()}: {peer} needs ≥ {shown(least)}x the CPU"
    if peer not in ours.to_peers or not ours.cpu:
        return []
    return [at_least(target, (table.line(peer).cpu or 0.0) / ours.cpu, least, unit="x")]


def shown(value: float) -> str:
    """A number with three digits that count."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
