"""What happens to locks, for those who watch: a stream per reader, each with a bounded queue. Nobody is waited for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

from msgspec.json import encode

from leased.errors import RateLimited
from leased.server.settings import Settings
from leased.wire import Body

CONTENT_TYPE = b"text/event-stream; charset=utf-8"

_RETRY_AFTER = 5.0
_PARTS = 4
_ALIVE = b": alive\n\n"


class Reader:
    """One stream: the events of one project that were not read yet."""

    __slots__ = ("ended", "missed", "project", "queue", "wakeup")

    def __init__(self, project: str, *, room: int) -> None:
        self.project = project
        self.queue: deque[bytes] = deque(maxlen=room)
        self.missed = 0
        self.wakeup = asyncio.Event()
        self.ended = False

    def put(self, event: bytes) -> None:
        """One more; the oldest goes where there is no room."""
        if len(self.queue) == self.queue.maxlen:
            self.missed += 1
        self.queue.append(event)
        self.wakeup.set()

    def leave(self) -> None:
        """End its stream."""
        self.ended = True
        self.wakeup.set()


class Events:
    """All readers of this process; each sees the events of his project that happen here, in their order."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.readers: set[Reader] = set()
        self._ended = False

    def __len__(self) -> int:
        """How many read."""
        return len(self.readers)

    def publish(self, project: str, name: str, **what: object) -> None:
        """Tell the project's readers of an event. Nothing of it is a secret: it never has a token."""
        text: bytes | None = None
        for reader in self.readers:
            if reader.project == project:
                if text is None:
                    text = _write(name, {"event": name, **what})
                reader.put(text)

    def open(self, project: str) -> Reader:
        """A new reader; raises `RateLimited` where there are too many, or too many of one project's."""
        most = self._settings.max_event_streams
        if len(self.readers) >= most or self._ended:
            raise RateLimited(f"{most} event streams are open, and no more can be", retry_after=_RETRY_AFTER)
        share, open_ = self.share(project)
        if project and open_ >= share:
            raise RateLimited(
                f"{share} event streams of this project are open, and no more can be",
                retry_after=_RETRY_AFTER,
                hint="end one of them, or raise max_event_streams: a project may have a quarter of them",
            )
        reader = Reader(project, room=self._settings.event_queue)
        self.readers.add(reader)
        return reader

    def share(self, project: str) -> tuple[int, int]:
        """How many streams a project may have, and how many it has."""
        most = self._settings.max_event_streams
        return max(1, most // _PARTS) if project else most, sum(one.project == project for one in self.readers)

    async def stream(self, reader: Reader) -> AsyncGenerator[bytes, None]:
        """The bytes for this reader, as they come, until the service ends; then it is closed."""
        try:
            yield b": leased\n\n"
            while not reader.ended:
                if not reader.queue:
                    reader.wakeup.clear()
                    try:
                        await asyncio.wait_for(reader.wakeup.wait(), self._settings.heartbeat)
                    except TimeoutError:
                        yield _ALIVE
                    continue
                if reader.missed:
                    missed, reader.missed = reader.missed, 0
                    yield _write("missed", {"event": "missed", "count": missed})
                whole = b"".join(reader.queue)
                reader.queue.clear()
                yield whole
        finally:
            self.close(reader)

    def close(self, reader: Reader) -> None:
        """Nobody reads this any more."""
        self.readers.discard(reader)

    def end(self) -> None:
        """End all streams: the service goes."""
        self._ended = True
        for reader in self.readers:
            reader.leave()


def _write(name: str, what: Body) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), encode(what))
