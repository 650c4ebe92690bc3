"""The registry: what is kept is kept together with its audit line, by one file, for its user alone."""

import asyncio
import contextlib
import dataclasses
import os
import sqlite3
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from leased.errors import AccessDenied, InvalidRequest, StoreNotUsable, StoreUnavailable
from leased.server import registry_sqlite
from leased.server.credentials import (
    Credential,
    RuleSet,
    Wanted,
    check_grant,
    check_rule_set,
    check_wanted,
    may_manage,
)
from leased.server.principals import Principal
from leased.server.registry import AuditLine
from leased.server.registry_sqlite import SqliteRegistry


def line(action: str = "test", *, project: str = "p", at: float = 100.0, detail: str = "") -> AuditLine:
    """An audit line."""
    return AuditLine(project, at, "member:ada", action, detail=detail)


def credential(id: str = "0" * 12, *, project: str = "p") -> Credential:
    """A credential with something in every field."""
    return Credential(
        id=id,
        project=project,
        kind="member",
        name="ada ☃",
        digest=bytes(range(32)),
        role="admin",
        groups=frozenset({("ops", "team"), ("dev", "squad")}),
        created_at=1.5,
        created_by="member:grace",
        expires_at=2e9,
    )


@contextlib.asynccontextmanager
async def opened(path: Path, *, timeout: float = 10.0) -> AsyncIterator[SqliteRegistry]:
    """A registry in a file, closed afterwards."""
    registry = SqliteRegistry(str(path), timeout=timeout)
    try:
        yield registry
    finally:
        await registry.close()


async def test_what_is_kept_is_read_as_it_was(tmp_path: Path) -> None:
    """V5: credentials survive the process, in all their parts."""
    async with opened(tmp_path / "r.db") as registry:
        assert await registry.credential("0" * 12) is None
        await registry.add_credential(credential(), line("create"))
    async with opened(tmp_path / "r.db") as registry:
        assert await registry.credential("0" * 12) == credential()
        assert [found.action for found in await registry.audit("p")] == ["create"]


async def test_pages_hold_one_project_in_order(tmp_path: Path) -> None:
    """A4: lists of one project never show another's."""
    async with opened(tmp_path / "r.db") as registry:
        for number in range(5):
            await registry.add_credential(credential(f"{number:012}"), line())
        await registry.add_credential(credential("f" * 12, project="q"), line(project="q"))
        first = await registry.credentials("p", limit=3)
        rest = await registry.credentials("p", after=first[-1].id)
        assert [one.id for one in [*first, *rest]] == [f"{number:012}" for number in range(5)]
        assert [one.id for one in await registry.credentials("q")] == ["f" * 12]
        assert len(await registry.audit("q")) == 1


async def test_a_credential_is_revoked_once(tmp_path: Path) -> None:
    """V5: revoking again, or from another project, changes nothing and writes no line."""
    async with opened(tmp_path / "r.db") as registry:
        await registry.add_credential(credential(), line("create"))
        assert not await registry.revoke(credential(project="q"), line("revoke", project="q"))
        assert await registry.revoke(credential(), line("revoke", at=50.0))
        assert not await registry.revoke(credential(), line("revoke", at=60.0))
        found = await registry.credential("0" * 12)
        assert found is not None
        assert found.revoked_at == 50.0
        assert [one.action for one in await registry.audit("p")] == ["revoke", "create"]


async def test_a_project_has_one_rule_set(tmp_path: Path) -> None:
    """A2: a second one is refused, the same can be replaced, and deleting makes room."""
    mine = RuleSet("p", "own", "true", None, 1.0, "member:ada")
    async with opened(tmp_path / "r.db") as registry:
        assert await registry.rule_set("p") is None
        assert await registry.put_rule_set(mine, line("install"))
        assert not await registry.put_rule_set(dataclasses.replace(mine, name="other"), line("install"))
        assert await registry.put_rule_set(dataclasses.replace(mine, renew="false"), line("install"))
        assert await registry.put_rule_set(dataclasses.replace(mine, project="q", name="other"), line("x", project="q"))
        assert await registry.rule_set("p") == dataclasses.replace(mine, renew="false")
        assert not await registry.delete_rule_set("p", "other", line=line("delete"))
        assert await registry.delete_rule_set("p", "own", line=line("delete"))
        assert await registry.rule_set("p") is None
        assert [one.action for one in await registry.audit("p")] == ["delete", "install", "install"]


