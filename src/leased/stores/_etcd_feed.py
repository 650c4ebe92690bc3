"""Hears of changed keys from etcd: the watching connection of a process, read by the thread of `_push`.

It is one request to `/v3/watch` that goes on: each key that is to be watched is another part of its body, and what
happens comes back line by line.
"""

from __future__ import annotations

import json
import random
from base64 import b64decode, b64encode
from collections.abc import Hashable
from typing import Any

from leased.clocks import step
from leased.errors import StoreUnavailable
from leased.stores._etcd_answers import Refused, cut_off, understand
from leased.stores._etcd_link import Pass
from leased.stores._etcd_url import Address
from leased.stores._http_connection import BlockingConnection, Cut, Trust, connect_blocking, trust_of
from leased.stores._http_url import Address as Member
from leased.stores._http_wire import NotHttp, Reading, part
from leased.stores._senseless import SENSELESS

_SECONDS = 5.0
_chance = random.SystemRandom()  # our thread must not disturb what a caller has seeded

_told: dict[tuple[Hashable, str], bytes] = {}
"""What was last heard of a key on a watch that is in force, by place and key; nothing where it was removed."""


def told(place: Hashable, channel: str) -> bytes | None:
    """What stands for a key as its watch last told; `None` where nothing does, or nobody knows."""
    return _told.get((place, channel))


class EtcdFeed:
    """See `leased.stores._push.Feed`. A channel is the name of a key."""

    def __init__(self, connection: BlockingConnection, place: Hashable) -> None:
        self._connection = connection
        self._place = place
        self._reading = Reading()
        self._rest = b""
        self._numbers: dict[str, int] = {}
        self._channels: dict[int, str] = {}
        self._last = 0
        self._silent = False

    def fileno(self) -> int:
        """See `Feed`."""
        return self._connection.fileno()

    def listen(self, channels: list[str]) -> None:
        """See `Feed`."""
        for channel in channels:
            _told.pop((self._place, channel), None)
            self._create(channel)

    def unlisten(self, channels: list[str]) -> None:
        """See `Feed`. Called now and then, it asks for a sign of life, too, and raises where the last did not come."""
        for channel in channels:
            number = self._numbers.pop(channel, None)
            _told.pop((self._place, channel), None)
            if number is not None:
                del self._channels[number]
                self._say({"cancel_request": {"watch_id": str(number)}})
        if self._silent:
            raise TimeoutError("etcd has not answered the watching connection")
        self._silent = True
        self._say({"progress_request": {}})

    def read(self) -> tuple[list[str], list[str]]:
        """See `Feed`."""
        try:
            self._connection.read(self._reading)
        except NotHttp as error:
            raise ConnectionResetError(str(error)) from error
        *lines, self._rest = (self._rest + self._reading.take()).split(b"\n")
        confirmed: list[str] = []
        rung: dict[str, None] = {}
        for line in filter(bytes.strip, lines):
            self._silent = False
            try:
                self._take(json.loads(line)["result"], confirmed=confirmed, rung=rung)
            except SENSELESS as error:
                raise ConnectionResetError(f"it ended: {line[:200]!r}") from error
        if self._reading.answer is not None:
            raise ConnectionResetError(f"etcd ended the watch with HTTP status {self._reading.answer.status}")
        return confirmed, list(rung)

    def close(self) -> None:
        """See `Feed`. Of no key anything is known now."""
        for channel in self._numbers:
            _told.pop((self._place, channel), None)
        self._connection.close()

    def _take(self, result: dict[str, Any], *, confirmed: list[str], rung: dict[str, None]) -> None:
        """One message: a watch is in force, has ended, or tells of its key."""
        number = int(result.get("watch_id", 0))
        channel = self._channels.get(number)
        if result.get("canceled") and (channel is not None or result.get("created")):
            if channel is None or "compact_revision" not in result:
                raise ConnectionResetError(f"etcd ended a watch: {result.get('cancel_reason', '')}")
            # It had fallen behind what was compacted: what it missed is gone, so it begins again with what is now.
            del self._channels[number]
            _told.pop((self._place, channel), None)
            self._create(channel)
            rung[channel] = None
        elif channel is not None and result.get("created"):
            confirmed.append(channel)
        elif channel is not None:
            for event in result.get("events", []):
                value = event["kv"].get("value")
                if event.get("type", "PUT") == "PUT" and value is not None:
                    _told[self._place, channel] = b64decode(value)
                else:
                    _told.pop((self._place, channel), None)
                rung[channel] = None

    def _create(self, channel: str) -> None:
        self._last += 1
        self._numbers[channel], self._channels[self._last] = self._last, channel
        key = b64encode(channel.encode()).decode("ascii")
        self._say({"create_request": {"key": key, "watch_id": str(self._last)}})

    def _say(self, message: dict[str, Any]) -> None:
        self._connection.tell(part(json.dumps(message).encode()), seconds=_SECONDS)


def connect_feed(address: Address) -> EtcdFeed:
    """A new watching connection, to any member that answers."""
    problem = StoreUnavailable(f"{address}: no member answered", applied=False)
    trust = trust_of(address.members[0])
    for member in _chance.sample(address.members, len(address.members)):
        try:
            return _connect(address, member, trust)
        except StoreUnavailable as error:
            problem = error
        except Refused as refused:
            problem = refused.error
    raise problem


def _connect(address: Address, member: Member, trust: Trust) -> EtcdFeed:
    connection = step(connect_blocking(member, trust, seconds=_SECONDS))
    shows = Pass(address.login)
    try:
        if shows.token is None:
            answer = step(connection.exchange(shows.ask(member), seconds=_SECONDS))
            try:
                shows.take(understand(answer, member))
            except Refused as refused:
                if not shows.none_needed(refused):
                    raise
        connection.tell(shows.requests(member).stream("/v3/watch"), seconds=_SECONDS)
    except Cut as cut:
        connection.close()
        raise cut_off(cut, member) from cut
    except BaseException:
        connection.close()
        raise
    return EtcdFeed(connection, address.listening)
