"""What is answered by somebody else, or by a service that breaks, proves nothing: it is never taken for contention."""

import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from leased.errors import (
    AccessDenied,
    InvalidRequest,
    LeasedError,
    RateLimited,
    StoreNotUsable,
    StoreUnavailable,
    Unauthenticated,
)
from leased.model import Acquire, Claim, Held, Look, Lost, Operation, Release, Released
from tests.stores.http.conftest import TIMEOUT, TOKEN, Caller
from tests.stores.http.peers import ASSURANCE, CAPABILITIES, Behaviour, Peer, answer

CLAIM = Claim("key", TOKEN, 30.0)
GRANT = {
    "acquired": True,
    "key": "key",
    "token": TOKEN,
    "owner": None,
    "fencingToken": 7,
    "ttlMs": 30000,
    "leftMs": 30000,
    "waitedMs": 0,
    "renewal": 0,
}
HTML = b"<html><h1>Bad gateway</h1></html>"


def service_that(says: bytes) -> Behaviour:
    """A lock service that answers all operations with these bytes."""
    return lambda first, connection: connection.sendall(CAPABILITIES if "capabilities" in first else says)


STRANGE: list[tuple[bytes, str]] = [
    (answer(HTML, 502), "502"),
    (answer(HTML, 200), "cannot be read"),
    (answer(HTML, 403), "403"),
    (answer(b"", 204), "204"),
    (answer(b"", 302, fields="Location: https://:secret@elsewhere/?token=secret\r\n"), "https://elsewhere/"),
    (answer([], 200), "cannot be read"),
    (answer({}, 200), "cannot be read"),
    (answer({"error": "busy"}, 409), "409"),
    (answer({"acquired": "no", "holder": None}), "cannot be read"),
    (answer({"acquired": False, "holder": {"key": "key", "state": "odd"}}), "cannot be read"),
    (answer({**GRANT, "leftMs": -1}), "cannot be read"),
    (answer({**GRANT, "leftMs": 1.5}), "cannot be read"),
    (answer({**GRANT, "fencingToken": None}), "cannot be read"),
    (answer({**GRANT, "key": "another"}), "another request"),
    (answer({**GRANT, "token": "of somebody else"}), "another request"),
    (answer(b"[" * 100_000), "cannot be read"),
    (answer(b'{"acquired":true', 200), "cannot be read"),
    (answer(b"\xff\xfe", 200), "cannot be read"),
    (answer({"code": "SOMETHING_NEW", "detail": "no idea"}, 418), "no idea"),
    (b"SSH-2.0-OpenSSH_9\r\n", "no answer of HTTP"),
]


@pytest.mark.parametrize(("says", "word"), STRANGE, ids=lambda value: repr(value[:50]))
def test_an_answer_that_is_not_ours_proves_nothing(
    caller: Caller, peer: Callable[[Behaviour], Peer], says: bytes, word: str
) -> None:
    """S2: an error page, a redirect, another protocol, or other JSON: nobody knows, and no secret is shown."""
    store = caller.open(peer(service_that(says)).url)
    with pytest.raises(StoreUnavailable, match=word) as caught:
        caller(store.acquire(CLAIM, timeout=TIMEOUT))
    assert caught.value.applied is None
    assert not isinstance(caught.value, StoreNotUsable)
    assert TOKEN not in str(caught.value)
    assert "secret" not in str(caught.value)


ERRORS: list[tuple[dict[str, Any], int, type[LeasedError]]] = [
    ({"code": "UNAUTHENTICATED", "detail": "no"}, 401, Unauthenticated),
    ({"code": "LOCK_ACCESS_DENIED", "detail": "no"}, 403, AccessDenied),
    ({"code": "LOCK_KEY_INVALID", "detail": "no"}, 400, InvalidRequest),
    ({"code": "lock_rate_limited", "detail": "no", "retryAfter": 7}, 429, RateLimited),
    ({"code": "LOCK_STORE_UNAVAILABLE", "detail": "no", "applied": False}, 503, StoreUnavailable),
    ({"code": "LOCK_STORE_NOT_USABLE", "detail": "no", "applied": False}, 503, StoreNotUsable),
]


@pytest.mark.parametrize(("body", "status", "kind"), ERRORS, ids=lambda value: str(value)[:40])
def test_errors_of_the_service_are_raised_as_they_are(
    caller: Caller, peer: Callable[[Behaviour], Peer], body: dict[str, Any], status: int, kind: type[LeasedError]
) -> None:
    """Spec 11: each code has its class here, with what it carries."""
    store = caller.open(peer(service_that(answer(body, status))).url)
    with pytest.raises(kind, match="no") as caught:
        caller(store.acquire(CLAIM, timeout=TIMEOUT))
    assert type(caught.value) is kind
    assert caught.value.code == body["code"]
    assert getattr(caught.value, "applied", False) is False
    assert caught.value.retry_after == body.get("retryAfter")


