"""A service whose disk is full: holders lose nothing, nothing happens unrecorded, then it goes on by itself."""

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from tests.cli.driving import Cli
from tests.server.access.test_whole import send
from tests.server.test_serve import port_of, ready, serving

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="another process's limits can be set on Linux only")

TOKEN = "0123456789abcdef0123456789abcdef"
HELD = {"key": "held", "token": TOKEN}


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """The command, in a directory of its own."""
    found = Cli(tmp_path)
    yield found
    found.close()


@contextmanager
def full(process: Popen[str]) -> Iterator[None]:
    """While the block runs the process cannot write to any file, as on a disk without space."""
    soft, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("required", ["true", "false"])
def test_a_full_disk_under_the_audit_log(cli: Cli, required: str) -> None:
    """SEC14, A5: what must be recorded does not happen (a forced release only where that is required), denials stay
    denials, who holds a lock renews and releases it; once there is space all works again, without a restart."""
    registry = str(cli.path("registry.db"))
    made = ("keys", "create", "--registry", registry)
    owner = cli.data(*made, "--name", "olga", "--role", "owner")["key"]
    ada = cli.data(*made, "--name", "ada")["key"]
    options = ("--registry", registry, "--store", "memory:", "--log-requests")
    with serving(cli.directory, *options, LEASED_SERVE_AUDIT_REQUIRED=required) as (process, url):
        ready(url)

        def ask(name: str, body: Any = None, *, key: str = ada) -> Any:
            found = send(port_of(url), f"/v1/{name}", body, key=key)
            return found.status, found.json

        def soon(name: str, body: Any, *, key: str = ada) -> Any:
            """What is answered once callers are no longer told of the silence, which lasts a second."""
            give_up_at = time.monotonic() + 20.0
            while (found := ask(name, body, key=key))[0] == 503:
                assert time.monotonic() < give_up_at, found
                time.sleep(0.05)
            return found[1]

        assert ask("locks/acquire", {**HELD, "ttlMs": 60_000})[1]["acquired"] is True
        assert ask("locks/acquire", {"key": "other", "ttlMs": 60_000})[1]["acquired"] is True
        with full(process):
            assert ask("locks/renew", {**HELD, "ttlMs": 60_000, "renewal": 1})[1]["renewed"] is True
            assert ask("locks/acquire", {"key": "new", "ttlMs": 60_000})[1]["acquired"] is True
            status, body = ask("locks/force-release", {"key": "other"}, key=owner)
            if required == "true":
                assert (status, body["code"], body["applied"]) == (503, "LOCK_STORE_UNAVAILABLE", False)
                assert ask("locks/status?key=other")[1]["held"] is True
            else:
                assert (status, body["released"]) == (200, True)
            assert ask("locks?prefix=")[0] == 403
            assert ask("credentials", {"kind": "member", "name": "eve"}, key=owner)[0] == 503
            status, body = ask("locks/acquire", {"key": "bound", "ttlMs": 60_000, "requestId": "r-1"})
            assert (status, body["applied"]) == (503, False)
            assert ask("locks/status?key=bound")[1]["held"] is False
            assert ask("locks/release", HELD)[1]["released"] is True
        assert soon("locks/acquire", {"key": "bound", "ttlMs": 60_000, "requestId": "r-1"})["acquired"] is True
        assert soon("locks/force-release", {"key": "new"}, key=owner)["released"] is True
        assert [one["name"] for one in ask("credentials", key=owner)[1]["credentials"]].count("eve") == 0
        recorded = [(line["action"], line["target"]) for line in ask("audit", key=owner)[1]["lines"]]
        assert ("force-release", "new") in recorded
        assert ("force-release", "other") not in recorded
        process.terminate()
        said = process.communicate(timeout=30)[1]
    assert ("force-release of member:olga is not in the audit log" in said) is (required == "false")
