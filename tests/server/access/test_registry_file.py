"""The registry that is a TOML file: read strictly, followed when it changes, never written."""

import dataclasses
import os
from pathlib import Path

import pytest

from leased.errors import InvalidRequest, StoreNotUsable, StoreUnavailable
from leased.server import registry_file
from leased.server.credentials import RuleSet, Wanted
from leased.server.keys import Hasher, new_key
from leased.server.management import new_credential
from leased.server.principals import Principal
from leased.server.registries import Place, open_registry
from leased.server.registry_file import PUBLIC_PEPPER, FileRegistry, read_registry, write_entry
from leased.server.registry_names import kind_of, path_of, sharing_of
from tests.server.access.test_registry import credential, line

OPERATOR = Principal("default", "local", "operator")
RULES = """
[[ruleSet]]
project = "p"
name = "own"
acquire = "record.key.startsWith('user:')"
"""


async def test_what_was_printed_is_what_is_read(tmp_path: Path) -> None:
    """V5: every kind of credential stands in the file as it was made, and rule sets beside it."""
    wanted = [
        Wanted("p", "member", 'a"d\\a\u2603', role="admin", groups=[("ops", "team"), ("a:b", "c")]),
        Wanted("p", "function", "nightly"),
        Wanted("q", "service", "cron", scopes=["full", "locks.manage"]),
    ]
    hasher = Hasher(PUBLIC_PEPPER)
    made = [new_credential(OPERATOR, one, hasher=hasher, now=1e9, life=3600.5) for one in wanted]
    path = tmp_path / "registry.toml"
    path.write_text("".join(write_entry(one) for _, one in made) + RULES)
    opened = open_registry(Place(str(path)), begin=False)
    registry = opened.registry
    for key, one in made:
        found = await registry.credential(key.id)
        assert found is not None
        assert found == dataclasses.replace(one, created_at=0.0, created_by="")
        assert opened.hasher.matches(key, found.digest)
        assert key.secret not in path.read_text()
    assert [one.id for one in await registry.credentials("p")] == sorted(key.id for key, _ in made[:2])
    assert await registry.rule_set("p") == RuleSet("p", "own", "record.key.startsWith('user:')", None)
    assert await registry.rule_set("q") is None
    await registry.close()
    with pytest.raises(StoreNotUsable, match="was closed"):
        await registry.credential("x")


async def test_the_file_is_followed(tmp_path: Path) -> None:
    """V5: a credential that is taken out is gone; a file with a mistake, or none, is no answer and no permission."""
    path = tmp_path / "r.toml"
    path.write_text(write_entry(credential()))
    registry = FileRegistry(str(path))
    assert await registry.credential("0" * 12) is not None
    (tmp_path / "new").write_text("")
    os.replace(tmp_path / "new", path)
    assert await registry.credential("0" * 12) is None
    path.write_text("[[credential]]\nid = 1")
    with pytest.raises(StoreUnavailable, match="has a mistake"):
        await registry.credential("0" * 12)
    path.unlink()
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        await registry.rule_set("p")
    path.write_text(write_entry(credential()))
    assert await registry.credential("0" * 12) is not None


async def test_it_is_never_written(tmp_path: Path) -> None:
    """11: who wants to change it is told where."""
    path = tmp_path / "r.toml"
    path.write_text(write_entry(credential()))
    registry = FileRegistry(str(path))
    for change in (
        registry.add_credential(credential("1" * 12), line()),
        registry.revoke(credential(), line()),
        registry.put_rule_set(RuleSet("p", "own"), line()),
        registry.delete_rule_set("p", "own", line=line()),
    ):
        with pytest.raises(InvalidRequest, match="only reads"):
            await change
    assert path.read_text() == write_entry(credential())


