"""Hears of releases from a Redis server: the listening connection of a process, read by the thread of `_push`."""

from __future__ import annotations

from typing import Any

from leased.clocks import step
from leased.errors import StoreUnavailable
from leased.stores._redis_connection import BlockingConnection, Cut, connect_blocking
from leased.stores._redis_failures import cut_off, refused
from leased.stores._redis_greeting import check_greeting, greeting
from leased.stores._redis_sentinel import find_primary
from leased.stores._redis_url import Address, Node
from leased.stores._redis_wire import NotRedis, ServerError, packed
from leased.stores._senseless import SENSELESS

_SECONDS = 5.0


class RedisFeed:
    """See `leased.stores._push.Feed`. A server that has gone without a word is noticed by TCP keepalive."""

    def __init__(self, connection: BlockingConnection, node: Node) -> None:
        self._connection = connection
        self._node = node

    def fileno(self) -> int:
        """See `Feed`."""
        return self._connection.fileno()

    def listen(self, channels: list[str]) -> None:
        """See `Feed`."""
        self._connection.tell(packed(b"SUBSCRIBE", *_names(channels)), seconds=_SECONDS)

    def unlisten(self, channels: list[str]) -> None:
        """See `Feed`."""
        if channels:
            self._connection.tell(packed(b"UNSUBSCRIBE", *_names(channels)), seconds=_SECONDS)

    def read(self) -> tuple[list[str], list[str]]:
        """See `Feed`."""
        replies: list[Any] = []
        try:
            self._connection.read(replies)
        except NotRedis as error:
            raise ConnectionResetError(str(error)) from error
        confirmed, rung = [], []
        for reply in replies:
            if isinstance(reply, ServerError):
                raise refused(reply, self._node)
            try:
                kind, channel = reply[0], reply[1]
                if kind == b"subscribe":
                    confirmed.append(channel.decode())
                elif kind == b"message":
                    rung.append(channel.decode())
            except SENSELESS as error:
                raise ConnectionResetError("an answer that makes no sense") from error
        return confirmed, rung

    def close(self) -> None:
        """See `Feed`."""
        self._connection.close()


def connect_feed(address: Address) -> RedisFeed:
    """A new listening connection: to the server, to the primary that sentinels name, or to any node of a cluster."""
    nodes = address.nodes
    if address.kind == "sentinel":
        nodes = (step(find_primary(address, connect_blocking, seconds=_SECONDS)),)
    problem = StoreUnavailable(f"{address.shown}: no node answered", applied=False)
    for node in nodes:
        try:
            return _connect(address, node)
        except StoreUnavailable as error:
            problem = error
    raise problem


def _connect(address: Address, node: Node) -> RedisFeed:
    connection = step(connect_blocking(address, node, seconds=_SECONDS))
    try:
        hello = greeting(address, address.login)
        answers = step(connection.exchange(b"".join(hello), count=len(hello), seconds=_SECONDS))
        check_greeting(hello, answers, node=node)
    except Cut as cut:
        connection.close()
        raise cut_off(cut, node) from cut
    except BaseException:
        connection.close()
        raise
    return RedisFeed(connection, node)


def _names(channels: list[str]) -> list[bytes]:
    return [channel.encode() for channel in channels]