def test_a_member_that_failed_stands_in_its_place(caller: Caller, peer: Callable[[Behaviour], Peer]) -> None:
    """A batch tells of each member what became of it; one outcome too few, and nobody knows of any."""
    denied = {"code": "LOCK_ACCESS_DENIED", "detail": "no", "status": 403}
    members: list[Operation] = [Acquire(CLAIM), Acquire(Claim("other", TOKEN, 30.0)), Release("key", TOKEN)]
    store = caller.open(peer(service_that(answer({"outcomes": [GRANT, denied, {"released": True}]}))).url)
    found = caller(store.many(members, timeout=TIMEOUT))
    assert [type(outcome) for outcome in found] == [Held, AccessDenied, Released]
    store = caller.open(peer(service_that(answer({"outcomes": [GRANT, denied]}))).url)
    with pytest.raises(StoreUnavailable, match="3 outcomes") as caught:
        caller(store.many(members, timeout=TIMEOUT))
    assert caught.value.applied is None


def test_who_is_no_lock_service_is_sent_no_claim(caller: Caller, peer: Callable[[Behaviour], Peer]) -> None:
    """A stranger at the place of the service hears one question without a secret, and the call was surely not made."""
    stranger = peer(lambda _, connection: connection.sendall(answer(HTML, 404)))
    store = caller.open(stranger.url)
    with pytest.raises(StoreUnavailable, match="404") as caught:
        caller(store.acquire(CLAIM, timeout=TIMEOUT))
    assert caught.value.applied is False
    assert stranger.requests == ["GET /v1/capabilities HTTP/1.1"]


def test_a_path_stands_before_all_others(caller: Caller, peer: Callable[[Behaviour], Peer]) -> None:
    """A service below a path of a bigger site is asked there."""
    found = peer(service_that(answer({"released": True})))
    store = caller.open(f"{found.url}/base/")
    assert caller(store.release("key", TOKEN, timeout=TIMEOUT))
    assert found.requests == ["GET /base/v1/capabilities HTTP/1.1", "POST /base/v1/locks/release HTTP/1.1"]


def test_a_large_batch_goes_in_parts(caller: Caller, peer: Callable[[Behaviour], Peer]) -> None:
    """SEC12: no request is longer than the service takes; outcomes stand in the order of all members."""

    def behave(first: str, connection: socket.socket) -> None:
        if "capabilities" in first:
            connection.sendall(CAPABILITIES)
            return
        count = len(json.loads(found.bodies[-1])["operations"])
        connection.sendall(answer({"outcomes": [{"released": True}] * count}))

    found = peer(behave)
    store = caller.open(found.url)
    members = [Release(f"{number}{'𝕜' * 250}", TOKEN) for number in range(1_100)]
    outcomes = caller(store.many(members, timeout=TIMEOUT))
    assert outcomes == [Released()] * len(members)
    assert max(map(len, found.bodies)) <= 65_536
    keys = [each["key"] for body in found.bodies if body for each in json.loads(body)["operations"]]
    assert keys == [member.key for member in members]
    assert caller(store.many([], timeout=TIMEOUT)) == []


def test_a_key_that_is_too_long_harms_no_other_member(caller: Caller, peer: Callable[[Behaviour], Peer]) -> None:
    """S3: a key that does not fit with its namespace is refused in its place; the other members are asked for."""
    found = peer(service_that(answer({"outcomes": [{"released": True}]})))
    store = caller.open(f"{found.url}?leased_namespace=staging")
    members = [Release("k" * 255, TOKEN), Release("key", TOKEN)]
    refused, released = caller(store.many(members, timeout=TIMEOUT))
    assert isinstance(refused, InvalidRequest)
    assert released == Released()


def test_a_part_that_fails_leaves_the_parts_before_it(caller: Caller, peer: Callable[[Behaviour], Peer]) -> None:
    """What was answered stays answered; the members of the part that failed say each that nobody knows."""

    def behave(first: str, connection: socket.socket) -> None:
        if "capabilities" in first:
            connection.sendall(CAPABILITIES)
        elif sum("batch" in line for line in found.requests) == 1:
            count = len(json.loads(found.bodies[-1])["operations"])
            connection.sendall(answer({"outcomes": [{"released": True}] * count}))
        else:
            connection.shutdown(socket.SHUT_RDWR)

    found = peer(behave)
    store = caller.open(found.url)
    outcomes = caller(store.many([Release(f"key{number}", TOKEN) for number in range(600)], timeout=TIMEOUT))
    assert outcomes[:300] == [Released()] * 300
    assert all(isinstance(outcome, StoreUnavailable) and outcome.applied is None for outcome in outcomes[300:])
    assert len({id(outcome) for outcome in outcomes[300:]}) == 300


