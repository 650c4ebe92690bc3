"""A store whose driver is not installed says so when it is opened, with the command that installs it."""

import asyncio
import os
import subprocess
import sys

import pytest

import leased
import leased.aio

DRIVERS = [
    ("redis://localhost", "redis", "redis"),
    ("postgresql://localhost/app", "psycopg", "postgres"),
    ("mysql://localhost/app", "pymysql", "mysql"),
    ("dynamodb://eu-central-1/locks", "botocore", "dynamodb"),
    ("etcd://localhost", "httptools", "etcd"),
    ("nats://localhost", "nats", "nats"),
    ("https://locks.example.com", "httptools", "http"),
]


def forget(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make it look as if this package were not installed."""
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)

    class Nowhere:
        def find_spec(self, name: str, *_: object) -> None:
            if name.partition(".")[0] == package:
                raise ModuleNotFoundError(f"No module named {name!r}", name=package)

    monkeypatch.setattr(sys, "meta_path", [Nowhere(), *sys.meta_path])


@pytest.mark.parametrize(("url", "package", "extra"), DRIVERS)
def test_a_missing_driver_is_told_at_once(url: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S5: `connect` names the extra, before a server is looked for that a program cannot talk to anyway."""
    forget(package, monkeypatch)
    with pytest.raises(leased.StoreNotUsable, match=f"needs the package {package}, which is not installed") as raised:
        leased.connect(url)
    assert raised.value.hint == f"pip install 'leased[{extra}]'"


def test_asyncio_has_a_driver_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """S5: the one for MySQL on asyncio is another package of the same extra."""
    forget("asyncmy", monkeypatch)

    async def use() -> None:
        leased.aio.connect("mysql://localhost/app")

    with pytest.raises(leased.StoreNotUsable, match="needs the package asyncmy, which is not installed") as raised:
        asyncio.run(use())
    assert raised.value.hint == "pip install 'leased[mysql]'"


FIRST_CALL = """
import asyncio, sys
import leased, leased.aio

url, packages = sys.argv[1], sys.argv[3].split(",")

def loaded():
    return {name for name in sys.modules if name.partition(".")[0] in packages}

async def use(locks):
    before = loaded()
    try:
        found = locks.lock("job").try_acquire()
        await found if asyncio.iscoroutine(found) else found
    except leased.StoreUnavailable:
        return sorted(loaded() - before)

async def use_loop():
    return await use(leased.aio.connect(url, timeout=0.5))

if sys.argv[2] == "blocking":
    coroutine = use(leased.connect(url, timeout=0.5))
    try:
        coroutine.send(None)
    except StopIteration as done:
        print(done.value)
else:
    print(asyncio.run(use_loop()))
"""


@pytest.mark.parametrize("face", ["blocking", "asyncio"])
@pytest.mark.parametrize(
    ("url", "packages"),
    [
        ("redis://127.0.0.1:1", "redis,hiredis"),
        ("postgresql://127.0.0.1:1/app", "psycopg,psycopg_binary"),
        ("mysql://127.0.0.1:1/app", "pymysql,asyncmy"),
        ("dynamodb://127.0.0.1:1/locks?leased_region=eu-central-1", "botocore,httptools"),
        ("etcd://127.0.0.1:1", "httptools"),
        ("nats://127.0.0.1:1", "nats"),
        ("http://127.0.0.1:1", "httptools"),
    ],
)
def test_the_first_call_loads_no_driver(url: str, packages: str, face: str) -> None:
    """On a busy machine that takes a second, and a call has its time-out for the server."""
    credentials = {"AWS_ACCESS_KEY_ID": "AKIATESTS", "AWS_SECRET_ACCESS_KEY": "none"}
    done = subprocess.run(
        [sys.executable, "-c", FIRST_CALL, url, face, packages],
        env={**os.environ, **credentials},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
