"""What a Valkey sees of its clients: how many connections there are, and every command that comes over them."""

from __future__ import annotations

from bench.contenders import redis_raw

_MARK = b"bench-mark"


class Clients:
    """All clients of a server but the one that asks here. What scripts ask of the server are no commands of clients."""

    def __init__(self, url: str) -> None:
        self._asking = redis_raw.Blocking(url)
        self._hearing = redis_raw.Blocking(url)
        self._hearing.ask(redis_raw.packed(b"MONITOR"))

    def connections(self) -> int:
        """How many connections there are."""
        listed: bytes = self._asking.ask(redis_raw.packed(b"CLIENT", b"LIST"))
        return len(listed.splitlines()) - 2

    def commands(self) -> int:
        """How many commands have come since this was asked last."""
        self._asking.ask(redis_raw.packed(b"ECHO", _MARK))
        count = 0
        while _MARK not in (line := self._hearing.read()):
            count += b" lua] " not in line and b'"CLIENT" "LIST"' not in line
        return count

    def close(self) -> None:
        """Look no more."""
        self._asking.close()
        self._hearing.close()
