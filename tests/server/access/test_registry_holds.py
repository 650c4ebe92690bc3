"""The history of holds in every registry, written once: over SQLite, PostgreSQL, Valkey and Redis, and in memory."""

import asyncio
import contextlib
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from leased.server import registry_postgres_holds, registry_sqlite_holds
from leased.server.holds import End, HoldEnd, HoldsKept, OwnHolds, PastHold, Room
from leased.server.registry_redis import RedisRegistry
from leased.server.registry_sqlite import SqliteRegistry
from tests.server.access.registries import KINDS, SHARED, opener
from tests.server.access.test_registry import credential, line

PLENTY = Room(100, 10_000)
Place = Callable[[], HoldsKept]


@pytest.fixture(params=("memory", *KINDS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place for history of each kind."""
    if request.param == "memory":
        kept = OwnHolds()
        return lambda: kept
    found = opener(request.param, request, directory=tmp_path)

    def begun() -> HoldsKept:
        registry = found()
        assert isinstance(registry, HoldsKept)
        return registry

    return begun


@contextlib.asynccontextmanager
async def opened(place: Place) -> AsyncIterator[HoldsKept]:
    """It, with a registry begun in it, closed afterwards."""
    kept = place()
    try:
        yield kept
    finally:
        if not isinstance(kept, OwnHolds):
            await kept.close()  # type: ignore[attr-defined]


def hold(number: int, *, key: str = "k", project: str = "p", **more: object) -> PastHold:
    """A hold; no two are equal."""
    one = PastHold(project, key, f"mark-{number}", number, "member:ada", None, 100.0 + number, 0.25, 130.0 + number)
    return one._replace(**more)  # type: ignore[arg-type]


def ending(number: int, end: End, at: float, *, mark: str | None = None, reason: str = "") -> HoldEnd:
    """The end of such a hold."""
    return HoldEnd("p", "k", f"mark-{number}" if mark is None else mark, number, at, end, reason)


async def test_holds_are_read_as_they_were_written(place: Place) -> None:
    """In all their parts, of one key of one project, the newest first; wild text is text."""
    wild = "a\nb\x1b[2J'; DROP TABLE holds \u2603 %s \"{}[]\x00 \ud800"
    first = hold(2**53 - 1, owner=wild, held_by=wild, ended_at=7.125, end="force_released", reason=wild)
    second = hold(2)
    async with opened(place) as kept:
        assert await kept.holds("p", "k", limit=10) == []
        await kept.write_holds([first, second], [], room=PLENTY)
        await kept.write_holds([hold(3, key="K"), hold(4, project="q"), hold(5, key="☃'%s")], [], room=PLENTY)
    async with opened(place) as kept:
        assert list(await kept.holds("p", "k", limit=10)) == [second, first]
        assert list(await kept.holds("p", "k", limit=1)) == [second]
        assert list(await kept.holds("p", "☃'%s", limit=1)) == [hold(5, key="☃'%s")]


async def test_what_is_written_twice_is_kept_once(place: Place) -> None:
    """Two replicas may both have seen a grant that was told twice."""
    async with opened(place) as kept:
        await kept.write_holds([hold(1)], [], room=PLENTY)
        await kept.write_holds([hold(1, held_by="another")], [], room=PLENTY)
        assert [one.held_by for one in await kept.holds("p", "k", limit=10)] == ["member:ada"]


async def test_ends_that_were_only_supposed_give_way(place: Place) -> None:
    """A lease that ran out for one replica was renewed through another: its real end, or a later one, counts."""
    async with opened(place) as kept:
        await kept.write_holds([hold(1)], [ending(1, "expired", 40.0)], room=PLENTY)
        found = []
        for end in (
            ending(1, "expired", 70.0),
            ending(1, "expired", 40.0),
            ending(2, "force_released", 75.0, mark=""),
            ending(1, "released", 75.0, mark="other"),
            ending(1, "force_released", 80.0, mark="", reason="stuck"),
            ending(1, "released", 90.0),
        ):
            await kept.write_holds([], [end], room=PLENTY)
            (one,) = await kept.holds("p", "k", limit=10)
            found.append((one.end, one.ended_at, one.reason))
        assert found == [*[("expired", 70.0, "")] * 4, *[("force_released", 80.0, "stuck")] * 2]


async def test_history_takes_no_more_room_than_it_is_given(place: Place) -> None:
    """§12: so many of each key, so many in all; the oldest go."""
    room = Room(3, 10)
    async with opened(place) as kept:
        for number in range(1, 8):
            await kept.write_holds([hold(number)], [], room=room)
        assert [one.fencing_token for one in await kept.holds("p", "k", limit=100)] == [7, 6, 5]
        many = [hold(number, key=f"key-{number}") for number in range(20, 60)]
        await kept.write_holds(many, [], room=room)
        left = [len(await kept.holds("p", one.key, limit=100)) for one in (hold(1), *many)]
        assert 5 <= sum(left) <= 10
        assert left[-1] == 1
        assert left[0] == 0


async def test_many_holds_are_written_at_once(place: Place) -> None:
    """As many as a second brings at the most, with their ends, within the time of one call."""
    many = [hold(number, key=f"key-{number % 500}") for number in range(1, 2_001)]
    ends = [HoldEnd("p", one.key, one.mark, 0, 500.0, "released") for one in many[:1_000]]
    async with opened(place) as kept:
        await kept.write_holds(many, ends, room=PLENTY)
        found = await kept.holds("p", "key-7", limit=100)
        assert [one.fencing_token for one in found] == [1507, 1007, 507, 7]
        assert [one.end for one in found] == [None, None, "released", "released"]


class Counted:
    """A connection that counts how often the oldest of all holds were looked for."""

    def __init__(self, connection: Any, *, found: list[str]) -> None:
        self._connection = connection
        self._found = found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *given: Any) -> Any:
        """See the connection."""
        if re.search(r"SELECT number FROM \w+ ORDER BY number", statement):
            self._found.append(statement)
        return self._connection.execute(statement, *given)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_room_is_made_once_in_many_writes(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """§12: to find the oldest takes time linear in the room, so no write does it before a hundredth more came; a
    service that was started anew does it at once."""
    module = {"sqlite": registry_sqlite_holds, "postgres": registry_postgres_holds}[kind]
    found, keep = opener(kind, request, directory=tmp_path), module.keep
    looks: list[str] = []
    monkeypatch.setattr(
        module, "keep", lambda connection, *given, **more: keep(Counted(connection, found=looks), *given, **more)
    )
    room = Room(100, 1_000)

    def place() -> HoldsKept:
        registry = found()
        assert isinstance(registry, HoldsKept)
        return registry

    async def write(numbers: range) -> None:
        async with opened(place) as registry:
            for number in numbers:
                await registry.write_holds([hold(number, key=f"key-{number}")], [], room=room)

    async def kept(most: int) -> int:
        async with opened(place) as registry:
            return sum([len(await registry.holds("p", f"key-{number}", limit=9)) for number in range(1, most + 1)])

    async with opened(place) as registry:
        await registry.write_holds([hold(number, key=f"key-{number}") for number in range(1, 1_001)], [], room=room)
    looks.clear()
    await write(range(1_001, 1_101))
    assert 5 <= len(looks) <= 11
    assert 1_000 <= await kept(1_100) <= 1_010
    looks.clear()
    await write(range(1_101, 1_102))
    assert len(looks) == 1


@pytest.mark.parametrize("kind", SHARED)
async def test_replicas_write_side_by_side(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Two replicas that write the same keys in another order neither wait for each other nor lose what they wrote."""
    place = opener(kind, request, directory=tmp_path)
    one, two = place(), place()
    assert isinstance(one, HoldsKept)
    assert isinstance(two, HoldsKept)
    try:

        async def write(kept: HoldsKept, *, first: int, step: int) -> None:
            for round_ in range(5):
                keys = range(20)[::step]
                begun = [hold(first + 100 * round_ + at, key=f"key-{at}") for at in keys]
                before = [
                    HoldEnd("p", f"key-{at}", "", first + 100 * (round_ - 1) + at, 1.0, "released") for at in keys
                ]
                await kept.write_holds(begun, before, room=PLENTY)

        await asyncio.gather(write(one, first=1_000, step=1), write(two, first=2_000, step=-1))
        found = await one.holds("p", "key-7", limit=100)
        assert len(found) == 10
        assert sum(hold_.end == "released" for hold_ in found) == 8
    finally:
        await one.close()
        await two.close()


@pytest.mark.parametrize(("each", "rows"), [(1, 200), (20, 200), (1_000, 4), (10_000, 1)])
async def test_no_script_keeps_a_redis_server_busy(each: int, rows: int) -> None:
    """A row reads and writes all holds of its key: the more there may be, the fewer rows has a script."""
    registry = RedisRegistry("redis://127.0.0.1:1", mark="")
    registry._checked = True
    begun: list[int] = []
    given: list[int] = []

    async def record(*, keys: Sequence[str], args: Sequence[Any]) -> int:
        begun.append(args[2])
        given.append((len(args) - 3) // 7)
        return 1

    registry._scripts["holds"] = record
    many = [hold(number) for number in range(250)]
    await registry.write_holds(many, [ending(number, "released", 1.0) for number in range(50)], room=Room(each, 9))
    assert (max(given), sum(given)) == (rows, 300)
    assert begun == [max(0, 250 - at) for at in range(0, 300, rows)]
    await registry.close()


async def test_a_registry_of_before_gets_its_history(tmp_path: Path) -> None:
    """A file that was made without that table is read as one without history, and has it once it is written."""
    registry = SqliteRegistry(str(tmp_path / "r.db"))
    await registry.add_credential(credential(), line("create"))
    with contextlib.closing(sqlite3.connect(tmp_path / "r.db")) as connection:
        assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'holds'").fetchone()
    assert await registry.holds("p", "k", limit=10) == []
    await registry.write_holds([hold(1)], [], room=PLENTY)
    assert len(await registry.holds("p", "k", limit=10)) == 1
    await registry.close()