async def test_the_audit_log_only_grows(tmp_path: Path) -> None:
    """A5, SEC14: lines are numbered, read from the newest, and not even the file's owner changes one by a slip."""
    async with opened(tmp_path / "r.db") as registry:
        await registry.write_audit([line(f"{number}", detail="a\nb\x1b[2J'; DROP TABLE audit") for number in range(5)])
        newest = await registry.audit("p", limit=2)
        older = await registry.audit("p", before=newest[-1].number)
        assert [one.action for one in [*newest, *older]] == ["4", "3", "2", "1", "0"]
        assert newest[0].detail == "a\nb\x1b[2J'; DROP TABLE audit"
    connection = sqlite3.connect(tmp_path / "r.db")
    for statement in ("DELETE FROM audit", "UPDATE audit SET actor = 'me'"):
        with pytest.raises(sqlite3.IntegrityError, match="only grows"):
            connection.execute(statement)
    connection.close()


async def test_a_change_without_its_line_does_not_happen(tmp_path: Path) -> None:
    """SEC14: where the audit cannot be written, credentials and rules stay as they were."""
    async with opened(tmp_path / "r.db") as registry:
        await registry.add_credential(credential(), line())
        connection = sqlite3.connect(tmp_path / "r.db")
        connection.execute("CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'disk full'); END")
        connection.close()
        for change in (
            registry.add_credential(credential("1" * 12), line()),
            registry.revoke(credential(), line()),
            registry.put_rule_set(RuleSet("p", "own"), line()),
        ):
            with pytest.raises(StoreUnavailable):
                await change
        found = await registry.credential("0" * 12)
        assert found is not None
        assert found.revoked_at is None
        assert await registry.credential("1" * 12) is None
        assert await registry.rule_set("p") is None


async def test_a_request_id_is_bound_once_until_its_time(tmp_path: Path) -> None:
    """O6, C168: the first digest counts, in its project, until the time is over; also after a restart."""
    async with opened(tmp_path / "r.db") as registry:
        assert await registry.bind_request("p", "r1", digest=b"a", until=10, now=0) == b"a"
        assert await registry.bind_request("q", "r1", digest=b"c", until=10, now=0) == b"c"
    async with opened(tmp_path / "r.db") as registry:
        assert await registry.bind_request("p", "r1", digest=b"b", until=15, now=5) == b"a"
        assert await registry.bind_request("p", "r1", digest=b"b", until=20, now=10) == b"b"


async def test_request_ids_are_bounded_in_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C168: a flood forgets the oldest; what is over is swept away."""
    monkeypatch.setattr(registry_sqlite, "MAX_REQUESTS", 10)
    async with opened(tmp_path / "r.db") as registry:
        for number in range(30):
            await registry.bind_request("p", f"r{number}", digest=b"a", until=100 + number, now=0)
        await registry.bind_request("q", "r", digest=b"a", until=5, now=0)
        connection = sqlite3.connect(tmp_path / "r.db")
        ids = {name for (name,) in connection.execute("SELECT id FROM requests WHERE project = 'p'")}
        assert ids == {f"r{number}" for number in range(20, 30)}
        await registry.bind_request("p", "new", digest=b"a", until=999, now=500)
        assert connection.execute("SELECT count(*) FROM requests WHERE project = 'p'").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM requests WHERE project = 'q'").fetchone() == (1,)
        connection.close()


async def test_the_file_is_for_its_user_alone(tmp_path: Path) -> None:
    """SEC16: made with 0600 whatever the umask; one that others could write is refused."""
    before = os.umask(0)
    try:
        async with opened(tmp_path / "r.db") as registry:
            await registry.write_audit([line()])
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "r.db").stat().st_mode) == 0o600
    (tmp_path / "r.db").chmod(0o620)
    async with opened(tmp_path / "r.db") as registry:
        with pytest.raises(StoreNotUsable, match="chmod 600"):
            await registry.audit("p")


async def test_other_files_are_refused(tmp_path: Path) -> None:
    """11: a lock store, another database, text, a directory and another release are named, and left as they are."""
    (tmp_path / "text").write_text("not a database, but long enough to be one " * 50)
    (tmp_path / "text").chmod(0o600)
    (tmp_path / "dir").mkdir()
    other = sqlite3.connect(tmp_path / "other")
    other.execute("CREATE TABLE t (x)")
    other.close()
    later = sqlite3.connect(tmp_path / "later")
    later.execute(f"PRAGMA application_id = {registry_sqlite.APPLICATION_ID}")
    later.execute("PRAGMA user_version = 99")
    later.close()
    for name in ("other", "later"):
        (tmp_path / name).chmod(0o600)
    for name, words in {
        "text": "cannot be used",
        "dir": "cannot be opened",
        "other": "belongs to another program",
        "later": "of another release",
        "missing/r.db": "cannot be opened",
    }.items():
        async with opened(tmp_path / name) as registry:
            with pytest.raises(StoreNotUsable, match=words):
                await registry.credential("x")


async def test_a_file_that_is_busy_is_not_broken(tmp_path: Path) -> None:
    """S2: another process that writes for long means no answer, with nothing applied, and later it works again."""
    async with opened(tmp_path / "r.db", timeout=0.5) as registry:
        await registry.write_audit([line()])
        blocker = sqlite3.connect(tmp_path / "r.db", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable) as caught:
            await registry.write_audit([line()])
        assert (caught.value.applied, caught.value.retryable) == (False, True)
        assert len(await registry.audit("p")) == 1
        blocker.execute("ROLLBACK")
        blocker.close()
        async with asyncio.timeout(30.0):
            while True:
                with contextlib.suppress(StoreUnavailable):  # for a second all are told of it
                    await registry.write_audit([line()])
                    break
                await asyncio.sleep(0.05)


async def test_many_callers_and_processes_share_the_file(tmp_path: Path) -> None:
    """V5: the command line adds a credential while the service runs."""
    async with opened(tmp_path / "r.db") as one, opened(tmp_path / "r.db") as other:
        await asyncio.gather(*(one.add_credential(credential(f"{number:012}"), line()) for number in range(20)))
        await other.add_credential(credential("f" * 12), line())
        assert await one.credential("f" * 12) is not None
        assert len(await other.credentials("p")) == 21


async def test_a_closed_registry_says_so(tmp_path: Path) -> None:
    """11: what is closed is not opened again behind somebody's back."""
    registry = SqliteRegistry(str(tmp_path / "r.db"))
    await registry.close()
    await registry.close()
    with pytest.raises(StoreNotUsable, match="was closed"):
        await registry.audit("p")


