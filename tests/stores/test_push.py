"""The listener of a process: when it connects, whom it rings, and what happens when the connection breaks."""

import asyncio
import gc
import os
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from leased.aio_clock import LoopClock
from leased.clocks import BlockingClock, step
from leased.stores import _push
from leased.stores._push import Listener, listener
from tests.until import until


class Wire:
    """A feed over a pair of sockets: the test is the server at the other end."""

    def __init__(self, *, confirms: bool = True) -> None:
        self.here, self.there = socket.socketpair()
        self.here.setblocking(False)
        self.confirms = confirms
        self.listening: list[str] = []
        self.left: list[str] = []
        self.closed = False
        self._confirmed: list[str] = []

    def fileno(self) -> int:
        return self.here.fileno()

    def listen(self, channels: list[str]) -> None:
        self.listening += channels
        if self.confirms:
            self.tell(*(f"+{channel}" for channel in channels))

    def unlisten(self, channels: list[str]) -> None:
        self.left += channels

    def read(self) -> tuple[list[str], list[str]]:
        try:
            data = self.here.recv(65536)
        except BlockingIOError:
            return [], []
        if not data:
            raise ConnectionResetError("the server has gone")
        words = data.decode().split()
        return [word[1:] for word in words if word[0] == "+"], [word for word in words if word[0] != "+"]

    def close(self) -> None:
        self.closed = True
        self.here.close()

    def tell(self, *words: str) -> None:
        """As the server: confirm (with a plus sign), or ring."""
        self.there.sendall("".join(f"{word}\n" for word in words).encode())


class Server:
    """Where feeds connect to."""

    def __init__(self) -> None:
        self.wires: list[Wire] = []
        self.down = False
        self.confirms = True

    def connect(self) -> Wire:
        if self.down:
            raise ConnectionRefusedError("nobody there")
        wire = Wire(confirms=self.confirms)
        self.wires.append(wire)
        return wire


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.down = True
    for wire in found.wires:
        wire.there.close()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_push, "LINGER", 0.05)


class Bell:
    """Counts how often it was rung."""

    def __init__(self) -> None:
        self.rung = 0

    def __call__(self) -> None:
        self.rung += 1


def watch(listening: Listener, channel: str, bell: Callable[[], None]) -> Callable[[], None]:
    return step(listening.watch(channel, bell, clock=BlockingClock()))


def test_one_connection_serves_all_watches_and_rings_the_right_bells(server: Server) -> None:
    """W3: one listening connection, however many keys and waiters; a bell hears its own channel only."""
    listening = Listener(server.connect, name="here")
    assert not server.wires
    first, second, other = Bell(), Bell(), Bell()
    watch(listening, "a", first)
    watch(listening, "a", second)
    watch(listening, "b", other)
    (wire,) = server.wires
    assert wire.listening == ["a", "b"]
    wire.tell("a")
    until(lambda: first.rung and second.rung)
    assert other.rung == 0


def test_on_return_the_server_has_confirmed(server: Server) -> None:
    """C084: whoever looks after that misses no release."""
    listening = Listener(server.connect, name="here")
    watch(listening, "a", Bell())
    assert listening._channels["a"].confirmed


def test_a_late_confirmation_does_not_hold_the_waiter_but_rings(server: Server) -> None:
    """W2, W3: a server that does not confirm costs a moment; what was missed meanwhile is looked for afterwards."""
    server.confirms = False
    listening = Listener(server.connect, name="here")
    bell = Bell()
    watch(listening, "a", bell)
    assert bell.rung == 0
    server.wires[0].tell("+a")
    until(lambda: bell.rung)


def test_where_no_connection_can_be_made_a_watch_returns_all_the_same(server: Server) -> None:
    """A watch that fails must not end the wait: polling goes on beneath."""
    server.down = True
    listening = Listener(server.connect, name="here")
    end = watch(listening, "a", Bell())
    end()
    bell = Bell()
    watch(listening, "a", bell)
    server.down = False
    until(lambda: server.wires)
    until(lambda: listening._channels["a"].confirmed)
    server.wires[0].tell("a")
    until(lambda: bell.rung)


def test_when_the_connection_breaks_every_bell_rings_and_it_listens_again(server: Server) -> None:
    """A release may have been missed while nobody listened: everybody looks once."""
    listening = Listener(server.connect, name="here")
    bells = {channel: Bell() for channel in ("a", "b")}
    for channel, bell in bells.items():
        watch(listening, channel, bell)
    server.wires[0].there.close()
    until(lambda: all(bell.rung for bell in bells.values()))
    until(lambda: len(server.wires) == 2 and sorted(server.wires[1].listening) == ["a", "b"])
    assert server.wires[0].closed
    before = bells["b"].rung
    server.wires[1].tell("b")
    until(lambda: bells["b"].rung > before)


