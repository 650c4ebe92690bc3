"""The operations of the service over a real socket, with the memory store behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from leased.aio_clock import LoopClock
from leased.model import Held, Lost
from leased.stores.memory import MemoryStore
from tests.server.running import Running, running
from tests.server.talking import Answer, ask

TOKEN = "t" * 32


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with running() as one:
        yield one


def post(service: Running, name: str, **body: Any) -> Answer:
    return ask(service.port, f"/v1/locks/{name}", body)


def take(service: Running, key: str, **more: Any) -> Any:
    answer = post(service, "acquire", **{"key": key, "ttlMs": 30_000, **more})
    assert answer.status == 200, answer.json
    return answer.json


def test_a_grant_says_all_that_a_holder_needs(service: Running) -> None:
    """V2: token, fencing token, the time left, the instant of the end under both names, and the renewal number."""
    granted = take(service, "grant", owner="me")
    assert granted["acquired"] is True
    assert 29_000 < granted["leftMs"] <= granted["ttlMs"] == 30_000
    assert granted["expiresAt"] == granted["leaseExpiresAt"]
    assert (granted["key"], granted["owner"], granted["renewal"], granted["waitedMs"]) == ("grant", "me", 0, 0)
    assert len(granted["token"]) >= 32


def test_contention_is_an_answer(service: Running) -> None:
    """V2: 200 with `acquired: false`, the holder without any secret, and when to ask again."""
    granted = take(service, "busy", client="job@host:1", metadata={"a": 1})
    refused = take(service, "busy")
    assert refused["acquired"] is False
    assert refused["holder"]["heldBy"] == "job@host:1"
    assert refused["holder"]["metadata"] == {"a": 1}
    assert refused["holder"]["fencingToken"] == granted["fencingToken"]
    assert refused["retryAfterMs"] > 0
    assert granted["token"] not in str(refused)


def test_a_token_of_ones_own_is_answered_again(service: Running) -> None:
    """O5, C043: a repeated claim finds its own grant; once it has ended, the token gets no other."""
    first = take(service, "again", token=TOKEN)
    assert take(service, "again", token=TOKEN)["fencingToken"] == first["fencingToken"]
    assert post(service, "release", key="again", token=TOKEN).json == {"released": True}
    late = take(service, "again", token=TOKEN)
    assert (late["acquired"], late["ended"]) == (False, True)


def test_renewal_and_loss(service: Running) -> None:
    """M7: a renewal sets the end; an older number changes nothing; a token that holds nothing has lost its lease."""
    token = take(service, "renewed")["token"]
    longer = post(service, "renew", key="renewed", token=token, ttlMs=60_000, renewal=5).json
    assert (longer["renewed"], longer["renewal"]) == (True, 5)
    older = post(service, "renew", key="renewed", token=token, ttlMs=1_000, renewal=4).json
    assert older["renewal"] == 5
    assert older["leftMs"] > 50_000
    unnumbered = post(service, "renew", key="renewed", token=token, ttlMs=40_000).json
    assert (unnumbered["renewal"], unnumbered["leftMs"] <= 40_000) == (6, True)
    post(service, "release", key="renewed", token=token)
    lost = {"renewed": False, "reason": "lease_lost", "lostReason": "expired"}
    assert post(service, "renew", key="renewed", token=token, ttlMs=1_000).json == lost
    assert post(service, "renew", key="renewed", token=token, ttlMs=1_000, renewal=9).json == lost


class Timed(MemoryStore):
    """A store that notes how many seconds it was given for renewals and looks."""

    def __init__(self) -> None:
        super().__init__(LoopClock())
        self.given: list[float] = []

    async def renew(self, key: str, token: str, *, ttl: float, number: int, timeout: float) -> Held | Lost:
        self.given.append(timeout)
        return await super().renew(key, token, ttl=ttl, number=number, timeout=timeout)

    async def look(self, key: str, token: str, *, timeout: float) -> Held | Lost:
        self.given.append(timeout)
        return await super().look(key, token, timeout=timeout)


@pytest.mark.parametrize(
    ("ttl", "whole", "given"), [(1, 5.0, 0.1), (299, 5.0, 0.1), (3_000, 5.0, 1.0), (60_000, 5.0, 5.0), (1, 0.05, 0.05)]
)
def test_a_renewal_has_the_time_of_a_round_trip(ttl: int, whole: float, given: float) -> None:
    """A third of the lease, as a holder gives it; but one of a millisecond would find every store too busy."""
    store = Timed()
    with running(store, timeout=whole) as one:
        lost = {"renewed": False, "reason": "lease_lost", "lostReason": "expired"}
        for more in ({"renewal": 1}, {}):
            assert post(one, "renew", key="k", token=TOKEN, ttlMs=ttl, **more).json == lost
    assert {round(seconds, 6) for seconds in store.given} == {given}


def test_each_way_to_end_a_lease(service: Running) -> None:
    """C186: release, abandon and forced release each say what they found, truly."""
    token = take(service, "ended")["token"]
    assert post(service, "look", key="ended", token=token).json["held"] is True
    assert post(service, "release", key="ended", token="x" * 32).json == {"released": False, "reason": "not_holder"}
    assert post(service, "release", key="ended", token=token).json == {"released": True}
    assert post(service, "look", key="ended", token=token).json == {"held": False, "lostReason": "expired"}
    assert post(service, "abandon", key="ended", token=token).json == {"abandoned": True}
    number = take(service, "ended")["fencingToken"]
    assert post(service, "force-release", key="ended", fencingToken=number - 1).json == {"released": False}
    assert post(service, "force-release", key="ended", fencingToken=number, reason="stuck").json == {"released": True}


def test_status_and_list(service: Running) -> None:
    """M11: status shows one key, held or free; a list gives pages in the order of bytes."""
    for name in ("list:b", "list:a", "list:c"):
        take(service, name)
    shown = ask(service.port, "/v1/locks/status?key=list%3Aa").json
    assert (shown["state"], shown["held"], shown["key"], shown["waiters"]) == ("held", True, "list:a", 0)
    assert ask(service.port, "/v1/locks/status?key=list%3Ax").json["state"] == "free"
    page = ask(service.port, "/v1/locks?prefix=list%3A&limit=2").json["locks"]
    assert [one["key"] for one in page] == ["list:a", "list:b"]
    page = ask(service.port, "/v1/locks?prefix=list%3A&limit=2&after=list%3Ab").json["locks"]
    assert [one["key"] for one in page] == ["list:c"]


def test_a_batch_answers_each_as_if_alone(service: Running) -> None:
    """Outcomes come in order; what is wrong with one of them stands in its place."""
    token = "b" * 32
    body = {
        "operations": [
            {"operation": "acquire", "key": "batch", "ttlMs": 30_000, "token": token},
            {"operation": "acquire", "key": "batch", "ttlMs": 30_000},
            {"operation": "renew", "key": "batch", "token": token, "ttlMs": 1_000},
            {"operation": "look", "key": "batch", "token": token},
            {"operation": "release", "key": "batch", "token": token},
            {"operation": "abandon", "key": "batch", "token": token},
        ]
    }
    answer = ask(service.port, "/v1/locks/batch", body)
    assert answer.status == 200
    granted, refused, wrong, held, released, abandoned = answer.json["outcomes"]
    assert (granted["acquired"], refused["acquired"], wrong["code"]) == (True, False, "LOCK_INVALID_REQUEST")
    assert (held["held"], released, abandoned) == (True, {"released": True}, {"abandoned": True})


@pytest.mark.parametrize("key", ["a/b", "a%2Fb", "a b", "a?b#c", "..", ".", "ä", "%", "a;b", "a+b", "😀" * 255])
def test_any_key_works_in_body_and_query(service: Running, key: str) -> None:
    """C147, C152: keys travel in bodies and query strings, and none is ever taken for another."""
    from urllib.parse import quote_plus

    token = take(service, key)["token"]
    assert ask(service.port, f"/v1/locks/status?key={quote_plus(key)}").json["key"] == key
    assert post(service, "release", key=key, token=token).json == {"released": True}


def test_request_ids_come_back(service: Running) -> None:
    """V1: every call accepts `requestId` and answers with it, also when it is refused."""
    assert take(service, "named", requestId="r-1")["requestId"] == "r-1"
    refused = post(service, "renew", key="named", token="x", ttlMs=1_000, requestId="r-2").json
    assert refused["requestId"] == "r-2"
    assert post(service, "acquire", key="\x01", ttlMs=1_000, requestId="r-3").json["requestId"] == "r-3"


@pytest.mark.parametrize("text", ["\x1f", "a\x00b", "a\nb", "\x1b[2J", "\x85"])
@pytest.mark.parametrize("member", ["owner", "client"])
def test_names_have_no_control_characters(service: Running, member: str, text: str) -> None:
    """M12: an owner or a client that would move a reader's cursor is refused, alone and in a batch; nothing is held."""
    refused = post(service, "acquire", key="plain", ttlMs=30_000, **{member: text})
    assert refused.status == 400
    assert f"U+{next(ord(one) for one in text if not one.isprintable()):04X}" in refused.json["detail"]
    asked = {"operation": "acquire", "key": "plain", "ttlMs": 30_000, member: text}
    (outcome,) = ask(service.port, "/v1/locks/batch", {"operations": [asked]}).json["outcomes"]
    assert outcome["status"] == 400
    assert ask(service.port, "/v1/locks/status?key=plain").json["state"] == "free"
