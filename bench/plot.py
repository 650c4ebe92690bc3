"""The plot of the benchmarks: how many times the floor each contender takes, and where the targets are. Plain SVG."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from bench.measure import shown

_WIDTH, _LABELS, _RIGHT, _STEP, _TOP = 1040, 300, 370, 24, 64
_SHORT = 44
_STYLE = """\
svg { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; }
.ground { fill: #ffffff; } .ink { fill: #1f2328; } .faint { fill: #59636e; } .grid { stroke: #d1d9e0; }
.ours { fill: #0550ae; } .span { stroke: #0550ae; } .peer { fill: none; stroke: #7d4e00; stroke-width: 1.6; }
.target { stroke: #b3261e; stroke-width: 2.5; } .one { stroke: #59636e; }
.title { font-weight: 600; font-size: 15px; }
@media (prefers-color-scheme: dark) {
  .ground { fill: #151b23; } .ink { fill: #f0f6fc; } .faint { fill: #9198a1; } .grid { stroke: #3d444d; }
  .ours { fill: #79c0ff; } .span { stroke: #79c0ff; } .peer { stroke: #e3b341; } .target { stroke: #ff7b72; }
  .one { stroke: #9198a1; }
}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of the plot: ratios of leased from its best to its worst way, of peers by name, and the target."""

    name: str
    ours: tuple[float, ...]
    peers: tuple[tuple[str, float], ...] = ()
    target: float | None = None
    note: str = ""


def plot(record: Mapping[str, Any]) -> str:
    """The picture for a record of results."""
    floors, others = list(floor_bars(record)), list(target_bars(record))
    below = _TOP + _STEP * len(floors) + 24
    height = below + _TOP + _STEP * len(others) + 16
    drawn = [
        *_panel("Times the floor (1 is the same work with nothing around it; less is faster)", floors, top=0),
        *_panel("Other targets: how many times what is allowed (left of 1 is met)", others, top=below),
    ]
    words = "How many times the floor leased and its peers take, row by row, with the targets; the tables say the same."
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">\n'
        f"<title>{words}</title>\n<style>\n{_STYLE}</style>\n"
        f'<rect class="ground" width="{_WIDTH}" height="{height}" rx="8"/>\n' + "\n".join(drawn) + "\n</svg>\n"
    )


def floor_bars(record: Mapping[str, Any]) -> Iterator[Bar]:
    """A line for each table that has a floor."""
    for row, kept in record.items():
        for table in kept["tables"]:
            lines = table["lines"]
            ours = tuple(one["to_floor"] for one in lines if one["role"] == "leased" and one["to_floor"])
            if not ours:
                continue
            peers = tuple((one["name"], one["to_floor"]) for one in lines if one["role"] == "peer" and one["to_floor"])
            name = _cut(f"{row}: {_short(table['title'])}")
            yield Bar(name, tuple(sorted(ours)), peers, target_of(kept, table["title"]))


def target_bars(record: Mapping[str, Any]) -> Iterator[Bar]:
    """A line for each other target that is a number."""
    for row, kept in record.items():
        for verdict in kept["verdicts"]:
            found = re.match(r"(?:(.*?):? )?([≤≥]) ([\d.,]+)", verdict["target"])
            measured = re.match(r"[\d.,]+", verdict["measured"])
            if found is None or measured is None or "the floor" in verdict["target"]:
                continue
            limit, value = (float(text.rstrip(".,").replace(",", "")) for text in (found[3], measured[0]))
            if value > 0 and limit > 0:
                ratio = value / limit if found[2] == "≤" else limit / value
                name = _cut(f"{row}: {_short(found[1] or verdict['target'])}")
                yield Bar(
                    name, (ratio,), (), 1.0, f"{verdict['measured']}; target {verdict['target'][found.start(2) :]}"
                )


def target_of(kept: Mapping[str, Any], title: str) -> float | None:
    """How many times the floor the contenders of a table may take: by the target that names it, or that names none."""
    words = set(re.findall(r"[a-z_]+", title.lower()))
    for verdict in kept["verdicts"]:
        found = re.match(r"(?:(.*): )?([≤≥]) ([\d.]+)x the floor", verdict["target"])
        if found is None or (found[1] is not None and not set(re.findall(r"[a-z_]+", found[1].lower())) <= words):
            continue
        return float(found[3]) if found[2] == "≤" else 1 / float(found[3])
    return None


def _panel(title: str, bars: list[Bar], *, top: int) -> Iterator[str]:
    ratios = [one for bar in bars for one in (*bar.ours, *(ratio for _, ratio in bar.peers), bar.target or 1.0)]
    low, high = math.floor(math.log10(min(ratios))), math.ceil(math.log10(max(ratios)))

    def at(ratio: float) -> float:
        share = (math.log10(ratio) - low) / max(high - low, 1)
        return round(_LABELS + share * (_WIDTH - _LABELS - _RIGHT), 1)

    bottom = top + _TOP + _STEP * len(bars)
    yield f'<text class="ink title" x="16" y="{top + 26}">{escape(title)}</text>'
    yield from _legend(top + 26, peers=any(bar.peers for bar in bars))
    for power in range(low, high + 1):
        x = at(10.0**power)
        yield f'<line class="{"one" if power == 0 else "grid"}" x1="{x}" x2="{x}" y1="{top + 50}" y2="{bottom}"/>'
        yield f'<text class="faint" x="{x}" y="{top + 46}" text-anchor="middle">{10.0**power:g}</text>'
    for number, bar in enumerate(bars):
        yield from _drawn(bar, at, y=top + _TOP + _STEP * number + 8)


def _drawn(bar: Bar, at: Any, *, y: int) -> Iterator[str]:
    yield f'<text class="ink" x="{_LABELS - 10}" y="{y + 4}" text-anchor="end">{escape(bar.name)}</text>'
    if bar.target is not None and not bar.note:
        yield f'<line class="target" x1="{at(bar.target)}" x2="{at(bar.target)}" y1="{y - 9}" y2="{y + 9}"/>'
    for _, ratio in bar.peers:
        yield f'<circle class="peer" cx="{at(ratio)}" cy="{y}" r="4.5"/>'
    yield f'<line class="span" x1="{at(bar.ours[0])}" x2="{at(bar.ours[-1])}" y1="{y}" y2="{y}" stroke-width="2"/>'
    for ratio in bar.ours:
        yield f'<circle class="ours" cx="{at(ratio)}" cy="{y}" r="4.5"/>'
    told = bar.note or "; ".join([shown(bar.ours[0]), *(f"{name} {shown(ratio)}" for name, ratio in bar.peers)])
    yield f'<text class="faint" x="{_WIDTH - _RIGHT + 12}" y="{y + 4}">{escape(_cut(told, 55))}</text>'


def _legend(y: int, *, peers: bool) -> Iterator[str]:
    x = _WIDTH - _RIGHT + 12
    yield f'<circle class="ours" cx="{x + 5}" cy="{y - 4}" r="4.5"/>'
    yield f'<text class="ink" x="{x + 15}" y="{y}">leased</text>'
    if peers:
        yield f'<circle class="peer" cx="{x + 80}" cy="{y - 4}" r="4.5"/>'
        yield f'<text class="ink" x="{x + 90}" y="{y}">peers</text>'
        yield f'<line class="target" x1="{x + 150}" x2="{x + 150}" y1="{y - 12}" y2="{y + 4}"/>'
        yield f'<text class="ink" x="{x + 158}" y="{y}">target</text>'


def _short(title: str) -> str:
    """The title without versions and figures."""
    title = re.sub(r"Journal mode |, SQLite [\d.]+ \(\w+\)|`|; leased .*", "", title)
    return title.replace("synchronous_commit = off", "no wait for disk")


def _cut(text: str, most: int = _SHORT) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