async def test_ids_and_lines_are_those_of_the_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """O6, A5, C180: bounded, and each audit line goes to the log, with nothing in it that could be another line."""
    monkeypatch.setattr(registry_file, "MAX_REQUESTS", 2)
    registry = FileRegistry("nowhere.toml")
    for name in ("a", "b", "c"):
        assert await registry.bind_request("p", name, digest=name.encode(), until=10.0, now=1.0) == name.encode()
    assert await registry.bind_request("p", "c", digest=b"x", until=10.0, now=2.0) == b"c"
    assert await registry.bind_request("p", "a", digest=b"x", until=10.0, now=2.0) == b"x"
    assert await registry.bind_request("p", "c", digest=b"y", until=20.0, now=10.0) == b"y"
    with caplog.at_level("INFO", "leased.server.audit"):
        await registry.write_audit([line("one"), line("two", detail="a\nb"), line("other", project="q")])
    assert [one.action for one in await registry.audit("p")] == ["two", "one"]
    assert [one.action for one in await registry.audit("p", before=2)] == ["one"]
    assert "a\\nb" in caplog.text


ENTRY = f'[[credential]]\nid = "{"0" * 12}"\nhash = "{"0" * 64}"\nname = "ada"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = ", "not TOML"),
        ("[credentials]", "not known"),
        ("[credential]\nid = 1", "no list of tables"),
        (ENTRY + "secret = 1", "'secret', which is not known"),
        (ENTRY.replace('id = "', 'id = "x'), "no id and hash"),
        (ENTRY.replace('name = "ada"', ""), "name of credential 1 is no text"),
        (ENTRY + 'groups = ["ops"]', "has no kind"),
        (ENTRY + "groups = 1", "no list of texts"),
        (ENTRY + 'role = "root"', "role"),
        (ENTRY + "expires = 2030-01-01T00:00:00", "no instant"),
        (ENTRY + ENTRY, "the same id"),
        (RULES + RULES, "same project"),
        (RULES.replace("startsWith", "nothing"), "rules.lock.acquire cannot be used"),
        (RULES.replace('"p"', '"P"'), "no plain name"),
    ],
)
def test_mistakes_are_named(text: str, words: str) -> None:
    """11: what is not understood is not guessed."""
    with pytest.raises(InvalidRequest, match=words):
        read_registry(text)


def test_the_example_of_the_documentation_can_be_read() -> None:
    """11: what the page on replicas shows is a registry."""
    page = Path(__file__).parents[3] / "docs" / "service" / "replicas.md"
    text = page.read_text().partition("```toml")[2].partition("```")[0]
    found = read_registry(text)
    (one,) = found.credentials.values()
    assert (one.project, one.name, one.groups) == ("default", "ada", frozenset({("ops", "team")}))
    assert found.rule_sets["default"].name == "own-prefix"


def test_a_name_says_what_it_is() -> None:
    """S4: files, servers, and what is neither; secrets are not shown."""
    kinds = {
        "registry.db": "sqlite",
        "/var/lib/registry": "sqlite",
        "sqlite:registry.db": "sqlite",
        "r.toml": "file",
        "postgresql://u:secret@h/db": "postgres",
        "postgres://h/db": "postgres",
        "redis://h/0": "redis",
        "valkeys://h/0": "redis",
    }
    assert {name: kind_of(name) for name in kinds} == kinds
    assert path_of("sqlite:registry.db") == path_of("registry.db") == "registry.db"
    for wrong in ("mysql://u:secret@h/db", "memory:", "https://h", "redis+cluster://h"):
        with pytest.raises(InvalidRequest, match="a registry cannot be at") as caught:
            kind_of(wrong)
        assert "secret" not in str(caught.value)
    assert sharing_of("")["budgets"] == "none"
    assert sharing_of("r.db")["budgets"] == sharing_of("r.toml")["budgets"] == "each replica"


def test_a_registry_on_a_server_needs_a_key_file(tmp_path: Path) -> None:
    """SEC2: it is the same for all replicas, so that none may make one by itself."""
    with pytest.raises(InvalidRequest, match="needs a key file"):
        open_registry(Place("redis://u:secret@h/0"), begin=True)
    missing = str(tmp_path / "registry.key")
    with pytest.raises(StoreNotUsable, match="cannot be read"):
        open_registry(Place("redis://h/0", missing), begin=False)
    open_registry(Place("redis://h/0", missing), begin=True)
    assert (tmp_path / "registry.key").stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "registry.key")
    one, other = (open_registry(Place("redis://h/0", path), begin=False) for path in (missing, str(tmp_path / "link")))
    assert one.hasher.mark == other.hasher.mark != Hasher(PUBLIC_PEPPER).mark
    key = new_key()
    assert one.hasher.matches(key, other.hasher.digest(key))
