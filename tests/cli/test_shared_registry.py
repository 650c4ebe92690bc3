"""`leased keys` and `leased config` on a registry that replicas share, and for one that is a file."""

import json
from pathlib import Path

import pytest

from leased.server.keys import read_key
from leased.server.registries import Place, open_registry
from leased.server.registry_file import read_registry
from tests.cli.driving import UNAVAILABLE, USAGE, Cli
from tests.server.access.registries import emptied

RULES = '[ruleSet]\nname = "own"\nresourceType = "lock"\n\n[rules.lock]\nacquire = "true"\n'


@pytest.mark.parametrize("kind", ["postgres", "valkey"])
def test_a_registry_on_a_server_is_used_like_a_file(kind: str, request: pytest.FixtureRequest, cli: Cli) -> None:
    """C3, SEC2: made by the first command, with its key file; another key file is refused, and nothing is changed."""
    url = emptied(request.getfixturevalue(f"{kind}_server"), kind)
    registry = ("--registry", url, "--registry-key", str(cli.path("registry.key")))
    made = cli.data("keys", "create", *registry, "--name", "ada")
    assert cli.path("registry.key").stat().st_mode & 0o777 == 0o600
    cli.environment |= {"LEASED_SERVE_REGISTRY": url, "LEASED_SERVE_REGISTRY_KEY": str(cli.path("registry.key"))}
    assert cli.data("keys", "list") == made["credential"]
    cli.path("rules.toml").write_text(RULES)
    assert cli.run("config", "push", str(cli.path("rules.toml"))).returncode == 0
    assert cli.run("config", "pull").stdout.startswith("[ruleSet]")
    assert cli.data("keys", "revoke", made["credential"]["id"])["state"] == "revoked"
    other = cli.run("keys", "create", "--name", "eve", "--registry-key", str(cli.path("other.key")))
    assert (other.returncode, other.stdout) == (UNAVAILABLE, "")
    assert "another key file" in other.stderr
    assert cli.data("keys", "list")["state"] == "revoked"


def test_a_registry_on_a_server_needs_a_key_file(cli: Cli) -> None:
    """11: and says so before it asks anybody, without the password in the URL."""
    done = cli.run("keys", "list", "--registry", "redis://:open-sesame@127.0.0.1:1/0")
    assert done.returncode == USAGE
    assert "--registry-key" in done.stderr
    assert "open-sesame" not in done.stderr + done.stdout


@pytest.mark.parametrize("keyed", [False, True])
def test_a_key_for_a_registry_file_is_printed_with_its_entry(cli: Cli, keyed: bool) -> None:
    """V5: the entry is what stands in the file; the key is no part of it, and nothing is kept."""
    more = ("--registry-key", str(cli.path("r.key"))) if keyed else ()
    wanted = ("--name", "ada", "--group", "ops:team", "--expires", "1d", "--print-hash", *more)
    made = json.loads(cli.run("keys", "create", *wanted, "--json").stdout)
    key, entry = made["key"], made["entry"]
    (id_,) = read_registry(entry).credentials
    assert key.startswith(f"lk_{id_}_")
    assert key.rpartition("_")[2] not in entry
    path = Path(cli.path("registry.toml"))
    path.write_text(entry)
    opened = open_registry(Place(str(path), str(cli.path("r.key")) if keyed else ""), begin=False)
    whole = read_key(key)
    assert whole is not None
    assert opened.hasher.matches(whole, read_registry(entry).credentials[id_].digest)
    refused = cli.run("keys", "create", "--name", "bob", "--registry", str(path), *more)
    assert refused.returncode == USAGE
    assert "only reads" in refused.stderr
