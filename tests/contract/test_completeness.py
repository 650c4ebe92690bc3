"""No server store drops out of the contract suite unnoticed, on no face: what is collected is what has to be."""

import functools
import subprocess
import sys
from pathlib import Path

import pytest

from leased.testing.contract import CHECKS

ROOT = Path(__file__).parents[2]
FILES = (
    "redis/test_contract.py",
    "redis/test_cluster.py",
    "redis/test_sentinel.py",
    "postgres",
    "mysql",
    "http/test_contract.py",
)

# The words that the ids of a test have in common; each must be there once for every check of the contract.
WHOLE_CONTRACT = [
    ("redis/test_contract.py::test_contract[", "valkey-", "blocking"),
    ("redis/test_contract.py::test_contract[", "valkey-", "async"),
    ("redis/test_contract.py::test_contract[", "redis-", "blocking"),
    ("redis/test_contract.py::test_contract[", "redis-", "async"),
    ("redis/test_contract.py::test_contract_when_joined[", "blocking"),
    ("redis/test_contract.py::test_contract_when_joined[", "async"),
    ("redis/test_cluster.py::test_contract[", "blocking"),
    ("redis/test_cluster.py::test_contract[", "async"),
    ("redis/test_sentinel.py::test_contract[", "blocking"),
    ("redis/test_sentinel.py::test_contract[", "async"),
    ("postgres/test_contract.py::test_contract[", "blocking"),
    ("postgres/test_contract.py::test_contract[", "async"),
    ("postgres/test_contract.py::test_contract_when_calls_are_joined[", "blocking"),
    ("postgres/test_contract.py::test_contract_when_calls_are_joined[", "async"),
    ("postgres/test_contract.py::test_contract_on_another_version[",),
    ("postgres/test_contract.py::test_contract_through_a_pooler[",),
    ("mysql/test_contract.py::test_contract[", "plain-", "blocking"),
    ("mysql/test_contract.py::test_contract[", "plain-", "async"),
    ("mysql/test_contract.py::test_contract[", "joined-", "blocking"),
    ("mysql/test_contract.py::test_contract[", "joined-", "async"),
    *(
        ("http/test_contract.py::test_contract[", f"{store}-", face)
        for store in ("memory", "sqlite", "redis", "postgres")
        for face in ("blocking", "async")
    ),
    ("http/test_contract.py::test_contract_when_joined[", "blocking"),
    ("http/test_contract.py::test_contract_when_joined[", "async"),
]
# Histories compared with the model, and counts under a lock: at least one of each.
AT_LEAST_ONE = [
    *((f"{store}/{name}", face) for store, name in (
        ("redis", "test_contract.py::test_redis_agrees_with_the_model["),
        ("postgres", "test_contract.py::test_it_agrees_with_the_model["),
        ("mysql", "test_agreement.py::test_"),
        ("http", "test_contract.py::test_it_agrees_with_the_model["),
    ) for face in ("blocking", "async")),
    *((f"test_counter.py::test_{who}", store) for store in ("valkey", "postgres", "mariadb", "service") for who in (
        "threads_lose_no_count[", "tasks_lose_no_count[", "threads_and_tasks_exclude_each_other[",
    )),
]  # fmt: skip


@functools.cache
def collected() -> tuple[str, ...]:
    """The ids of all tests of those files, as a run of the whole suite collects them."""
    files = [f"tests/stores/{name}" for name in FILES] + ["tests/contract/test_counter.py"]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:randomly", "-p", "no:xdist", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return tuple(line for line in done.stdout.splitlines() if "::" in line)


def found(words: tuple[str, ...]) -> int:
    """How many ids have all of these words."""
    return sum(all(word in name for word in words) for name in collected())


@pytest.mark.parametrize("words", WHOLE_CONTRACT, ids=" ".join)
def test_every_server_store_and_face_keeps_the_whole_contract(words: tuple[str, ...]) -> None:
    """Each check of the contract is run on this store, on this face."""
    assert found(words) == len(CHECKS)


@pytest.mark.parametrize("words", AT_LEAST_ONE, ids=" ".join)
def test_every_server_store_is_compared_and_counted_on(words: tuple[str, ...]) -> None:
    """Histories are compared with the model on this store and face, and clients count under its locks."""
    assert found(words) >= 1
