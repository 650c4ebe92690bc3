"""Hears of changed keys from a bucket: one consumer of its stream per process, in order, read by the thread of `_push`.

The driver's connection lives on the event loop of blocking callers, which wakes that thread through a pipe.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import deque
from collections.abc import Hashable, Mapping

from leased.clocks import now
from leased.stores import _nats_bucket as buckets
from leased.stores._nats_connection import Connection, Question, connect
from leased.stores._nats_thread import blocking_loop
from leased.stores._nats_url import Address

MARKERS = (b"KV-Operation: DEL", b"KV-Operation: PURGE", b"Nats-Marker-Reason: ")
"""What stands among the headers of a message that says that a key is gone."""

_SECONDS = 5.0
_BEAT = 4.0
_SILENCE = 3 * _BEAT
_MARKING = ("KV-Operation", "Nats-Marker-Reason")
_NANOSECOND = 1e-9

_told: dict[tuple[Hashable, str], bytes] = {}


def told(place: Hashable, subject: str) -> bytes | None:
    """What stands for a subject as its watch last told; `None` where nothing does, or nobody knows."""
    return _told.get((place, subject))


class NatsFeed:
    """See `leased.stores._push.Feed`. A channel is the subject of a key."""

    def __init__(self, address: Address) -> None:
        self._place = address.listening
        self._address = address
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        self._mutex = threading.Lock()
        self._open = True
        self._connection: Connection | None = None
        self._wanted: set[str] = set()
        self._confirmed: list[str] = []
        self._rung: deque[str] = deque()
        self._heard_at = now()
        self._next = 1
        self._broken = ""

    async def start(self) -> None:
        """On the loop: connect, and have the stream deliver what is written from now on."""
        blocking_loop.follow(await connect(self._address, seconds=_SECONDS, meet=self._consume))

    def fileno(self) -> int:
        """See `Feed`."""
        return self._reading

    def listen(self, channels: list[str]) -> None:
        """See `Feed`. Every key is told of all the time: to listen is to look for it."""
        for channel in channels:
            _told.pop((self._place, channel), None)
        self._wanted.update(channels)
        self._confirmed += channels
        self._wake()

    def unlisten(self, channels: list[str]) -> None:
        """See `Feed`. Called now and then, it raises where the stream was silent for longer than it ever is."""
        for channel in channels:
            self._wanted.discard(channel)
            _told.pop((self._place, channel), None)
        if now() - self._heard_at > _SILENCE:
            raise TimeoutError("the consumer of the bucket is silent")

    def read(self) -> tuple[list[str], list[str]]:
        """See `Feed`."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._reading, 4096)
        if self._broken or (self._connection is not None and self._connection.closed):
            raise ConnectionResetError(self._broken or "the connection broke")
        confirmed, self._confirmed = self._confirmed, []
        rung: dict[str, None] = {}
        while self._rung:
            rung[self._rung.popleft()] = None
        return confirmed, list(rung)

    def close(self) -> None:
        """See `Feed`. Of no key anything is known now."""
        for channel in self._wanted:
            _told.pop((self._place, channel), None)
        with self._mutex:
            self._open = False
            os.close(self._reading)
            os.close(self._writing)
        if self._connection is not None:
            blocking_loop.tell(self._connection.close)

    async def _consume(self, connection: Connection, seconds: float) -> None:
        address = self._address
        inbox = connection.new_subject()
        await connection.subscribe(inbox, self._take)
        config = {
            "deliver_subject": inbox,
            "deliver_policy": "new",
            "ack_policy": "none",
            "max_deliver": 1,
            "flow_control": True,
            "idle_heartbeat": int(_BEAT / _NANOSECOND),
            "inactive_threshold": int(_SILENCE / _NANOSECOND),
            "mem_storage": True,
            "num_replicas": 1,
        }
        payload = json.dumps({"stream_name": address.stream, "config": config}).encode()
        (answer,) = await connection.ask(
            [Question(f"$JS.API.CONSUMER.CREATE.{address.stream}", payload, harmless=True)], seconds=seconds
        )
        found = buckets.read_answer(answer, address)
        if buckets.error_code(found):
            raise buckets.refused(found["error"], address)
        connection.on_close = self._wake
        self._connection = connection

    def _take(self, subject: str, reply: str, headers: Mapping[str, str], data: bytes) -> None:
        """On the loop: one message of the consumer. One that is missing makes it begin anew, and rings every bell."""
        self._heard_at = now()
        status = headers.get("Status")
        if status is not None:
            self._control(status, reply, headers)
            return
        if _number(reply) != self._next:
            self._break(f"message {self._next} of the consumer is missing")
            return
        self._next += 1
        if subject in self._wanted:
            if any(name in headers for name in _MARKING):
                _told.pop((self._place, subject), None)
            else:
                _told[self._place, subject] = data
            self._rung.append(subject)
            self._wake()

    def _control(self, status: str, reply: str, headers: Mapping[str, str]) -> None:
        """A sign of life, or a question whether we keep up."""
        if status != "100":
            self._break(f"the consumer ended: {status} {headers.get('Description', '')}")
            return
        last = headers.get("Nats-Last-Consumer")
        if last is not None and int(last) >= self._next:
            self._break(f"message {self._next} of the consumer is missing")
        answer_to = reply or headers.get("Nats-Consumer-Stalled")
        if answer_to and self._connection is not None:
            self._connection.tell(answer_to)

    def _break(self, why: str) -> None:
        self._broken = self._broken or why
        self._wake()

    def _wake(self) -> None:
        with self._mutex:
            if self._open:
                with contextlib.suppress(BlockingIOError):  # full: then it is awake
                    os.write(self._writing, b"\0")


def _number(reply: str) -> int:
    """Which message of the consumer it is: $JS.ACK[.DOMAIN.ACCOUNT].STREAM.CONSUMER.DELIVERED.STREAM-NUMBER.NUMBER…"""
    fields = reply.split(".")
    try:
        return int(fields[6 if len(fields) == 9 else 8])
    except (IndexError, ValueError):
        return 0


def connect_feed(address: Address) -> NatsFeed:
    """A new watching connection, to any server that answers."""
    feed = NatsFeed(address)
    try:
        blocking_loop.run(feed.start)
    except BaseException:
        feed.close()
        raise
    return feed
