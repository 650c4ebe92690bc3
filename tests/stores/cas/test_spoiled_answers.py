"""Answers that no etcd, DynamoDB or NATS gives: each place of each real answer, replaced by what does not belong there.

Whatever comes, a call ends with an outcome or an error of the package, and the next one is answered as if nothing was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from itertools import count
from typing import Any, cast

import pytest

from leased.clocks import BlockingClock, step
from leased.errors import LeasedError
from leased.model import Abandon, Acquire, Claim, Held, Look, Release, Renew
from leased.stores import _http_connection as http
from leased.stores import _nats_connection as nats
from leased.stores import dynamodb as dynamodb_store
from leased.stores import etcd as etcd_store
from leased.stores import nats as nats_store
from leased.stores._cas_store import CasStore
from leased.targets import Options, read_url
from tests.servers.process import Server

ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    float("inf"),
    float("nan"),
    10**30,
    "x",
    "\ud800",
    [],
    [None],
    {},
    {"x": {}},
    "9" * 5000,
)
DEEP = b"[" * 100_000
STEPS = 1 if os.environ.get("LEASED_SOAK") else 8
"""Of what is odd each place gets one in so many, in turn."""

TIMEOUT = 2.0
TOKEN = "0123456789abcdef"
_numbers = count()

Way = tuple[Any, ...]


def places(found: Any, way: Way = ()) -> Iterator[Way]:
    """The way to each value within an answer, itself first."""
    yield way
    if isinstance(found, dict | list):
        for name, value in found.items() if isinstance(found, dict) else enumerate(found):
            yield from places(value, (*way, name))


def spoiled(found: Any, way: Way, odd: Any) -> Any:
    """The same answer with that in this place."""
    if not way:
        return odd
    found[way[0]] = spoiled(found[way[0]], way[1:], odd)
    return found


class Spoiler:
    """Changes the answer to one question: the one with this number of those that are asked from `begin` on."""

    def __init__(self) -> None:
        self.number = -1
        self.asked = 0
        self.seen: list[bytes] = []
        self.change: Callable[[bytes], bytes] = bytes

    def begin(self, number: int, change: Callable[[bytes], bytes] = bytes) -> None:
        """From now on."""
        self.number, self.asked, self.change, self.seen = number, 0, change, []

    def __call__(self, body: bytes) -> bytes:
        """What the store is to see in place of this."""
        self.seen.append(body)
        self.asked += 1
        return self.change(body) if self.asked - 1 == self.number else body


@pytest.fixture
def spoiler(monkeypatch: pytest.MonkeyPatch) -> Spoiler:
    """Between the connections and the stores, of both kinds."""
    made = Spoiler()
    exchange = http.BlockingConnection.exchange
    ask = nats.Connection.ask

    async def exchange_spoiled(connection: Any, request: bytes, *, seconds: float) -> Any:
        answer = await exchange(connection, request, seconds=seconds)
        return replace(answer, body=made(answer.body))

    async def ask_spoiled(connection: Any, questions: Any, *, seconds: float) -> Any:
        answers = await ask(connection, questions, seconds=seconds)
        return [one if isinstance(one, LeasedError) else one._replace(data=made(one.data)) for one in answers]

    monkeypatch.setattr(http.BlockingConnection, "exchange", exchange_spoiled)
    monkeypatch.setattr(nats.Connection, "ask", ask_spoiled)
    return made


@pytest.fixture(params=["etcd", "dynalite", "nats"])
def url(request: pytest.FixtureRequest) -> str:
    """A running server of each kind."""
    found: Server = request.getfixturevalue(f"{request.param}_server")
    return found.url


def opened(url: str) -> CasStore:
    """A store there, which has asked nothing yet, and is alone in its namespace."""
    target = read_url(url, Options(clock=BlockingClock(), namespace=f"spoiled-{next(_numbers)}"))
    module = {"etcd": etcd_store, "dynamodb": dynamodb_store, "nats": nats_store}[target.scheme]
    return cast("CasStore", module.open(target.url, face="blocking", options=target.options))


def claim(key: str, token: str = TOKEN) -> Claim:
    """For half a minute."""
    return Claim(key, token, 30.0)


Call = Callable[[CasStore, str], Coroutine[Any, Any, Any]]
CALLS: dict[str, Call] = {
    "acquire": lambda store, key: store.acquire(claim(key), timeout=TIMEOUT),
    "acquire again": lambda store, key: store.acquire(claim(key, "another-token-00"), timeout=TIMEOUT),
    "renew": lambda store, key: store.renew(key, TOKEN, ttl=30.0, number=1, timeout=TIMEOUT),
    "look": lambda store, key: store.look(key, TOKEN, timeout=TIMEOUT),
    "status": lambda store, key: store.status(key, timeout=TIMEOUT),
    "list": lambda store, key: store.list(key, after="", limit=10, timeout=TIMEOUT),
    "many": lambda store, key: store.many(
        [Acquire(claim(f"{key}-1")), Acquire(claim(f"{key}-2")), Renew(key, TOKEN, 30.0, 2), Look(key, TOKEN)],
        timeout=TIMEOUT,
    ),
    "undo": lambda store, key: store.many(
        [Release(f"{key}-1", TOKEN), Abandon(f"{key}-2", TOKEN)], timeout=TIMEOUT
    ),
    "force": lambda store, key: store.force_release(key, fencing_token=1, timeout=TIMEOUT),
    "release": lambda store, key: store.release(key, TOKEN, timeout=TIMEOUT),
}  # fmt: skip


def changes(body: bytes) -> Iterator[tuple[str, Callable[[bytes], bytes]]]:
    """What may become of an answer like this one."""
    for whole in (b"", b"{", b"null", b"\xff", DEEP):
        yield f"{whole[:20]!r} as a whole", lambda _, whole=whole: whole  # type: ignore[misc]
    try:
        found = json.loads(body)
    except ValueError:
        return
    for number, way in enumerate(places(found)):
        for odd in ODD[number % STEPS :: STEPS]:
            yield (
                f"{odd!r:.20} at {way}",
                lambda body, way=way, odd=odd: changed(body, way, odd),  # type: ignore[misc]
            )


def changed(body: bytes, way: Way, odd: Any) -> bytes:
    """The answer with that in this place, if it has such a place."""
    try:
        return json.dumps(spoiled(json.loads(body), way, odd)).encode()
    except (LookupError, TypeError):
        return json.dumps(odd).encode()


@pytest.mark.parametrize("name", CALLS)
def test_whatever_is_answered_is_an_outcome_or_an_error(spoiler: Spoiler, url: str, name: str) -> None:
    """L3, SEC12: no error of another kind, and what follows is not harmed by it."""
    call = CALLS[name]
    questions_of(spoiler, url, name)  # from now on there is a bucket, or a table
    for number, body in enumerate(questions_of(spoiler, url, name)):
        for what, change in changes(body):
            store, key = opened(url), "key"
            try:
                if name != "acquire":
                    assert isinstance(step(store.acquire(claim(key), timeout=TIMEOUT)), Held)
                spoiler.begin(number, change)
                refused = refusal(call(store, key), what=f"answer {number} to {name}: {what}")
                assert refused is None or refused.message.isprintable(), refused
                spoiler.begin(-1)
                step(store.status(key, timeout=TIMEOUT))
            finally:
                step(store.close())


def refusal(work: Coroutine[Any, Any, Any], *, what: str) -> LeasedError | None:
    """The error of the package that a call ended with; there may be none, and no other."""
    try:
        step(work)
    except LeasedError as error:
        return error
    except BaseException as error:
        raise AssertionError(what) from error
    return None


def questions_of(spoiler: Spoiler, url: str, name: str) -> list[bytes]:
    """What is answered to the questions that such a call asks."""
    store, key = opened(url), "key"
    try:
        if name != "acquire":
            step(store.acquire(claim(key), timeout=TIMEOUT))
        spoiler.begin(-1)
        step(CALLS[name](store, key))
        return spoiler.seen
    finally:
        step(store.close())
