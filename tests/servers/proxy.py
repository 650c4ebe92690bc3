"""A TCP proxy in front of a server that breaks connections when told to. It never looks into what passes, but to count.

All work is done by one thread; what callers say is done by the time their call returns. A *chunk* is what one `recv`
gave: over loopback, what a driver sent with one `send`. A *turn* begins where a client speaks after its server did, or
first: where every request is answered, turns are round trips.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeVar
from urllib.parse import urlsplit

from tests.servers.ports import HOST, Port

Way = Literal["up", "down", "both"]
"""Up is from the clients to the server, down is back."""
Ending = Literal["reset", "close"]
"""A reset (RST) loses what is under way; a close (FIN) comes after it."""
Lost = Literal["request", "reply"]

T = TypeVar("T")

CHUNK = 262_144
QUEUED = 4 * CHUNK
DROP = 16
"""Bytes of one drop, where a proxy drips."""
ORDER_WITHIN = 30.0


class Listening(Protocol):
    """What a proxy can stand in front of: a server, or another proxy."""

    @property
    def host(self) -> str:
        """The address it listens on."""
        ...

    @property
    def port(self) -> int:
        """The port it listens on."""
        ...

    @property
    def url(self) -> str:
        """How clients name it."""
        ...


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a proxy has carried since it started; `held` are bytes it keeps back now, `lost` what it threw away."""

    connections: int
    open: int
    turns: int
    chunks_up: int
    chunks_down: int
    bytes_up: int
    bytes_down: int
    held_up: int
    held_down: int
    lost_up: int
    lost_down: int
    tripped: int


@dataclass(frozen=True, slots=True)
class _Chunk:
    due: float
    data: bytes
    loses_reply: bool


class _Flow:
    """One direction of one connection."""

    def __init__(self, way: Literal["up", "down"], source: socket.socket, *, target: socket.socket) -> None:
        self.way = way
        self.source = source
        self.target = target
        self.queue: deque[_Chunk] = deque()
        self.ended = False  # the source has said its last
        self.told = False  # and the target knows
        self.lossy = False

    @property
    def queued(self) -> int:
        return sum(len(chunk.data) for chunk in self.queue)


