"""What every registry does, written once: over SQLite, PostgreSQL, Valkey and Redis."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from leased.errors import StoreNotUsable, StoreUnavailable
from leased.server import registry_postgres, registry_redis, registry_sqlite
from leased.server.credentials import Credential, RuleSet
from leased.server.registry import AuditLine, Registry
from tests.server.access.registries import KINDS, Opener, opener
from tests.server.access.test_registry import credential, line

WILD = "a\nb\x1b[2J'; DROP TABLE audit \u2603 \ud800 \x00 \"{}[]%s %(now)s"


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """An empty registry of each kind."""
    return opener(request.param, request, directory=tmp_path)


@contextlib.asynccontextmanager
async def opened(place: Opener) -> AsyncIterator[Registry]:
    """It, closed afterwards."""
    registry = place()
    try:
        yield registry
    finally:
        await registry.close()


async def test_what_is_kept_is_read_as_it_was(place: Opener) -> None:
    """V5: credentials survive the process, in all their parts; of another nothing is known."""
    full = credential()
    plain = Credential("f" * 12, "p", "service", "cron", b"\x00" * 32, scopes=frozenset({"full", "locks.manage"}))
    async with opened(place) as registry:
        await registry.add_credential(full, line("create"))
        await registry.add_credential(plain, line("create"))
        assert await registry.credential("1" * 12) is None
    async with opened(place) as registry:
        assert await registry.credential(full.id) == full
        assert await registry.credential(plain.id) == plain
        assert [found.action for found in await registry.audit("p")] == ["create", "create"]


async def test_an_id_is_given_once(place: Opener) -> None:
    """V5: a second credential with the same id is refused, without a line, and the first one stays."""
    async with opened(place) as registry:
        await registry.add_credential(credential(), line("create"))
        with pytest.raises(StoreNotUsable):
            await registry.add_credential(dataclasses.replace(credential(), name="eve"), line("again"))
        assert await registry.credential("0" * 12) == credential()
        assert [found.action for found in await registry.audit("p")] == ["create"]


async def test_pages_hold_one_project_in_order(place: Opener) -> None:
    """A4: lists of one project never show another's, and page through all of it."""
    async with opened(place) as registry:
        assert list(await registry.credentials("p")) == []
        for number in (3, 1, 4, 0, 2):
            await registry.add_credential(credential(f"{number:012}"), line())
        await registry.add_credential(credential("f" * 12, project="q"), line(project="q"))
        first = await registry.credentials("p", limit=3)
        rest = await registry.credentials("p", after=first[-1].id)
        assert [one.id for one in [*first, *rest]] == [f"{number:012}" for number in range(5)]
        assert [one.id for one in await registry.credentials("q")] == ["f" * 12]
        assert len(await registry.audit("q")) == 1


async def test_a_credential_is_revoked_once(place: Opener) -> None:
    """V5: revoking again, or from another project, changes nothing and writes no line."""
    async with opened(place) as registry:
        await registry.add_credential(credential(), line("create"))
        assert not await registry.revoke(credential(project="q"), line("revoke", project="q"))
        assert not await registry.revoke(credential("1" * 12), line("revoke"))
        assert await registry.revoke(credential(), line("revoke", at=50.25))
        assert not await registry.revoke(credential(), line("revoke", at=60.0))
        assert await registry.credential("0" * 12) == dataclasses.replace(credential(), revoked_at=50.25)
        assert (await registry.credentials("p"))[0].revoked_at == 50.25
        assert [one.action for one in await registry.audit("p")] == ["revoke", "create"]
        assert list(await registry.audit("q")) == []


async def test_of_many_who_revoke_one_does(place: Opener) -> None:
    """V5: a change and its line are one step, also where several processes change the same."""
    async with opened(place) as one, opened(place) as other:
        await one.add_credential(credential(), line("create"))
        done = await asyncio.gather(*(at.revoke(credential(), line("revoke")) for at in (one, other) * 4))
        assert sorted(done) == [False] * 7 + [True]
        assert [found.action for found in await one.audit("p")] == ["revoke", "create"]


async def test_a_project_has_one_rule_set(place: Opener) -> None:
    """A2: a second one is refused, the same can be replaced, and deleting makes room."""
    mine = RuleSet("p", "own", "true || '☃' == '\\n'", None, 1.5, "member:ada")
    async with opened(place) as registry:
        assert await registry.rule_set("p") is None
        assert await registry.put_rule_set(mine, line("install"))
        assert await registry.rule_set("p") == mine
        assert not await registry.put_rule_set(dataclasses.replace(mine, name="other"), line("install"))
        assert await registry.put_rule_set(dataclasses.replace(mine, renew="false"), line("install"))
        assert await registry.put_rule_set(dataclasses.replace(mine, project="q", name="other"), line("x", project="q"))
        assert await registry.rule_set("p") == dataclasses.replace(mine, renew="false")
        assert not await registry.delete_rule_set("p", "other", line=line("delete"))
        assert await registry.delete_rule_set("p", "own", line=line("delete"))
        assert await registry.rule_set("p") is None
        assert [one.action for one in await registry.audit("p")] == ["delete", "install", "install"]


