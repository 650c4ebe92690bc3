"""Keys as subjects of a bucket, compared and set by the number of their last message. It knows nothing of leases."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any, TypeVar

from leased.clocks import now
from leased.errors import LeasedError, StoreUnavailable
from leased.store import Clock
from leased.stores import _nats_bucket as buckets
from leased.stores._cas_shelf import NOTHING, Beaten, Changed, Found, Put, Version, Written
from leased.stores._nats_connection import Answer, Connection, Question
from leased.stores._nats_feed import MARKERS, told
from leased.stores._nats_link import Link
from leased.stores._nats_walk import Walk
from leased.stores._push import Listener
from leased.stores._senseless import SENSELESS

_T = TypeVar("_T")
_EXPECTED = "Nats-Expected-Last-Subject-Sequence"
_BEATEN = (10071, 10164)
_NO_MESSAGE = 10037
_MOST_AT_ONCE = 128
_MOST_MARKERS = 4096
_MARKER_TTL = "1h"
_ASK_AGAIN = 0.05


class NatsShelf:
    """See `Shelf`. A version is the number of a message in the stream below the bucket.

    All reads go to the leader of that stream, which sees what it has answered; replicas may be behind.
    """

    def __init__(self, link: Link, *, namespace: str, clock: Clock, listener: Listener) -> None:
        self._link = link
        self._address = link.address
        self._clock = clock
        self._listener = listener
        self._beginning = f"$KV.{link.address.bucket}.{_token(namespace)}."
        self._markers: OrderedDict[str, int] = OrderedDict()  # what stands for a key that others have deleted
        self._stride = 1  # of the last walk, see `Walk`
        self._watches: set[Callable[[], None]] = set()

    async def get(self, keys: Sequence[str], *, timeout: float) -> Sequence[Found]:
        """See `Shelf`."""
        return await self._link.run(lambda: self._get(keys, until=now() + timeout))

    async def put(self, puts: Sequence[Put], *, timeout: float) -> Sequence[Written | Beaten | StoreUnavailable]:
        """See `Shelf`. All are sent at once."""
        return await self._link.run(lambda: self._put(puts, until=now() + timeout))

    async def page(self, prefix: str, *, after: str, limit: int, timeout: float) -> list[tuple[str, Found]]:
        """See `Shelf`. It asks for the names of all keys, whatever is wanted of them."""
        return await self._link.run(lambda: self._page(prefix, after=after, limit=limit, until=now() + timeout))

    async def old(
        self, before: float, *, begin: str, limit: int, timeout: float
    ) -> tuple[list[tuple[str, Found]], str]:
        """See `Old`. Messages lie in the order of their times: what is younger is hardly looked at. What is found is
        given back after half the time, however little it is: the rest is for removing it."""
        number, until = int(begin or 1), now() + timeout
        return await self._link.run(lambda: self._oldest(before, number=number, limit=limit, until=until))

    async def remove(self, keys: Sequence[tuple[str, Version]], *, timeout: float) -> None:
        """See `Shelf`. Where single messages may not be deleted a marker takes their place, which ends if it can."""
        await self._link.run(lambda: self._remove(keys, until=now() + timeout))

    async def watch(self, key: str, changed: Changed) -> Callable[[], None]:
        """See `Shelf`. All stores of the process that use the bucket in the same way share one connection."""
        self._link.check_open()
        subject = self._subject(key)
        place = self._address.listening
        unwatch = await self._listener.watch(subject, lambda: changed(told(place, subject)), clock=self._clock)

        def end() -> None:
            self._watches.discard(end)
            unwatch()

        self._watches.add(end)
        return end

    def close(self) -> None:
        """See `Shelf`."""
        for end in tuple(self._watches):
            end()
        self._link.close()

    def _subject(self, key: str) -> str:
        return f"{self._beginning}{_token(key)}"

    async def _get(self, keys: Sequence[str], *, until: float) -> list[Found]:
        connection = await self._link.ready(seconds=_left(until))
        found: list[Found] = []
        for some in _parts(keys):
            questions = [self._ask_last(self._subject(key)) for key in some]
            answers = await self._link.ask(connection, questions, seconds=_left(until))
            found += [self._found(key, answer, connection) for key, answer in zip(some, answers, strict=True)]
        return found

    def _ask_last(self, subject: str) -> Question:
        payload = json.dumps({"last_by_subj": subject}).encode()
        return Question(f"$JS.API.STREAM.MSG.GET.{self._address.stream}", payload, harmless=True)

    def _found(self, key: str, answer: Answer | LeasedError, connection: Connection) -> Found:
        found = buckets.read_answer(answer, self._address)
        code = buckets.error_code(found)
        if code == _NO_MESSAGE:
            self._markers.pop(key, None)
            return NOTHING
        if code:
            connection.bucket = None  # whether it is still there is asked next
            raise buckets.refused(found["error"], self._address)
        try:
            message = found["message"]
            number = int(message["seq"])
            if _is_marker(message):
                self._markers[key] = number
                if len(self._markers) > _MOST_MARKERS:
                    self._markers.popitem(last=False)
                return NOTHING
            return Found(number, b64decode(message.get("data") or ""))
        except SENSELESS as error:
            raise buckets.senseless(self._address) from error

    async def _put(self, puts: Sequence[Put], *, until: float) -> list[Written | Beaten | StoreUnavailable]:
        unknown = self._link.unknown
        connection = await self._link.ready(seconds=_left(until))
        if unknown:  # what `require` asks for was not looked at yet: let each be decided again
            return [Beaten() for _ in puts]
        results: list[Written | Beaten | StoreUnavailable | None] = [None] * len(puts)
        while rest := [place for place, result in enumerate(results) if result is None]:
            asked = [self._ask_put(puts[place]) for place in rest]
            answers = await self._link.ask(connection, asked, seconds=_left(until))
            for place, answer in zip(rest, answers, strict=True):
                results[place] = self._written(puts[place].key, answer)
            if None in results:  # nobody was there to hear it: the stream has no leader now, or is gone
                connection = await self._again(connection, until=until, results=results)
        return [result for result in results if result is not None]

    async def _again(
        self, connection: Connection, *, until: float, results: list[Written | Beaten | StoreUnavailable | None]
    ) -> Connection:
        """Wait a moment and look for the bucket; where time is up, or it cannot be had, what is left has failed."""
        problem = StoreUnavailable(f"{self._address}: nobody keeps the bucket just now", applied=False)
        if _left(until) > _ASK_AGAIN:
            await asyncio.sleep(_ASK_AGAIN)
            connection.bucket = None
            try:
                return await self._link.ready(seconds=_left(until))
            except StoreUnavailable as error:
                problem = error
        for place, result in enumerate(results):
            if result is None:
                results[place] = problem
        return connection

    def _ask_put(self, put: Put) -> Question:
        expected = self._markers.get(put.key, 0) if put.version is None else put.version
        return Question(self._subject(put.key), put.value, {_EXPECTED: str(expected)})

    def _written(self, key: str, answer: Answer | LeasedError) -> Written | Beaten | StoreUnavailable | None:
        """What came of a write; `None` if nobody heard it."""
        if isinstance(answer, StoreUnavailable):
            return answer
        if isinstance(answer, LeasedError):
            raise answer
        if answer.nobody:
            return None
        try:
            found = json.loads(answer.data)
            code = buckets.error_code(found)
            if code in _BEATEN:
                self._markers.pop(key, None)
                return Beaten()
            if code:
                applied = False if int(found["error"].get("code", 500)) < 500 else None
                return buckets.refused(found["error"], self._address, applied=applied)
            if found["stream"] != self._address.stream:
                raise KeyError(found["stream"])
            self._markers.pop(key, None)
            return Written(int(found["seq"]))
        except SENSELESS:
            return buckets.senseless(self._address)

    async def _page(self, prefix: str, *, after: str, limit: int, until: float) -> list[tuple[str, Found]]:
        beginning, last = prefix.encode(), after.encode()
        names = [name for name in await self._names(until=until) if name.startswith(beginning) and name > last]
        names.sort()
        page: list[tuple[str, Found]] = []
        while names and len(page) < limit:
            some = [name.decode() for name in names[: min(limit - len(page), _MOST_AT_ONCE)]]
            names = names[len(some) :]
            found = await self._get(some, until=until)
            page += [(key, one) for key, one in zip(some, found, strict=True) if one.version is not None]
        return page

    async def _oldest(
        self, before: float, *, number: int, limit: int, until: float
    ) -> tuple[list[tuple[str, Found]], str]:
        enough = now() + _left(until) / 2
        connection = await self._link.ready(seconds=_left(until))
        walk = Walk(number, stride=self._stride)
        page: dict[int, tuple[str, Found]] = {}
        while len(page) < limit and now() < enough and (numbers := walk.numbers(limit - len(page))):
            asked = [self._ask_next(one) for one in numbers]
            answers = await self._link.ask(connection, asked, seconds=_left(until))
            answered = list(takewhile(lambda answer: isinstance(answer, Answer), answers))
            if not answered and walk.reached > number:
                break
            met = [self._older(answer, before) for answer in answered or answers]
            walk.take([None if one is None else one[0] for one in met])
            page.update((one, (key, found)) for one, key, found in filter(None, met) if found.version is not None)
        walk.end()
        self._stride = walk.stride
        # Markers stay where nothing may be erased, and must not be gone through each time.
        begin = "" if walk.over and connection.bucket.erasable else str(walk.reached)
        return [page[one] for one in sorted(page)], begin

    def _ask_next(self, number: int) -> Question:
        payload = json.dumps({"seq": number, "next_by_subj": f"{self._beginning}*"}).encode()
        return Question(f"$JS.API.STREAM.MSG.GET.{self._address.stream}", payload, harmless=True)

    def _older(self, answer: Answer | LeasedError, before: float) -> tuple[int, str, Found] | None:
        """The number of a message and what it says, if it is older; `NOTHING` of a marker, and of what is not ours."""
        found = buckets.read_answer(answer, self._address)
        if buckets.error_code(found):
            return None
        try:
            message = found["message"]
            number = int(message["seq"])
            if buckets.read_time(message["time"]) >= before:
                return None
            name = _name(message["subject"])
            if name is None or _is_marker(message):
                return number, "", NOTHING
            return number, name.decode(), Found(number, b64decode(message.get("data") or ""))
        except SENSELESS as error:
            raise buckets.senseless(self._address) from error

    async def _names(self, *, until: float) -> set[bytes]:
        """Of all keys of the namespace, those among them that were deleted by others."""
        connection = await self._link.ready(seconds=_left(until))
        names: set[bytes] = set()
        seen = 0
        while True:
            payload = json.dumps({"subjects_filter": f"{self._beginning}*", "offset": seen}).encode()
            question = Question(f"$JS.API.STREAM.INFO.{self._address.stream}", payload, harmless=True)
            (answer,) = await self._link.ask(connection, [question], seconds=_left(until))
            found = buckets.read_answer(answer, self._address)
            if buckets.error_code(found):
                connection.bucket = None
                raise buckets.refused(found["error"], self._address)
            try:
                subjects: dict[str, Any] = found["state"].get("subjects") or {}
                names.update(name for subject in subjects if (name := _name(subject)) is not None)
                seen += len(subjects)
                if not subjects or seen >= int(found.get("total", 0)):
                    return names
            except SENSELESS as error:
                raise buckets.senseless(self._address) from error

    async def _remove(self, keys: Sequence[tuple[str, Version]], *, until: float) -> None:
        connection = await self._link.ready(seconds=_left(until))
        for some in _parts(keys):
            asked = [self._ask_remove(key, int(version), connection.bucket) for key, version in some]
            for answer in await self._link.ask(connection, asked, seconds=_left(until)):
                if isinstance(answer, LeasedError):
                    raise answer

    def _ask_remove(self, key: str, number: int, bucket: buckets.Bucket) -> Question:
        if bucket.erasable:
            # A number is one message: if another was written since, this one is gone, and nothing happens.
            payload = json.dumps({"seq": number, "no_erase": True}).encode()
            return Question(f"$JS.API.STREAM.MSG.DELETE.{self._address.stream}", payload)
        headers = {_EXPECTED: str(number), "KV-Operation": "DEL"}
        if bucket.marker_ttl:
            headers["Nats-TTL"] = _MARKER_TTL
        return Question(self._subject(key), b"", headers)


def _is_marker(message: dict[str, Any]) -> bool:
    return any(marker in b64decode(message.get("hdrs") or "") for marker in MARKERS)


def _token(text: str) -> str:
    """A text as one token of a subject, which may not be empty."""
    return urlsafe_b64encode(text.encode()).decode("ascii").rstrip("=") or "="


def _name(subject: str) -> bytes | None:
    """The bytes of the key in a subject; `None` for one that is not ours."""
    token = subject.rpartition(".")[2]
    try:
        name = urlsafe_b64decode(token + "=" * (-len(token) % 4))
        return name if _token(name.decode()) == token else None
    except ValueError:
        return None


def _parts(keys: Sequence[_T]) -> Iterator[Sequence[_T]]:
    for begin in range(0, len(keys), _MOST_AT_ONCE):
        yield keys[begin : begin + _MOST_AT_ONCE]


def _left(until: float) -> float:
    return max(until - now(), 0.0)
