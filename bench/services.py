"""Lock services of a row: each is a process of its own, starts with it and ends with it. Nothing here is measured."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.contender import ROOT, clean_environment, one_cpu
from bench.servers import bound

_ADDRESS = re.compile(r"https?://127\.0\.0\.1:[0-9]+")
_PATIENCE = 20.0
_LEASED = (sys.executable, "-m", "leased")
_NOTHING_MORE: Mapping[str, str] = {}
LIMITS = {"LEASED_SERVE_PROJECT_REQUESTS": "1000000000", "LEASED_SERVE_MEMBER_ATTEMPTS": "1000000000"}
"""In the environment of a service: budgets that never run out."""


@contextmanager
def lock_service(store: str, *, cpu: int | None = None) -> Iterator[str]:
    """The URL of `leased serve` over that store, with nobody asked for credentials."""
    with _served([*_LEASED, "serve", "--port", "0", "--url", store], cpu=cpu) as url:
        yield url


@contextmanager
def guarded_service(store: str, *, directory: Path, cpu: int | None = None) -> Iterator[tuple[str, str]]:
    """The URL of one that asks for credentials, and an API key of a member, whose budgets count and never run out."""
    registry, key = member_key(directory)
    command = [*_LEASED, "serve", "--port", "0", "--url", store, "--registry", registry]
    with _served(command, cpu=cpu, more=LIMITS) as url:
        yield url, key


def member_key(directory: Path) -> tuple[str, str]:
    """A new registry in that directory, and the API key of a member in it."""
    registry = str(directory / "registry.db")
    create = [*_LEASED, "keys", "create", "--registry", registry, "--kind", "member", "--name", "bench", "--json"]
    made = subprocess.run(create, cwd=ROOT, env=clean_environment(), capture_output=True, check=True, text=True)
    return registry, json.loads(made.stdout)["key"]


@contextmanager
def plain_asgi(*, cpu: int | None = None) -> Iterator[str]:
    """The URL of a service that answers the same to everything."""
    with _served([sys.executable, "-m", "bench.plain_asgi"], cpu=cpu) as url:
        yield url


@contextmanager
def _served(command: list[str], *, cpu: int | None, more: Mapping[str, str] = _NOTHING_MORE) -> Iterator[str]:
    environment = {**clean_environment(), **more}
    with bound(cpu):
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    try:
        yield _address(process)
    finally:
        process.terminate()
        process.communicate(timeout=_PATIENCE)


def _address(process: subprocess.Popen[str]) -> str:
    """The URL that it says it serves."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        found = _ADDRESS.search(line)
        if found is not None:
            return found[0]
    raise RuntimeError(f"{process.args!r} ended with status {process.wait()}: {said}")


def other_cpu() -> int | None:
    """A CPU besides the one of the service, where there is one."""
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    others = [cpu for cpu in cpus if cpu != one_cpu()]
    return others[0] if others else None
