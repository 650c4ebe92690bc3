"""`leased keys` and `leased config`: credentials and rules, in a registry file and at a running service."""

import json
import stat
from collections.abc import Iterator

import pytest

from leased.cli.parser import build
from leased.server.routes_manage import manage_routes
from tests.cli.driving import UNAVAILABLE, USAGE, Cli
from tests.server.access.gates import World
from tests.server.running import Running, running

RULES = """[ruleSet]
name = "own"
resourceType = "lock"

[rules.lock]
acquire = '''
record.key.startsWith('user:' + user.userId + ':')
  || isMemberOf('ops', 'team')'''
"""
DENIED = 77


def test_a_key_is_shown_once(cli: Cli) -> None:
    """C3, SEC2, SEC16: made, listed without its secret, revoked; the secret is in no file, and files are private."""
    registry = ("--registry", str(cli.path("registry.db")))
    made = cli.data("keys", "create", *registry, "--name", "ada", "--group", "ops:team", "--expires", "90d")
    key, identity = made["key"], made["credential"]["id"]
    assert key.startswith(f"lk_{identity}_")
    about = made["credential"]
    assert (about["project"], about["kind"], about["name"], about["role"]) == ("default", "member", "ada", "member")
    assert about["groups"] == [{"name": "ops", "kind": "team"}]
    listed = cli.run("keys", "list", *registry)
    assert json.loads(listed.stdout) == about
    secret = key.rpartition("_")[2]
    for path in cli.directory.glob("registry.db*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert secret.encode() not in path.read_bytes()
        assert bytes.fromhex(secret) not in path.read_bytes()
    assert cli.data("keys", "revoke", identity, *registry)["state"] == "revoked"
    assert cli.data("keys", "list", *registry)["state"] == "revoked"
    assert cli.run("keys", "revoke", "0" * 12, *registry).returncode == USAGE


def test_the_registry_can_be_named_by_the_environment(cli: Cli) -> None:
    """C3: the variable that `leased serve` reads."""
    cli.environment["LEASED_SERVE_REGISTRY"] = str(cli.path("registry.db"))
    assert cli.data("keys", "create", "--kind", "service", "--name", "cron", "--scope", "locks.manage")["key"]
    assert cli.data("keys", "list", "--project", "default")["scopes"] == ["locks.manage"]
    assert cli.run("keys", "list", "--project", "other").stdout == ""


def test_only_create_makes_a_registry(cli: Cli) -> None:
    """C3: a name with a slip in it is told with the next step, and no file is made that would look like a registry."""
    path = cli.path("registri.db")
    cli.path("rules.toml").write_text(RULES)
    for words in (["keys", "list"], ["keys", "revoke", "0" * 12], ["config", "pull"], ["config", "push", "rules.toml"]):
        done = cli.run(*words, "--registry", str(path))
        assert (done.returncode, done.stdout) == (UNAVAILABLE, ""), words
        assert str(path) in done.stderr
        assert "leased keys create" in done.stderr
    assert not list(cli.directory.glob("registri*"))
    missing = cli.path("missing.key")
    done = cli.run("keys", "list", "--registry", "redis://127.0.0.1:1/0", "--registry-key", str(missing))
    assert (done.returncode, missing.exists()) == (UNAVAILABLE, False)
    assert "leased keys create" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["create", "--name", "ada"], "no registry is named"),
        (["create", "--registry", "r.db"], "a key is made for somebody"),
        (["create", "--registry", "r.db", "--name", "1:a"], "has a colon"),
        (["create", "--registry", "r.db", "--name", "a", "--group", "ops"], "has no kind"),
        (["create", "--registry", "r.db", "--name", "a", "--project", "A B"], "no plain name"),
        (["create", "--registry", "r.db", "--name", "a", "--scope", "full"], "only service credentials have scopes"),
        (["create", "--registry", "r.db", "--name", "a", "--expires", "soon"], "is not a duration"),
        (["revoke", "--registry", "r.db"], "which key?"),
        (["destroy"], "invalid choice: 'destroy'"),
    ],
)
def test_mistakes_are_told(cli: Cli, arguments: list[str], words: str) -> None:
    """11: exit status 64, what is wrong, and what to write instead."""
    done = cli.run("keys", *arguments)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert words in done.stderr


def test_a_registry_that_cannot_be_used_is_69(cli: Cli) -> None:
    """11: not a registry, or one that others can change."""
    assert cli.run("keys", "list", "--registry", str(cli.directory)).returncode == UNAVAILABLE
    path = cli.path("registry.db")
    cli.data("keys", "create", "--registry", str(path), "--name", "ada")
    path.chmod(0o666)
    done = cli.run("keys", "list", "--registry", str(path))
    assert (done.returncode, "chmod 600" in done.stderr) == (UNAVAILABLE, True)