class _Pair:
    """One connection: the client's socket, ours to the server, and the two flows between them."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.up = _Flow("up", client, target=server)
        self.down = _Flow("down", server, target=client)
        self.loses_reply = False
        self.spoke = ""  # who did last


@dataclass(slots=True)
class _Trip:
    lost: Lost
    left: int
    containing: bytes


class Proxy:
    """Carries connections to one server, and breaks them as told. A `with` statement closes it at its end."""

    def __init__(self, server: Listening) -> None:
        """In front of this server; it may be stopped and started meanwhile."""
        self._server = server
        self._reserved = Port()
        self.host: str = HOST
        self.port: int = self._reserved.number
        self._listener: socket.socket | None = None
        self._pairs: list[_Pair] = []
        self._held: set[str] = set()
        self._lossy: set[str] = set()
        self._delay = {"up": 0.0, "down": 0.0}
        self._drip = 0.0
        self._trips: list[_Trip] = []
        self._counts = dict.fromkeys(Traffic.__dataclass_fields__, 0)
        self._changed = threading.Condition()
        self._orders: deque[Callable[[], None]] = deque()
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._closed = False
        self._listen()
        self._thread = threading.Thread(target=self._work, name=f"proxy-{self.port}", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The URL of the server by way of this proxy."""
        parts = urlsplit(self._server.url)
        login, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{login}{at}{self.host}:{self.port}").geturl()

    @property
    def traffic(self) -> Traffic:
        """What it has carried until now."""
        with self._changed:
            return self._snapshot()

    def wait_until(self, true_of: Callable[[Traffic], bool], *, within: float = 10.0) -> Traffic:
        """Return as soon as the traffic is as asked for; `AssertionError` says how it was when the time was over."""
        with self._changed:
            met = self._changed.wait_for(lambda: true_of(self._snapshot()), within)
            found = self._snapshot()
        assert met, f"within {within} s the traffic did not become what was waited for: {found}"
        return found

    def heal(self) -> None:
        """Carry everything again: accept, deliver what was held, forget delays and trips.

        Connections from which a black hole took something are reset, since what follows would make no sense.
        """

        def order() -> None:
            self._held.clear()
            self._lossy.clear()
            self._delay = {"up": 0.0, "down": 0.0}
            self._drip = 0.0
            self._trips.clear()
            for pair in [pair for pair in self._pairs if pair.up.lossy or pair.down.lossy]:
                self._drop(pair, "reset")
            self._listen()

        self._do(order)

    def delay(self, seconds: float, way: Way = "both") -> None:
        """Deliver every chunk that arrives from now on this much later."""

        def order() -> None:
            for one in _ways(way):
                self._delay[one] = seconds

        self._do(order)

    def drip(self, seconds: float) -> None:
        """Deliver what arrives from now on, both ways, in drops of `DROP` bytes, each this much after the last."""

        def order() -> None:
            self._drip = seconds

        self._do(order)

    def hold(self, way: Way = "both") -> None:
        """Keep everything back, in order, until `heal`; connections stay open and new ones are accepted."""
        self._do(lambda: self._held.update(_ways(way)))

    def black_hole(self, way: Way = "both") -> None:
        """Throw everything away until `heal`; connections stay open and new ones are accepted."""
        self._do(lambda: self._lossy.update(_ways(way)))

    def refuse(self) -> None:
        """Let new connections be refused until `heal`; those that are open stay."""

        def order() -> None:
            if self._listener is not None:
                self._listener.close()
                self._listener = None

        self._do(order)

    def cut(self, ending: Ending = "reset") -> int:
        """End all connections now, on both sides; what is held is lost. Gives how many there were."""

        def order() -> int:
            self._accept()  # a connection that a client already has is among those
            for pair in (found := [*self._pairs]):
                self._drop(pair, ending)
            return len(found)

        return self._do(order)

    def lose_request(self, count: int = 1, *, containing: bytes = b"") -> None:
        """Reset the connection right before its next chunk goes up: the server never sees it.

        With a count, it is the count-th chunk from now on, over all connections, of those that contain the bytes.
        """
        self._do(lambda: self._trips.append(_Trip("request", count, containing)))

    def lose_reply(self, count: int = 1, *, containing: bytes = b"") -> None:
        """Let the chunk through, wait until the server answers, and reset the connection instead of delivering that.

        Counted as for `lose_request`. `Traffic.tripped` counts how many of both have happened.
        """
        self._do(lambda: self._trips.append(_Trip("reply", count, containing)))

    def close(self) -> None:
        """End all connections and stop listening."""
        if not self._closed:

            def order() -> None:
                self._closed = True
                for pair in [*self._pairs]:
                    self._drop(pair, "reset")
                if self._listener is not None:
                    self._listener.close()

            self._do(order)
            self._thread.join()
            self._wake.close()
            self._woken.close()
            self._reserved.release()

    def __enter__(self) -> Proxy:
        """The proxy itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _do(self, order: Callable[[], T]) -> T:
        """Have the thread do it between two of its rounds, and give what came of it."""
        results: list[T] = []
        with self._changed:
            self._orders.append(lambda: results.append(order()))
            self._nudge()
            if not self._changed.wait_for(lambda: bool(results), ORDER_WITHIN):
                raise TimeoutError("the proxy is stuck")
        return results[0]

    def _nudge(self) -> None:
        try:
            self._wake.send(b"!")
        except BlockingIOError:
            return  # it has been told often enough

    def _snapshot(self) -> Traffic:
        counts = self._counts | {
            "open": len(self._pairs),
            "held_up": sum(pair.up.queued for pair in self._pairs),
            "held_down": sum(pair.down.queued for pair in self._pairs),
        }
        return Traffic(**counts)

    def _work(self) -> None:
        while not self._closed:
            events, flows, timeout = self._interests()
            ready = {found for found, _ in events.poll(timeout)}
            with self._changed:
                self._round(ready, flows)
                self._changed.notify_all()

    def _interests(self) -> tuple[select.poll, list[tuple[_Pair, _Flow]], float | None]:
        """What to wait for, which flows there are, and how many milliseconds until something delayed is due."""
        wanted = {self._woken.fileno(): select.POLLIN}
        if self._listener is not None:
            wanted[self._listener.fileno()] = select.POLLIN
        due: list[float] = []
        flows = [(pair, flow) for pair in self._pairs for flow in (pair.up, pair.down)]
        now = time.monotonic()
        for _, flow in flows:
            if not flow.ended and flow.queued < QUEUED:
                wanted[flow.source.fileno()] = wanted.get(flow.source.fileno(), 0) | select.POLLIN
            if flow.queue and flow.way not in self._held:
                if flow.queue[0].due > now:
                    due.append(flow.queue[0].due)
                else:
                    wanted[flow.target.fileno()] = wanted.get(flow.target.fileno(), 0) | select.POLLOUT
        events = select.poll()
        for descriptor, mask in wanted.items():
            events.register(descriptor, mask)
        return events, flows, max(0.0, min(due) - now) * 1000 + 1 if due else None

    def _round(self, ready: set[int], flows: list[tuple[_Pair, _Flow]]) -> None:
        if self._woken.fileno() in ready:
            self._woken.recv(4096)
        while self._orders:
            self._orders.popleft()()
        if self._listener is not None and self._listener.fileno() in ready:
            self._accept()
        for pair, flow in flows:
            if pair in self._pairs:
                self._carry(pair, flow, readable=flow.source.fileno() in ready)

    def _carry(self, pair: _Pair, flow: _Flow, *, readable: bool) -> None:
        try:
            if readable and not flow.ended and flow.queued < QUEUED:
                self._take(pair, flow)
            if pair in self._pairs and flow.way not in self._held:
                self._give(pair, flow)
        except BlockingIOError:
            return
        except OSError:
            self._drop(pair, "reset")

    def _take(self, pair: _Pair, flow: _Flow) -> None:
        data = flow.source.recv(CHUNK)
        lost: Lost | None = None
        if not data:
            flow.ended = True
            return
        self._counts["turns"] += flow.way == "up" != pair.spoke
        pair.spoke = flow.way
        if flow.way == "down" and pair.loses_reply:
            lost = "request"  # as far as this chunk goes
        elif flow.way in self._lossy:
            flow.lossy = True
            self._counts[f"lost_{flow.way}"] += len(data)
            return
        elif flow.way == "up":
            lost = self._trip(data)
        if lost == "request":
            self._counts[f"lost_{flow.way}"] += len(data)
            self._counts["tripped"] += 1
            self._drop(pair, "reset")
        else:
            self._queue(flow, data, loses_reply=lost == "reply")

    def _queue(self, flow: _Flow, data: bytes, *, loses_reply: bool) -> None:
        due = time.monotonic() + self._delay[flow.way]
        if self._drip:
            due = max([due, *(chunk.due for chunk in flow.queue)])
            drops = [data[start : start + DROP] for start in range(0, len(data), DROP)]
            dripping = [_Chunk(due + self._drip * number, drop, loses_reply=False) for number, drop in enumerate(drops)]
            flow.queue.extend(dripping[:-1])
            due, data = dripping[-1].due, dripping[-1].data
        flow.queue.append(_Chunk(due, data, loses_reply=loses_reply))

    def _trip(self, data: bytes) -> Lost | None:
        sprung: list[Lost] = []
        for trip in [trip for trip in self._trips if trip.containing in data]:
            trip.left -= 1
            if not trip.left:
                self._trips.remove(trip)
                sprung.append(trip.lost)
        return max(sprung, default=None)  # to lose the request is more than to lose the reply

    def _give(self, pair: _Pair, flow: _Flow) -> None:
        while flow.queue and flow.queue[0].due <= time.monotonic():
            chunk = flow.queue[0]
            sent = flow.target.send(chunk.data)
            self._counts[f"bytes_{flow.way}"] += sent
            if sent < len(chunk.data):
                flow.queue[0] = replace(chunk, data=chunk.data[sent:])
                return
            flow.queue.popleft()
            self._counts[f"chunks_{flow.way}"] += 1
            pair.loses_reply = pair.loses_reply or chunk.loses_reply
        if flow.ended and not flow.queue and not flow.told and flow.way not in self._lossy:
            flow.target.shutdown(socket.SHUT_WR)
            flow.told = True
        if pair.up.told and pair.down.told:
            self._drop(pair, "close")

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.socket()
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind((self.host, self.port))
            self._listener.listen(512)
            self._listener.setblocking(False)

    def _accept(self) -> None:
        while self._listener is not None:
            try:
                client, _ = self._listener.accept()
            except BlockingIOError:
                return
            server = socket.socket()
            for end in (client, server):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server.connect_ex((self._server.host, self._server.port))  # what comes of it shows when something is sent
            self._pairs.append(_Pair(client, server))
            self._counts["connections"] += 1

    def _drop(self, pair: _Pair, ending: Ending) -> None:
        self._pairs.remove(pair)
        for end in (pair.client, pair.server):
            if ending == "reset":
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()


def _ways(way: Way) -> tuple[Literal["up", "down"], ...]:
    return ("up", "down") if way == "both" else (way,)
