"""A server that cannot be reached, or answers otherwise: what to do is said with it."""

import asyncio
from collections.abc import Callable

import pytest

import leased
import leased.aio
from tests.servers.ports import Port
from tests.servers.process import Server

REFUSED = "nothing listens there: start the server, or check host and port of the URL"
NATS = "see that a server runs there; check hosts and ports of the URL"
HOST = "check the host in the URL"


def problems(url: str) -> list[leased.StoreUnavailable]:
    """What is raised at this URL, on both faces."""
    with leased.connect(url) as locks, pytest.raises(leased.StoreUnavailable) as blocking:
        locks.lock("job").acquire()

    async def use() -> None:
        async with leased.aio.connect(url) as locks:
            await locks.lock("job").acquire()

    with pytest.raises(leased.StoreUnavailable) as awaited:
        asyncio.run(use())
    return [blocking.value, awaited.value]


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("redis://{}", REFUSED),
        ("redis+cluster://{}", REFUSED),
        ("redis+sentinel://{}/service", REFUSED),
        ("etcd://{}", REFUSED),
        ("http://{}", REFUSED),
        ("mysql://{}/leased", REFUSED),
        ("nats://{}", NATS),
    ],
)
def test_a_refused_connection_says_what_to_do(url: str, hint: str) -> None:
    """The next step, on both faces."""
    port = Port()
    try:
        assert [problem.hint for problem in problems(url.format(f"127.0.0.1:{port.number}"))] == [hint, hint]
    finally:
        port.release()


@pytest.mark.parametrize(
    "url", ["redis://{}", "redis+cluster://{}", "etcd://{}", "http://{}?leased_insecure=1", "mysql://{}/leased"]
)
def test_a_host_without_an_address_is_named(url: str) -> None:
    """A name that leads nowhere is most often misspelled."""
    assert [problem.hint for problem in problems(url.format("no-such-host.invalid"))] == [HOST, HOST]


@pytest.mark.parametrize("host", ["a..b", f"{'x' * 64}.example", ".example"])
@pytest.mark.parametrize(
    "url",
    [
        "redis://{}",
        "rediss://{}",
        "redis+cluster://{}",
        "redis+sentinel://{}/service",
        "postgresql://{}/leased",
        "mysql://{}/leased",
        "nats://{}",
        "etcd://{}",
        "http://{}?leased_insecure=1",
    ],
)
def test_a_host_that_is_no_name_is_named(url: str, host: str) -> None:
    """What no name server can know is refused, or leads nowhere: never a raw error of Python's own names."""
    url = url.format(host)
    for face in ("blocking", "async"):
        with pytest.raises(leased.LeasedError) as caught:
            asyncio.run(status(url)) if face == "async" else leased.connect(url).status("job")
        assert host in str(caught.value)
        assert url.startswith(("postgresql", "mysql", "nats")) or caught.value.hint


async def status(url: str) -> None:
    """Ask for a key there."""
    async with leased.aio.connect(url) as locks:
        await locks.status("job")


def test_a_password_that_nobody_asked_for(private_valkey: Callable[..., Server]) -> None:
    """A server without one may be another server than is meant."""
    url = private_valkey().url.replace("://", "://:s3cr3t@")
    for problem in problems(url):
        assert isinstance(problem, leased.StoreNotUsable)
        assert "no password set" in problem.message
        assert "leave the password out" in (problem.hint or "")
        assert "s3cr3t" not in str(problem)