async def test_the_audit_log_is_read_from_the_newest(place: Opener) -> None:
    """A5, SEC14: lines are numbered and rise, whatever their text; a page ends where the next begins."""
    async with opened(place) as registry:
        await registry.write_audit([line(f"{number}") for number in range(4)])
        await registry.write_audit([line("other", project="q")])
        wild = AuditLine("p", 100.5, WILD[:-1].replace("\ud800", "") or "x", "4", "k", "d" * 10_000, 7)
        await registry.write_audit([wild])
        newest = await registry.audit("p", limit=2)
        older = await registry.audit("p", before=newest[-1].number)
        assert [one.action for one in [*newest, *older]] == ["4", "3", "2", "1", "0"]
        assert newest[0] == dataclasses.replace(wild, number=newest[0].number)
        assert list(await registry.audit("p", before=older[-1].number)) == []
        assert list(await registry.audit("p", before=1)) == []
        assert len(await registry.audit("p", before=2**63 - 1)) == 5


async def test_a_request_id_is_bound_once(place: Opener) -> None:
    """O6: whoever comes first has it until its end, in his project; afterwards another may."""
    async with opened(place) as registry:
        bind = registry.bind_request
        assert await bind("p", WILD.replace("\ud800", ""), digest=b"a" * 32, until=1600.0, now=1000.0) == b"a" * 32
        assert await bind("p", WILD.replace("\ud800", ""), digest=b"b" * 32, until=1700.0, now=1100.0) == b"a" * 32
        assert await bind("q", WILD.replace("\ud800", ""), digest=b"b" * 32, until=1700.0, now=1100.0) == b"b" * 32
        assert await bind("p", "other", digest=b"c" * 32, until=1700.0, now=1100.0) == b"c" * 32
        assert await bind("p", WILD.replace("\ud800", ""), digest=b"b" * 32, until=2200.0, now=1600.0) == b"b" * 32


async def test_of_many_who_bind_one_wins(place: Opener) -> None:
    """C168: two replicas that see the same id at the same instant agree whose it is."""
    async with opened(place) as one, opened(place) as other:
        await one.audit("p")
        await other.audit("p")
        digests = [bytes([number]) * 32 for number in range(10)]
        found = await asyncio.gather(
            *(
                at.bind_request("p", "id", digest=digest, until=1600.0, now=1000.0)
                for at, digest in zip((one, other) * 5, digests, strict=True)
            )
        )
        assert len(set(found)) == 1
        assert found[0] in digests


async def test_request_ids_are_bounded(place: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """C180: the one that ends first makes room for the next, and those that are over are removed."""
    for module in (registry_sqlite, registry_postgres, registry_redis):
        monkeypatch.setattr(module, "MAX_REQUESTS", 3)
    monkeypatch.setattr(registry_postgres, "_COUNTED_EVERY", 2)
    async with opened(place) as registry:
        for number in range(7):
            end = 2000.0 + number
            await registry.bind_request("p", f"{number}", digest=bytes(32), until=end, now=1000.0)
        again = await registry.bind_request("p", "0", digest=b"n" * 32, until=3000.0, now=1000.0)
        assert again == b"n" * 32
        last = await registry.bind_request("p", "6", digest=b"n" * 32, until=3000.0, now=1000.0)
        assert last == bytes(32)


async def test_many_callers_share_it(place: Opener) -> None:
    """V5: the command line adds a credential while the service runs."""
    async with opened(place) as one, opened(place) as other:
        await asyncio.gather(*(one.add_credential(credential(f"{number:012}"), line()) for number in range(20)))
        await other.add_credential(credential("f" * 12), line())
        assert await one.credential("f" * 12) is not None
        assert len(await other.credentials("p")) == 21
        assert len(await one.audit("p")) == 21


async def test_a_closed_registry_says_so(place: Opener) -> None:
    """11: what is closed is not opened again behind somebody's back."""
    registry = place()
    await registry.close()
    await registry.close()
    with pytest.raises(StoreNotUsable, match="was closed"):
        await registry.audit("p")


async def test_a_text_that_it_cannot_keep_silences_it_for_nobody(place: Opener) -> None:
    """V5: what one caller asks with a NUL in it is an answer or a refusal; the next call of another is answered."""
    async with opened(place) as registry:
        await registry.add_credential(credential(), line("create"))
        for asked in (
            lambda: registry.credential("q\x00"),
            lambda: registry.credentials("p", after="\x00"),
            lambda: registry.delete_rule_set("p", "\x00", line=line("delete")),
        ):
            with contextlib.suppress(StoreUnavailable):
                await asked()
            assert await registry.credential("0" * 12) == credential()