def test_whatever_ends_the_connection_it_listens_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """W3: an error that nobody foresaw costs the push for a moment, not for the life of the process."""
    listening = Listener(server.connect, name="here")
    bell = Bell()
    watch(listening, "a", bell)

    def stumble(_: Wire) -> tuple[list[str], list[str]]:
        raise AttributeError("a driver's own mistake")

    with monkeypatch.context() as patch:
        patch.setattr(Wire, "read", stumble)
        server.wires[0].tell("a")
        until(lambda: server.wires[0].closed)
    until(lambda: len(server.wires) > 1 and server.wires[-1].listening == ["a"])
    before = bell.rung
    server.wires[-1].tell("a")
    until(lambda: bell.rung > before)


def test_an_ended_watch_rings_no_more(server: Server) -> None:
    """The answer of watch ends that watch, and no other of the same bell."""
    listening = Listener(server.connect, name="here")
    bell, other = Bell(), Bell()
    end = watch(listening, "a", bell)
    watch(listening, "a", bell)
    watch(listening, "a", other)
    end()
    end()
    server.wires[0].tell("a")
    until(lambda: other.rung)
    assert bell.rung == 1


@pytest.mark.usefixtures("short")
def test_what_nobody_watches_is_left_after_a_while_and_then_the_connection_goes(server: Server) -> None:
    """Nothing is kept for those who no longer wait, and the next watch begins anew."""
    listening = Listener(server.connect, name="here")
    end_a, end_b = watch(listening, "a", Bell()), watch(listening, "b", Bell())
    end_a()
    until(lambda: server.wires[0].left == ["a"])
    end_b()
    until(lambda: server.wires[0].closed)
    assert listening._thread is None
    bell = Bell()
    watch(listening, "a", bell)
    server.wires[1].tell("a")
    until(lambda: bell.rung)


def test_a_channel_watched_again_soon_is_not_asked_for_again(server: Server) -> None:
    """A waiter at the front comes and goes with every pass: that costs the server nothing."""
    listening = Listener(server.connect, name="here")
    for _ in range(5):
        watch(listening, "a", Bell())()
    assert server.wires[0].listening == ["a"]


def test_tasks_wait_for_the_confirmation_without_stopping_their_loop(server: Server) -> None:
    """The async face uses the same connection: its loop goes on while the server thinks."""
    server.confirms = False
    listening = Listener(server.connect, name="here")

    async def scene() -> None:
        signal = LoopClock().signal()
        watching = asyncio.ensure_future(listening.watch("a", signal.set, clock=LoopClock()))
        while not server.wires:
            await asyncio.sleep(0)
        server.wires[0].tell("+a")
        end = await watching
        server.wires[0].tell("a")
        assert await signal.wait(5.0)
        end()

    asyncio.run(scene())


def test_a_cancelled_watch_leaves_nothing(server: Server) -> None:
    """C001: whoever is cancelled while the server confirms listens no more."""
    server.confirms = False
    listening = Listener(server.connect, name="here")

    async def scene() -> None:
        watching = asyncio.ensure_future(listening.watch("a", Bell(), clock=LoopClock()))
        await asyncio.sleep(0)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    asyncio.run(scene())
    assert not listening._channels["a"].bells


def test_a_forked_child_starts_afresh(server: Server) -> None:
    """L13: the parent's connection is neither used nor closed in the child, whose watches get one of their own."""
    listening = Listener(server.connect, name="here")
    bell = Bell()
    watch(listening, "a", bell)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            watch(listening, "b", Bell())
            told = f"{len(server.wires)} {server.wires[0].closed} {sorted(listening._channels)}"
            os.write(writing, told.encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"2 False ['b']"
    os.close(reading)
    os.close(writing)
    server.wires[0].tell("a")
    until(lambda: bell.rung)


def test_stores_of_one_place_share_a_listener() -> None:
    """One listening connection per process and server, and none is kept for a place that nobody uses."""

    def never() -> Wire:
        raise AssertionError("nobody watches")

    one, two = listener("somewhere", never, name="here"), listener("somewhere", never, name="here")
    assert one is two
    assert listener("elsewhere", never, name="here") is not one
    del one, two
    gc.collect()
    assert "somewhere" not in _push._listeners


def test_where_no_thread_can_be_started_waiters_poll(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process at its limit of threads goes on without push."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    listening = Listener(server.connect, name="here")
    watch(listening, "a", Bell())()
    monkeypatch.undo()
    bell = Bell()
    watch(listening, "a", bell)
    server.wires[0].tell("a")
    until(lambda: bell.rung)