def test_rules_are_tried_without_a_service(cli: Cli) -> None:
    """A6: `check` evaluates a file for a user and a key; the exit status is the answer."""
    cli.path("leased-rules.toml").write_text(RULES)
    assert cli.data("config", "check") == {"ruleSet": "own", "valid": True}
    asked = ("config", "check", "leased-rules.toml", "--user", "ada", "--operation", "acquire")
    done = cli.run(*asked, "--key", "user:ada:x")
    assert (done.returncode, json.loads(done.stdout)["acquire"]["allowed"]) == (0, True)
    assert cli.run(*asked, "--key", "user:bob:x").returncode == 1
    assert cli.run(*asked, "--key", "user:bob:x", "--group", "ops:team").returncode == 0
    assert cli.run(*asked, "--key", "user:bob:x", "--role", "admin").returncode == 0
    both = cli.run("config", "check", "--user", "ada", "--key", "user:ada:x")
    assert (both.returncode, json.loads(both.stdout)["renew"]["reason"]) == (1, "the rule set has no rule for it")
    assert cli.run("config", "check", "--user", "ada").returncode == USAGE
    cli.path("bad.toml").write_text(RULES.replace("user.userId", "user.id"))
    bad = cli.run("config", "check", "bad.toml")
    assert (bad.returncode, "line 1, column 37" in bad.stderr) == (USAGE, True)
    assert cli.run("config", "check", "missing.toml").returncode == USAGE
    cli.path("latin.toml").write_bytes(b"\xff")
    assert cli.run("config", "check", "latin.toml").returncode == USAGE


def go_round(cli: Cli, *place: str) -> None:
    """Push, compare, fetch, replace and delete a rule set."""
    file = cli.path("rules.toml")
    file.write_text(RULES)
    assert cli.run("config", "pull", *place).returncode == USAGE
    first = cli.run("config", "diff", "rules.toml", *place)
    assert (first.returncode, "+[ruleSet]" in first.stdout) == (1, True)
    assert cli.run("config", "push", "rules.toml", "--only", "rule-set/other", *place).returncode == USAGE
    assert cli.data("config", "push", "rules.toml", "--only", "rule-set/own", *place)["installed"] is True
    assert cli.run("config", "pull", "--only", "rule-set/own", *place).stdout == RULES
    same = cli.run("config", "diff", "rules.toml", *place)
    assert (same.returncode, same.stdout) == (0, "")
    file.write_text(RULES + "renew = 'true'\n")
    more = cli.run("config", "diff", "rules.toml", *place)
    assert (more.returncode, more.stdout.splitlines()[-1]) == (1, "+renew = 'true'")
    file.write_text(RULES.replace('"own"', '"two"'))
    second = cli.run("config", "push", "rules.toml", *place)
    assert (second.returncode, "would be a second one" in second.stderr) == (USAGE, True)
    assert cli.run("config", "delete", *place).returncode == USAGE
    assert cli.data("config", "delete", "--only", "rule-set/own", *place)["deleted"] is True
    assert cli.run("config", "delete", "--only", "rule-set/own", *place).returncode == USAGE


def test_rules_in_a_registry_file(cli: Cli) -> None:
    """A6: push, pull, diff and delete on the file that a service uses."""
    cli.data("keys", "create", "--registry", str(cli.path("registry.db")), "--name", "ada")
    go_round(cli, "--registry", str(cli.path("registry.db")))


@pytest.fixture
def service() -> Iterator[tuple[World, Running]]:
    """A running service with credentials."""
    world = World()
    with running(gate=world.gate, further=manage_routes(world.gate), registry="in memory") as found:
        yield world, found


def test_rules_at_a_service(cli: Cli, service: tuple[World, Running]) -> None:
    """A6: the same over HTTP, with a credential from the environment, which is in no output."""
    world, running_service = service
    owner = world.key("member", "olga", role="owner")
    cli.environment["LEASED_API_KEY"] = owner.text
    go_round(cli, "--url", running_service.url)
    assert world.registry.lines[0].actor == "member:olga"
    for key, status in ((world.key("member", "ada").text, DENIED), (owner.text[:-1] + "x", DENIED)):
        cli.environment["LEASED_API_KEY"] = key
        done = cli.run("config", "pull", "--url", running_service.url)
        assert done.returncode == status
        assert key not in done.stdout + done.stderr


def test_no_service_is_no_answer(cli: Cli, service: tuple[World, Running]) -> None:
    """11: another kind of store is a mistake, and nothing at the address is 69."""
    assert cli.run("config", "pull").returncode == USAGE
    _, running_service = service
    cli.path("rules.toml").write_text(RULES)
    nowhere = f"http://127.0.0.1:{running_service.port}/elsewhere"
    assert cli.run("config", "pull", "--url", nowhere).returncode in {UNAVAILABLE, USAGE}
    assert cli.run("config", "push", "rules.toml", "--url", "http://127.0.0.1:1").returncode == UNAVAILABLE


def test_a_service_without_credentials_has_no_rules(cli: Cli) -> None:
    """C3, V1: rules for a service that asks nobody who he is: said as such, with the next step, not as a wrong path."""
    cli.path("rules.toml").write_text(RULES)
    with running() as open_to_all:
        for words in (["pull"], ["push", "rules.toml"], ["diff", "rules.toml"]):
            done = cli.run("config", *words, "--url", open_to_all.url)
            assert (done.returncode, done.stdout) == (USAGE, ""), words
            assert "no access rules" in done.stderr, words
            assert "leased serve --registry" in done.stderr, words
            assert "openapi" not in done.stderr, words


def test_both_are_in_the_help() -> None:
    """C3: the words are in the parser, and so in help, completion and reference."""
    parser = build()
    for words in (["keys", "list"], ["config", "check", "f.toml"]):
        assert parser.parse_args(words).command == words[0]