def test_a_call_ends_in_its_time_however_slowly_bytes_arrive(caller: Caller, peer: Callable[[Behaviour], Peer]) -> None:
    """W2: a byte now and then does not make a call longer than its time."""

    def behave(first: str, connection: socket.socket) -> None:
        if "capabilities" in first:
            connection.sendall(CAPABILITIES)
            return
        for byte in answer(GRANT):
            connection.sendall(bytes([byte]))
            time.sleep(0.02)

    store = caller.open(peer(behave).url)
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="no answer within") as caught:
        caller(store.acquire(CLAIM, timeout=0.3))
    assert time.monotonic() - began < 1.5
    assert caught.value.applied is None


def closing_after(requests: int, *, says: bytes) -> Behaviour:
    """A service that answers so many requests of a connection, and closes it instead of answering another one."""
    counts: dict[socket.socket, int] = {}

    def behave(first: str, connection: socket.socket) -> None:
        counts[connection] = counts.get(connection, 0) + 1
        if counts[connection] > requests:
            connection.shutdown(socket.SHUT_RDWR)
        else:
            connection.sendall(CAPABILITIES if "capabilities" in first else says)

    return behave


def test_what_only_reads_is_asked_again_when_an_idle_connection_ended(
    caller: Caller, peer: Callable[[Behaviour], Peer]
) -> None:
    """A service may close an idle connection in the very moment of a call: for a look, that is not even noticed."""
    found = peer(closing_after(2, says=answer({"held": False, "lostReason": "expired"})))
    store = caller.open(found.url)
    for _ in range(4):
        caller(store.look("key", TOKEN, timeout=TIMEOUT))
    looks = sum("look" in line for line in found.requests)
    assert looks > 4
    assert found.connections > 1


def test_what_changes_something_is_not_asked_again(caller: Caller, peer: Callable[[Behaviour], Peer]) -> None:
    """O6, S2: whether a release was carried out before the connection ended is for nobody to guess."""
    found = peer(closing_after(2, says=answer({"released": True})))
    store = caller.open(found.url)
    assert caller(store.release("key", TOKEN, timeout=TIMEOUT))
    with pytest.raises(StoreUnavailable, match="closed the connection") as caught:
        caller(store.release("key", TOKEN, timeout=TIMEOUT))
    assert caught.value.applied is None
    assert sum("release" in line for line in found.requests) == 2


def test_a_new_connection_that_ends_at_once_is_not_tried_for_ever(
    caller: Caller, peer: Callable[[Behaviour], Peer]
) -> None:
    """A service that closes each connection instead of answering is one that gives no answer."""
    found = peer(closing_after(1, says=b""))
    store = caller.open(found.url)
    with pytest.raises(StoreUnavailable):
        caller(store.look("key", TOKEN, timeout=TIMEOUT))
    assert found.connections <= 3


@pytest.mark.parametrize("fields", ["Connection: close\r\n", "Connection: keep-alive, Close\r\n"])
def test_a_service_may_close_after_every_answer(caller: Caller, peer: Callable[[Behaviour], Peer], fields: str) -> None:
    """No connection is used again that the other side said it would close."""

    def behave(first: str, connection: socket.socket) -> None:
        body: Any = {"assurance": ASSURANCE} if "capabilities" in first else {"released": True}
        connection.sendall(answer(body, fields=fields))
        connection.shutdown(socket.SHUT_WR)

    found = peer(behave)
    store = caller.open(found.url)
    for _ in range(3):
        assert caller(store.release("key", TOKEN, timeout=TIMEOUT))
    assert found.connections == 4
    assert sum("capabilities" in line for line in found.requests) == 1


@pytest.mark.parametrize("together", [True, False])
def test_what_comes_unasked_is_no_answer(caller: Caller, peer: Callable[[Behaviour], Peer], *, together: bool) -> None:
    """S2: a second answer to one request is not taken for the answer to the next one."""
    told = threading.Event()

    def behave(first: str, connection: socket.socket) -> None:
        if "capabilities" in first:
            connection.sendall(CAPABILITIES)
            return
        parts = [answer({"held": False, "lostReason": reason}) for reason in ("taken", "denied")]
        for part in [b"".join(parts)] if together else parts:
            connection.sendall(part)
        told.set()

    found = peer(behave)
    store = caller.open(found.url)
    for _ in range(3):
        assert caller(store.look("key", TOKEN, timeout=TIMEOUT)) == Lost("taken")
        assert told.wait(TIMEOUT)
        told.clear()
    assert found.connections == 3


def test_a_batch_of_looks_asks_for_no_grant(caller: Caller, peer: Callable[[Behaviour], Peer]) -> None:
    """Without an acquire in it a batch needs nothing of what is required."""
    found = peer(service_that(answer({"outcomes": [{"held": False, "lostReason": "expired"}]})))
    store = caller.open(f"{found.url}?leased_require=consensus")
    assert len(caller(store.many([Look("key", TOKEN)], timeout=TIMEOUT))) == 1
