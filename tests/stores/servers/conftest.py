"""What met users of locks, on every server store and both faces: a test here is run on each of them."""

import asyncio
import inspect
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from leased import StoreUnavailable
from leased.policy import CLEANUP_BUDGET
from tests.faces.world import Async, Blocking, Face, done
from tests.servers.process import Server
from tests.servers.proxy import Proxy

KINDS = ("valkey", "postgres", "mariadb", "etcd", "nats", "dynalite", "service")
PATIENCE = 20.0


async def released(handle: Any) -> Any:
    """What the release says. One that spends its whole clean-up budget without an answer, as on a machine that is busy,
    is called again, as its error asks for; one that fails sooner has failed."""
    give_up_at = time.monotonic() + PATIENCE
    while True:
        began = time.monotonic()
        try:
            return await done(handle.release())
        except StoreUnavailable:
            ended = time.monotonic()
            if ended - began < CLEANUP_BUDGET / 2 or ended > give_up_at:
                raise


def named(url: str, namespace: str) -> str:
    """The URL of the store, in that namespace."""
    return f"{url}{'&' if '?' in url else '?'}leased_namespace={namespace}"


@dataclass
class Stand:
    """A server, a way to it that can be broken, and locks of one face; `elsewhere` are those of another program."""

    kind: str
    face: Face
    server: Server
    proxy: Proxy
    namespace: str = field(default_factory=lambda: secrets.token_hex(8))
    opened: list[Any] = field(default_factory=list)
    taken: list[Any] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The store, reached by the way that can be broken."""
        return named(self.proxy.url, self.namespace)

    @property
    def safe_url(self) -> str:
        """The same store, reached directly."""
        return named(self.server.url, self.namespace)

    def connect(self, url: str | None = None, **options: Any) -> Any:
        """Further locks on this store; they are closed with the test."""
        self.opened.append(self.face.module.connect(url or self.url, **options))
        return self.opened[-1]

    def elsewhere(self) -> Any:
        """The locks of a program whose connections nobody breaks."""
        return self.connect(self.safe_url)

    async def take(self, lock: Any) -> Any:
        """A handle, which is released with the test if that has not happened before."""
        self.taken.append(await done(lock.acquire()))
        return self.taken[-1]

    async def close(self) -> None:
        """Release what is left and close all locks, over ways that work again."""
        self.proxy.heal()
        for handle in self.taken:
            await released(handle)
        for locks in self.opened:
            await done(locks.close())


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of server."""
    return str(request.param)


@pytest.fixture
def server(request: pytest.FixtureRequest, kind: str) -> Server:
    """The shared server of that kind."""
    found: Server = request.getfixturevalue(f"{kind}_server")
    return found


@pytest.fixture(params=[Blocking(), Async()], ids=lambda face: face.name)
def stand(request: pytest.FixtureRequest, kind: str, server: Server, proxy_to: Callable[[Server], Proxy]) -> Stand:
    """Locks on that server, on each of the two faces."""
    return Stand(kind, request.param, server, proxy_to(server))


@pytest.fixture
def threads(kind: str, server: Server, proxy_to: Callable[[Server], Proxy]) -> Stand:
    """Locks on that server for blocking callers only: a loop that runs does not survive a fork."""
    return Stand(kind, Blocking(), server, proxy_to(server))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test in the face of its stand (without one: in a loop), and close the stand behind it."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    values = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    stands = [value for value in values.values() if isinstance(value, Stand)]

    async def test() -> None:
        try:
            await pyfuncitem.obj(**values)
        finally:
            for stand in stands:
                await stand.close()

    if stands:
        stands[0].face.run(test())
    else:
        asyncio.run(test())
    return True
