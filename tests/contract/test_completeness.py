"""No server store drops out of the contract suite unnoticed, on no face: what is collected is what has to be."""

import subprocess
import sys
from pathlib import Path

from leased.testing.contract import CHECKS

ROOT = Path(__file__).parents[2]
FILES = (
    "redis/test_contract.py",
    "redis/test_cluster.py",
    "redis/test_sentinel.py",
    "postgres",
    "mysql",
    "dynamodb/test_contract.py",
    "etcd/test_contract.py",
    "nats/test_contract.py",
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
    ("dynamodb/test_contract.py::test_contract[", "plain-", "blocking"),
    ("dynamodb/test_contract.py::test_contract[", "plain-", "async"),
    ("dynamodb/test_contract.py::test_contract[", "joined-", "blocking"),
    ("dynamodb/test_contract.py::test_contract[", "joined-", "async"),
    ("dynamodb/test_contract.py::test_contract_on_another_server[",),
    ("etcd/test_contract.py::test_contract[", "blocking"),
    ("etcd/test_contract.py::test_contract[", "async"),
    ("etcd/test_contract.py::test_contract_when_joined[", "blocking"),
    ("etcd/test_contract.py::test_contract_when_joined[", "async"),
    ("nats/test_contract.py::test_contract[", "blocking"),
    ("nats/test_contract.py::test_contract[", "async"),
    ("nats/test_contract.py::test_contract_when_joined[", "blocking"),
    ("nats/test_contract.py::test_contract_when_joined[", "async"),
    *(
        ("http/test_contract.py::test_contract[", f"{store}-", face)
        for store in ("memory", "sqlite", "redis", "postgres")
        for face in ("blocking", "async")
    ),
    ("http/test_contract.py::test_contract_when_joined[", "blocking"),
    ("http/test_contract.py::test_contract_when_joined[", "async"),
]
# Histories compared with the model, and counts under a lock: at least one of each.
COUNTED = ("valkey", "postgres", "mariadb", "etcd", "nats", "dynalite", "service")

AT_LEAST_ONE = [
    *((f"{store}/{name}", face) for store, name in (
        ("redis", "test_contract.py::test_redis_agrees_with_the_model["),
        ("postgres", "test_contract.py::test_it_agrees_with_the_model["),
        ("mysql", "test_agreement.py::test_"),
        ("dynamodb", "test_contract.py::test_it_agrees_with_the_model["),
        ("etcd", "test_contract.py::test_it_agrees_with_the_model["),
        ("nats", "test_contract.py::test_it_agrees_with_the_model["),
        ("http", "test_contract.py::test_it_agrees_with_the_model["),
    ) for face in ("blocking", "async")),
    *((f"test_counter.py::test_{who}", store) for store in COUNTED for who in (
        "threads_lose_no_count[", "tasks_lose_no_count[", "threads_and_tasks_exclude_each_other[",
    )),
]  # fmt: skip


def collected() -> tuple[str, ...]:
    """The ids of all tests of those files, as a run of the whole suite collects them."""
    files = [f"tests/stores/{name}" for name in FILES] + ["tests/contract/test_counter.py"]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:randomly", "-p", "no:xdist", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return tuple(line for line in done.stdout.splitlines() if "::" in line)


def test_every_server_store_and_face_is_there() -> None:
    """On each store, on each face, every check of the contract is run, histories are compared with the model, and
    clients count under its locks. One test, for it collects all of those files."""
    names = collected()
    found = {words: sum(all(word in name for word in words) for name in names) for words in WHOLE_CONTRACT}
    assert {words: count for words, count in found.items() if count != len(CHECKS)} == {}
    missing = [words for words in AT_LEAST_ONE if not any(all(word in name for word in words) for name in names)]
    assert missing == []