@pytest.mark.parametrize(
    "wrong",
    [
        Wanted("p", "robot", "a"),
        Wanted("P", "member", "a"),
        Wanted("", "member", "a"),
        Wanted("p/q", "member", "a"),
        Wanted("p" * 65, "member", "a"),
        Wanted("p", "member", ""),
        Wanted("p", "member", "1:a"),
        Wanted("p", "member", "a\nb"),
        Wanted("p", "member", "a" * 256),
        Wanted("p", "member", "a", role="root"),
        Wanted("p", "function", "a", role="admin"),
        Wanted("p", "function", "a", groups=[("ops", "team")]),
        Wanted("p", "member", "a", scopes=["full"]),
        Wanted("p", "service", "a", scopes=["everything"]),
        Wanted("p", "member", "a", groups=[("ops", "")]),
        Wanted("p", "member", "a", groups=[(f"g{number}", "team") for number in range(101)]),
    ],
)
def test_a_credential_that_makes_no_sense_is_refused(wrong: Wanted) -> None:
    """V5, C171: ids without colons, roles and groups for members, scopes for services."""
    with pytest.raises(InvalidRequest):
        check_wanted(wrong)


def test_a_rule_set_is_checked_whole() -> None:
    """A3: the name, and every rule in it, named in the message."""
    assert check_rule_set(RuleSet("p", "own", "true", None)).name == "own"
    with pytest.raises(InvalidRequest, match=r"rules\.lock\.renew cannot be used: line 1, column 1"):
        check_rule_set(RuleSet("p", "own", "true", "1"))
    with pytest.raises(InvalidRequest, match="no plain name"):
        check_rule_set(RuleSet("p", "a b"))


def test_nobody_hands_out_more_than_he_has() -> None:
    """V5: admins make members and admins, and only owners and full services make owners and full services."""
    owner, admin = (Principal("p", "member", "a", role=role) for role in ("owner", "admin"))
    full = Principal("p", "service", "s", scopes=frozenset({"full"}))
    makes_owner = dataclasses.replace(credential(), role="owner")
    makes_full = dataclasses.replace(credential(), kind="service", role="member", scopes=frozenset({"full"}))
    for principal in (owner, admin, full):
        assert may_manage(principal)
        check_grant(principal, credential())
    for principal in (owner, full):
        check_grant(principal, makes_owner)
        check_grant(principal, makes_full)
    for wanted in (makes_owner, makes_full):
        with pytest.raises(AccessDenied):
            check_grant(admin, wanted)
    for principal in (
        Principal("p", "member", "m"),
        Principal("p", "function", "f"),
        Principal("p", "service", "s"),
        Principal("p", "service", "s", scopes=frozenset({"locks.manage"})),
    ):
        assert not may_manage(principal)
