"""Holding and waiting occupy no connection: a thousand of each go through a pool of four, on every server store."""

import asyncio
import secrets
import threading
from collections.abc import Callable
from contextlib import ExitStack

import pytest

import leased
import leased.aio
from tests.servers.process import Server
from tests.servers.proxy import Proxy

HOLDERS = 1_000
WAITERS = 1_000
POOL = 4
LISTENING = 1


@pytest.fixture(params=["valkey", "postgres", "mariadb", "service"])
def proxy(request: pytest.FixtureRequest, proxy_to: Callable[[Server], Proxy]) -> Proxy:
    """A way to a server on which connections are counted."""
    return proxy_to(request.getfixturevalue(f"{request.param}_server"))


@pytest.fixture
def url(proxy: Proxy) -> str:
    """A store of this test's own, with the pool it has by default."""
    return f"{proxy.url}?leased_namespace={secrets.token_hex(8)}&leased_pool={POOL}"


def test_a_thousand_tasks_hold_and_a_thousand_wait(url: str, proxy: Proxy) -> None:
    """S4, C115, W4: tasks hold 1,000 keys, renewed, while 1,000 others wait for one key and get it in their order."""

    async def scene() -> None:
        async with leased.aio.connect(url) as locks:
            handles = await asyncio.gather(
                *(locks.lock(f"held:{number}", ttl=30, renew=True).acquire() for number in range(HOLDERS))
            )
            served: list[int] = []

            async def wait_in_line(number: int) -> None:
                async with locks.lock("wanted", wait=120):
                    served.append(number)

            first = await locks.lock("wanted").acquire()
            waiting = [asyncio.ensure_future(wait_in_line(number)) for number in range(WAITERS)]
            await asyncio.sleep(0)
            assert all([await handle.renew() for handle in handles[:: HOLDERS // 20]])
            await first.release()
            await asyncio.gather(*waiting)
            assert served == list(range(WAITERS))
            assert not any(handle.lost for handle in handles)
            for at in range(0, HOLDERS, 100):  # all at once would ask more of a slow disk than a release waits for
                assert all(await asyncio.gather(*(handle.release() for handle in handles[at : at + 100])))

    asyncio.run(scene())
    assert proxy.traffic.connections <= POOL + LISTENING


def test_a_thousand_threads_wait(url: str, proxy: Proxy) -> None:
    """S4, C115, W4: one thread holds 1,000 keys, and 1,000 threads wait for one more; each of them gets it."""
    with ExitStack() as ending, leased.connect(url) as locks:
        handles = [locks.lock(f"held:{number}", ttl=60).acquire() for number in range(HOLDERS)]
        ending.callback(lambda: [handle.release() for handle in handles])
        served: list[int] = []

        def wait_in_line(number: int) -> None:
            with locks.lock("wanted", wait=120):
                served.append(number)

        first = locks.lock("wanted").acquire()
        threads = [threading.Thread(target=wait_in_line, args=(number,)) for number in range(WAITERS)]
        for thread in threads:
            thread.start()
        first.release()
        for thread in threads:
            thread.join(120)
        assert sorted(served) == list(range(WAITERS))
        assert not any(handle.lost for handle in handles)
        for handle in handles:
            assert handle.release()
        ending.pop_all()
    assert proxy.traffic.connections <= POOL + LISTENING
