"""The audit log: denials are gathered, text cannot forge lines, and what happens without a record is a setting."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leased.errors import RequestConflict, StoreUnavailable
from leased.server import audit, request_ids
from leased.server.audit import Audit, escaped, write_line
from leased.server.principals import Principal
from leased.server.registry import AuditLine
from leased.server.request_ids import RequestIds
from tests.server.access.test_limits import Watch

ADA = Principal("p", "member", "ada")
BOB = Principal("p", "member", "bob")


class Sink:
    """Keeps what is written, or fails."""

    def __init__(self) -> None:
        self.lines: list[AuditLine] = []
        self.writes = 0
        self.broken = False

    async def write_audit(self, lines: Sequence[AuditLine]) -> None:
        self.writes += 1
        if self.broken:
            raise StoreUnavailable("the disk is full", applied=False)
        self.lines += lines


def log(sink: Sink, watch: Watch, **more: Any) -> Audit:
    """An audit log over the sink."""
    return Audit(sink, wall=watch, now=watch, **more)


async def test_denials_of_one_principal_within_a_second_are_one_line() -> None:
    """A5, SEC14: the first makes the line, the others are counted; the next second has a line of its own."""
    sink, watch = Sink(), Watch()
    written = log(sink, watch)
    for number in range(100):
        written.denied(ADA, "acquire", target=f"k{number}", detail="why")
        written.denied(BOB, "renew", target="k")
        watch.time += 0.005
    watch.time += 0.6
    written.denied(ADA, "renew", target="later")
    await written.close()
    found = {(line.actor, line.at): line for line in sink.lines}
    assert len(found) == 3
    first = found["member:ada", 1000.0]
    assert (first.action, first.target, first.detail, first.count) == ("denied acquire", "k0", "why", 100)
    assert found["member:bob", 1000.005 - 0.005].count == 100
    assert sum(line.count for line in sink.lines) == 201


@pytest.mark.real_clock
async def test_denials_are_written_without_being_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A5: they come to the log by themselves, soon, and an idle log does nothing."""
    monkeypatch.setattr(audit, "GATHERING", 0.01)
    sink, watch = Sink(), Watch()
    written = log(sink, watch)
    written.denied(ADA, "acquire")
    watch.time += 1
    writer = written._writer
    assert writer is not None
    await writer
    assert [line.actor for line in sink.lines] == ["member:ada"]
    assert written._writer is None
    written.denied(ADA, "acquire")
    await written.close()
    assert len(sink.lines) == 2
    await written.close()
    assert sink.writes == 2


async def test_a_flood_of_principals_is_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """C180: what waits to be written is bounded; whoever finds no room is counted among others."""
    monkeypatch.setattr(audit, "MAX_WAITING", 10)
    sink, watch = Sink(), Watch()
    written = log(sink, watch)
    for number in range(1000):
        written.denied(Principal("p", "member", f"u{number}"), "acquire")
    await written.close()
    assert len(sink.lines) == 11
    assert sum(line.count for line in sink.lines) == 1000
    assert sink.lines[-1].actor == "others"


async def test_without_a_record_what_must_have_one_does_not_happen(caplog: pytest.LogCaptureFixture) -> None:
    """SEC14: whether to refuse or to go on is a setting; denials stay denials and are told in the log."""
    sink, watch = Sink(), Watch()
    sink.broken = True
    with pytest.raises(StoreUnavailable):
        await log(sink, watch).record(ADA, "force-release", target="k")
    await log(sink, watch, required=False).record(ADA, "force-release", target="k")
    assert "force-release of member:ada is not in the audit log" in caplog.text
    written = log(sink, watch)
    written.denied(ADA, "acquire")
    written.denied(ADA, "acquire")
    await written.close()
    assert "2 denials are not in the audit log" in caplog.text


@given(st.text())
def test_text_cannot_forge_a_line_or_steer_a_terminal(text: str) -> None:
    """SEC14, C174: what is shown has one line and no control character or direction mark."""
    shown = escaped(text)
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1


async def test_a_line_is_shown_escaped_and_short() -> None:
    """SEC14: names, keys and details of any content become one JSON object."""
    sink, watch = Sink(), Watch()
    await log(sink, watch).record(ADA, "force-release", target="a\nb\x1b[2J\u202e", detail="x" * 50_000)
    shown = write_line(sink.lines[0])
    assert shown["target"] == "a\\nb\\x1b[2J\\u202e"
    assert len(shown["detail"]) == 10_000
    assert shown["at"] == "1970-01-01T00:16:40.000Z"
    assert json.loads(json.dumps(shown)) == shown


class Shelf:
    """Bindings in memory."""

    def __init__(self) -> None:
        self.bound: dict[tuple[str, str], tuple[bytes, float]] = {}
        self.calls = 0

    async def bind_request(self, project: str, request_id: str, *, digest: bytes, until: float, now: float) -> bytes:
        self.calls += 1
        found = self.bound.get((project, request_id))
        if found is None or found[1] <= now:
            self.bound[project, request_id] = (digest, until)
        return self.bound[project, request_id][0]


async def test_a_request_id_belongs_to_one_request_of_one_principal() -> None:
    """O6, C168, SEC19: the same again passes; other parameters or another principal do not, in ten minutes."""
    shelf, watch = Shelf(), Watch()
    ids = RequestIds(shelf, wall=watch)
    asked = {"key": "k", "token": "t" * 32, "ttlMs": 30_000}
    for _ in range(3):
        await ids.bind(ADA, "r1", parameters=asked)
    assert shelf.calls == 1
    for principal, parameters in [
        (BOB, asked),
        (ADA, {**asked, "key": "l"}),
        (ADA, {**asked, "ttlMs": 30_001}),
        (ADA, {**asked, "owner": "run"}),
        (ADA, {**asked, "token": "u" * 32}),
        (Principal("p", "function", "ada"), asked),
    ]:
        with pytest.raises(RequestConflict) as caught:
            await ids.bind(principal, "r1", parameters=parameters)
        assert "ada" not in str(caught.value)
    await ids.bind(Principal("q", "member", "ada"), "r1", parameters=asked)
    with pytest.raises(RequestConflict):
        await RequestIds(shelf, wall=watch).bind(BOB, "r1", parameters=asked)
    watch.time += 599
    with pytest.raises(RequestConflict):
        await ids.bind(BOB, "r1", parameters=asked)
    watch.time += 1
    await ids.bind(BOB, "r1", parameters=asked)


async def test_remembered_request_ids_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """C168: what is known here is bounded; what was forgotten here is still bound in the registry."""
    monkeypatch.setattr(request_ids, "MAX_REMEMBERED", 10)
    shelf, watch = Shelf(), Watch()
    ids = RequestIds(shelf, wall=watch)
    for number in range(100):
        await ids.bind(ADA, f"r{number}", parameters={"key": "k"})
    assert len(ids._known) == 10
    with pytest.raises(RequestConflict):
        await ids.bind(BOB, "r0", parameters={"key": "k"})
