"""The audit log as the service writes it: changes at once, denials gathered by principal and second. It denies nothing.

How a line is stored is the registry's business; here is decided what becomes a line.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from leased.errors import LeasedError
from leased.server.principals import Principal
from leased.server.registry import AuditLine
from leased.wire import Body, instant

MAX_WAITING = 10_000
"""Lines of denials that wait to be written; principals beyond that are counted together."""

GATHERING = 1.0
"""Seconds: denials of one principal within that are one line."""

_MAX_TEXT = 10_000
_log = logging.getLogger("leased.server.audit")


class Sink(Protocol):
    """Where lines go."""

    async def write_audit(self, lines: Sequence[AuditLine]) -> None:
        """Append lines."""
        ...


@dataclass(slots=True)
class _Gathered:
    line: AuditLine
    until: float


class Audit:
    """Writes what happened. `wall` gives seconds since the epoch, `now` seconds on a clock that never goes back.

    `required`: whether a forced release that cannot be recorded must not happen; changes of credentials and rules never
    happen unrecorded. Denials are written within two seconds; a denial is never refused for want of a line.
    """

    def __init__(
        self, sink: Sink, *, wall: Callable[[], float], now: Callable[[], float], required: bool = True
    ) -> None:
        self._sink = sink
        self._wall = wall
        self._now = now
        self._required = required
        self._gathered: dict[tuple[str, str], _Gathered] = {}
        self._unwritten: list[AuditLine] = []
        self._writer: asyncio.Task[None] | None = None
        self._over = asyncio.Event()

    async def record(self, principal: Principal, action: str, *, target: str = "", detail: str = "") -> None:
        """Write a line now. Raises `StoreUnavailable` where that fails and a record is required."""
        try:
            await self._sink.write_audit([line_of(principal, action, at=self._wall(), target=target, detail=detail)])
        except LeasedError as error:
            if self._required:
                raise
            _log.warning("an action %s of %s is not in the audit log: %s", action, principal.name, error.message)

    def denied(self, principal: Principal, action: str, *, target: str = "", detail: str = "") -> None:
        """Note a denial: the first of its principal in this second makes the line, the others are counted in it."""
        who = (principal.project, principal.name)
        if who not in self._gathered and len(self._gathered) >= MAX_WAITING:
            who = (principal.project, "others")
        found = self._gathered.get(who)
        if found is not None and self._now() < found.until:
            found.line = replace(found.line, count=found.line.count + 1)
            return
        if found is not None:
            self._put_by(found.line)
        line = line_of(principal, f"denied {action}", at=self._wall(), target=target, detail=detail)
        line = replace(line, actor=who[1])
        self._gathered[who] = _Gathered(line, self._now() + GATHERING)
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write_later())

    async def flush(self) -> None:
        """Write all denials that were noted; those that cannot be written are told in the log and lost."""
        gathered, self._gathered = self._gathered, {}
        lines, self._unwritten = [*self._unwritten, *(one.line for one in gathered.values())], []
        await self._write(lines)

    async def close(self) -> None:
        """Write what is left."""
        self._over.set()
        if self._writer is not None:
            await self._writer
        await self.flush()

    def _put_by(self, line: AuditLine) -> None:
        if len(self._unwritten) < MAX_WAITING:
            self._unwritten.append(line)

    async def _write_later(self) -> None:
        """Write once a second as long as something is there; then end, so that an idle service does nothing."""
        while (self._gathered or self._unwritten) and not self._over.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), GATHERING)
            now = self._now()
            for who in [who for who, one in self._gathered.items() if one.until <= now]:
                self._put_by(self._gathered.pop(who).line)
            lines, self._unwritten = self._unwritten, []
            await self._write(lines)
        self._writer = None

    async def _write(self, lines: Sequence[AuditLine]) -> None:
        if not lines:
            return
        try:
            await self._sink.write_audit(lines)
        except LeasedError as error:
            count = sum(line.count for line in lines)
            _log.warning("%d denials are not in the audit log: %s", count, error.message)


def line_of(principal: Principal, action: str, *, at: float, target: str = "", detail: str = "") -> AuditLine:
    """A line about what a principal does."""
    return AuditLine(principal.project, at, principal.name, action, target[:_MAX_TEXT], detail[:_MAX_TEXT])


def escaped(text: str) -> str:
    """Text on one line, with whatever could pass for another line or steer a terminal written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode("ascii") for c in text)


def write_line(line: AuditLine) -> Body:
    """A line as JSON has it, with its text escaped."""
    return {
        "number": line.number,
        "at": instant(line.at),
        "actor": escaped(line.actor),
        "action": escaped(line.action),
        "target": escaped(line.target),
        "detail": escaped(line.detail),
        "count": line.count,
    }
