"""The keys of one namespace on an etcd cluster, one transaction for each call. It knows nothing of leases."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from leased.errors import StoreUnavailable
from leased.store import Clock, again
from leased.stores._cas_shelf import NOTHING, Beaten, Changed, Found, Put, Version, Written
from leased.stores._etcd_answers import senseless
from leased.stores._etcd_feed import told
from leased.stores._etcd_link import Link
from leased.stores._etcd_url import Address
from leased.stores._push import Listener
from leased.stores._senseless import SENSELESS

MOST_STEPS = 100
"""Of a transaction; etcd takes 128 (max-txn-ops), and counts the one within each."""

_MOST_BYTES = 1_000_000
_SEPARATOR = "/"
_ESCAPES = str.maketrans({"%": "%25", "/": "%2F"})


class EtcdShelf:
    """See `leased.stores._cas_shelf.Shelf`. A key is called `leased/NAMESPACE/KEY`; its version is its mod_revision."""

    def __init__(self, link: Link, address: Address, *, namespace: str, clock: Clock, listener: Listener) -> None:
        self._link = link
        self._address = address
        self._clock = clock
        self._listener = listener
        self._beginning = f"leased/{namespace.translate(_ESCAPES)}/".encode()
        self._watches: set[Callable[[], None]] = set()

    async def get(self, keys: Sequence[str], *, timeout: float) -> Sequence[Found]:
        """See `Shelf`."""
        if len(keys) == 1:
            return await self._get([self._name(keys[0])], seconds=timeout)
        until = self._clock.now() + timeout
        found: list[Found] = []
        for begin in range(0, len(keys), MOST_STEPS):
            names = [self._name(key) for key in keys[begin : begin + MOST_STEPS]]
            found += await self._get(names, seconds=max(until - self._clock.now(), 0.0))
        return found

    async def put(self, puts: Sequence[Put], *, timeout: float) -> Sequence[Written | Beaten | StoreUnavailable]:
        """See `Shelf`. All in one transaction, of which each part stands or falls by itself; many are sent in parts."""
        if len(puts) == 1:
            return await self._put(puts, seconds=timeout)
        until = self._clock.now() + timeout
        results: list[Written | Beaten | StoreUnavailable] = []
        for part in _parts(puts):
            try:
                results += await self._put(part, seconds=max(until - self._clock.now(), 0.0))
            except StoreUnavailable as error:
                if not results:
                    raise
                results += [again(error) for _ in part]
        return results

    async def page(self, prefix: str, *, after: str, limit: int, timeout: float) -> list[tuple[str, Found]]:
        """See `Shelf`."""
        first = self._beginning + prefix.encode()
        last = first[:-1] + bytes([first[-1] + 1])  # UTF-8 has no byte that is 255
        if after:
            first = max(first, self._beginning + after.encode() + b"\0")
        if first >= last:
            return []
        # Ranges come in the order of keys. Whoever asks for an order makes etcd read all of them, whatever the limit.
        asked = f'{{"key":"{_text(first)}","range_end":"{_text(last)}","limit":"{limit}"}}'
        answer = await self._ask("range", asked, seconds=timeout, harmless=True)
        try:
            skipped = len(self._beginning)
            return [(b64decode(pair["key"])[skipped:].decode(), _found(pair)) for pair in answer.get("kvs", [])]
        except SENSELESS as error:
            raise senseless(self._address) from error

    async def old(
        self, before: float, *, begin: str, limit: int, timeout: float
    ) -> tuple[list[tuple[str, Found]], str]:
        """See `Old`. A range tells no times: these are all keys, a page of them after the other."""
        page = await self.page("", after=begin, limit=limit, timeout=timeout)
        return page, page[-1][0] if len(page) == limit else ""

    async def remove(self, keys: Sequence[tuple[str, Version]], *, timeout: float) -> None:
        """See `Shelf`. One after the other."""
        until = self._clock.now() + timeout
        for key, version in keys:
            name = self._name(key)
            steps = f'"success":[{{"request_delete_range":{{"key":"{name}"}}}}]'
            left = max(until - self._clock.now(), 0.0)
            await self._ask("txn", f"{{{_if_still(name, version)},{steps}}}", seconds=left)

    async def watch(self, key: str, changed: Changed) -> Callable[[], None]:
        """See `Shelf`. All stores of the process that go to the same members in the same way share one connection."""
        self._link.check_open()
        name = (self._beginning + key.encode()).decode()
        place = self._address.listening
        unwatch = await self._listener.watch(name, lambda: changed(told(place, name)), clock=self._clock)

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

    async def _get(self, names: Sequence[str], *, seconds: float) -> list[Found]:
        if len(names) == 1:
            answers = [await self._ask("range", f'{{"key":"{names[0]}"}}', seconds=seconds, harmless=True)]
        else:
            steps = ",".join(f'{{"request_range":{{"key":"{name}"}}}}' for name in names)
            answer = await self._ask("txn", f'{{"success":[{steps}]}}', seconds=seconds, harmless=True)
            answers = [step.get("response_range", {}) for step in _steps(answer, len(names), self._address)]
        try:
            return [_only(answer) for answer in answers]
        except SENSELESS as error:
            raise senseless(self._address) from error

    async def _put(self, puts: Sequence[Put], *, seconds: float) -> list[Written | Beaten]:
        steps = [_step(self._name(put.key), put) for put in puts]
        if len(steps) == 1:
            answers = [await self._ask("txn", steps[0], seconds=seconds)]
            revision = _revision(answers[0])
        else:
            all_of_them = ",".join(f'{{"request_txn":{step}}}' for step in steps)
            answer = await self._ask("txn", f'{{"success":[{all_of_them}]}}', seconds=seconds)
            revision = _revision(answer)
            answers = [step.get("response_txn", {}) for step in _steps(answer, len(steps), self._address)]
        try:
            # Whatever one transaction writes has the revision that it made.
            return [
                Written(cast("int", revision)) if answer.get("succeeded") else Beaten(_only(_standing(answer)))
                for answer in answers
            ]
        except SENSELESS as error:
            raise senseless(self._address) from error

    async def _ask(self, what: str, body: str, *, seconds: float, harmless: bool = False) -> dict[str, Any]:
        return await self._link.send(f"/v3/kv/{what}", body.encode("ascii"), seconds=seconds, harmless=harmless)

    def _name(self, key: str) -> str:
        return _text(self._beginning + key.encode())


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _if_still(name: str, version: Version | None) -> str:
    return f'"compare":[{{"key":"{name}","target":"MOD","result":"EQUAL","mod_revision":"{version or 0}"}}]'


def _step(name: str, put: Put) -> str:
    """Write if the key still has that version, else read what it has."""
    write = f'"success":[{{"request_put":{{"key":"{name}","value":"{_text(put.value)}"}}}}]'
    read = f'"failure":[{{"request_range":{{"key":"{name}"}}}}]'
    return f"{{{_if_still(name, put.version)},{write},{read}}}"


def _parts(puts: Sequence[Put]) -> Iterator[Sequence[Put]]:
    """The puts in their order, in parts that one transaction takes."""
    part: list[Put] = []
    size = 0
    for put in puts:
        length = len(put.value) + 3 * len(put.key)
        if part and (size + length > _MOST_BYTES or len(part) == MOST_STEPS):
            yield part
            part, size = [], 0
        part.append(put)
        size += length
    if part:
        yield part


def _revision(answer: dict[str, Any]) -> int | None:
    try:
        return int(answer["header"]["revision"])
    except SENSELESS:
        return None


def _steps(answer: dict[str, Any], count: int, address: Address) -> list[dict[str, Any]]:
    steps = answer.get("responses", [])
    if not isinstance(steps, list) or len(steps) != count or not all(isinstance(step, dict) for step in steps):
        raise senseless(address)
    return steps


def _standing(answer: dict[str, Any]) -> dict[str, Any]:
    """What a refused write read instead."""
    return cast("dict[str, Any]", answer["responses"][0]["response_range"])


def _only(answer: dict[str, Any]) -> Found:
    """What one key has."""
    pairs = answer.get("kvs", [])
    return _found(pairs[0]) if pairs else NOTHING


def _found(pair: dict[str, Any]) -> Found:
    return Found(int(pair["mod_revision"]), b64decode(pair.get("value", "")))
