"""What the service tells those who watch: events, metrics, health, logs. No secret is in any of it."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest

from leased.errors import AccessDenied, StoreUnavailable
from leased.server.events import Events
from leased.server.metrics import BUCKETS, Metrics
from leased.server.principals import LOCAL, Action, Principal, Shown
from leased.server.settings import Settings
from tests.server.running import Running, running
from tests.server.talking import PATIENCE, ask, until

TOKEN = "canary-canary-canary-canary-0001"


@pytest.fixture
def service() -> Iterator[Running]:
    with running() as one:
        yield one


def post(service: Running, name: str, **body: Any) -> Any:
    return ask(service.port, f"/v1/locks/{name}", body).json


class Stream:
    """A reader of `/v1/events`."""

    def __init__(self, port: int, *, headers: str = "") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._socket.sendall(f"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
        self._said = b""

    def until(self, text: bytes) -> bytes:
        """All that came, once that was among it."""
        give_up_at = time.monotonic() + PATIENCE
        while text not in self._said:
            assert time.monotonic() < give_up_at, self._said[-1000:]
            part = self._socket.recv(65_536)
            assert part, self._said
            self._said += part
        return self._said

    def events(self, last: str) -> list[dict[str, Any]]:
        """All events up to the first of that name."""
        self.until(b"event: " + last.encode())
        self.until(b"}\n\n")
        said = self._said.rpartition(b"}\n\n")[0] + b"}\n"
        return [
            json.loads(line[6:]) for line in said.replace(b"\r\n", b"\n").split(b"\n") if line.startswith(b"data: ")
        ]

    def close(self) -> None:
        self._socket.close()


def test_readers_hear_what_happens_to_locks(service: Running) -> None:
    """V1: a stream has acquired, contended, renewed, released, lost and forced releases in their order, no token."""
    with closing(Stream(service.port)) as stream:
        until(lambda: len(service.service.events) == 1, what="the stream")
        number = post(service, "acquire", key="k", ttlMs=60_000, token=TOKEN, owner="me", client="worker@host")[
            "fencingToken"
        ]
        post(service, "acquire", key="k", ttlMs=60_000)
        post(service, "renew", key="k", ttlMs=60_000, token=TOKEN)
        post(service, "renew", key="k", ttlMs=60_000, token="x" * 16)
        post(service, "release", key="k", token=TOKEN)
        post(service, "acquire", key="k", ttlMs=60_000)
        post(service, "force-release", key="k", reason="stuck")
        events = stream.events("force_released")
        assert [event["event"] for event in events] == [
            "acquired",
            "contended",
            "renewed",
            "lost",
            "released",
            "acquired",
            "force_released",
        ]
        assert events[0] == {
            "event": "acquired",
            "key": "k",
            "by": "local",
            "heldBy": "worker@host",
            "owner": "me",
            "fencingToken": number,
            "ttlMs": 60_000,
            "leftMs": 60_000,
        }
        assert TOKEN.encode() not in stream.until(b"force_released")
    until(lambda: len(service.service.events) == 0, what="the end of the stream")


def test_an_idle_stream_says_that_it_is_alive() -> None:
    """A reader and every proxy on the way can tell a quiet stream from a dead one."""
    with running(heartbeat=0.05) as service, closing(Stream(service.port)) as stream:
        assert stream.until(b": alive\n\n")


def test_streams_have_a_most_and_end_with_the_service() -> None:
    """No more streams than allowed; a shutdown ends those that are open instead of waiting for them."""
    with running(max_event_streams=1) as service, closing(Stream(service.port)) as stream:
        until(lambda: len(service.service.events) == 1, what="the stream")
        refused = ask(service.port, "/v1/events")
        assert (refused.status, refused.headers["retry-after"]) == (429, "5")
        service.stop()
        assert stream.until(b"0\r\n\r\n")


def test_a_slow_reader_is_told_what_it_missed() -> None:
    """A queue is bounded: the oldest events go, and their number is told; other projects' events are not there."""
    events = Events(Settings(event_queue=3))
    reader = events.open("mine")
    for number in range(5):
        events.publish("mine", "acquired", key=f"k{number}")
        events.publish("other", "acquired", key="hidden")
    assert (reader.missed, len(reader.queue)) == (2, 3)
    assert b"hidden" not in b"".join(reader.queue)

    async def read() -> bytes:
        stream = events.stream(reader)
        parts = [await anext(stream) for _ in range(3)]
        await stream.aclose()
        return b"".join(parts)

    import asyncio

    said = asyncio.run(read())
    assert b'"count":2' in said
    assert [b"k1" in said, b"k2" in said, b"k4" in said] == [False, True, True]
    assert len(events) == 0


def test_metrics_have_few_labels(service: Running) -> None:
    """C182: however many keys, owners and tokens there are, the number of series is bounded, and none names them."""
    for number in range(50):
        post(service, "acquire", key=f"key-{number}", ttlMs=60_000, owner=f"owner-{number}")
        ask(service.port, f"/nowhere/{number}")
    first = ask(service.port, "/metrics")
    assert first.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = first.body.decode()
    assert "key-" not in text
    assert "owner-" not in text
    assert "nowhere" not in text
    assert 'leased_operations_total{operation="acquire",outcome="held"} 50' in text
    assert 'leased_requests_total{route="other",status="404"} 50' in text
    assert len(text.splitlines()) < 400


def test_a_histogram_adds_up() -> None:
    """The buckets are cumulative; a duration that is a bound belongs below it."""
    metrics = Metrics({"up": ("That it runs.", lambda: 1.0)})
    counts = metrics.route("GET /x")
    for seconds in (0.0, BUCKETS[0], BUCKETS[-1] + 1.0):
        counts.add(200, seconds)
    text = metrics.text()
    assert 'leased_request_duration_seconds_bucket{route="GET /x",le="0.001"} 2' in text
    assert 'leased_request_duration_seconds_bucket{route="GET /x",le="30"} 2' in text
    assert 'leased_request_duration_seconds_bucket{route="GET /x",le="+Inf"} 3' in text
    assert 'leased_request_duration_seconds_count{route="GET /x"} 3' in text
    assert "up 1" in text


class Doors:
    """A gate that knows one credential, and refuses one action."""

    sessions = None

    def __init__(self, closed: Action | None = None) -> None:
        self.closed = closed

    def recall(self, shown: Shown) -> Principal | None:
        return None

    async def identify(self, shown: Shown, *, peer: str) -> Principal:
        return Principal(project="p", kind="member", id="ada")

    async def sign_in(self, credential: str, *, peer: str, life: float) -> tuple[Principal, None]:
        return Principal(project="p", kind="member", id="ada"), None

    async def admit(self, principal: Principal, action: Action, *, key: str = "", count: int = 1) -> None:
        if action == self.closed:
            raise AccessDenied("no")

    async def check(self) -> None:
        return None

    def spend(self, principal: Principal) -> None:
        return None

    async def bind(self, principal: Principal, request_id: str, *, parameters: Mapping[str, Any]) -> None:
        return None

    async def record(self, principal: Principal, action: Action, *, key: str, detail: str) -> None:
        return None

    def budgets(self, project: str) -> dict[str, dict[str, int | None]]:
        return {}

    async def close(self) -> None:
        return None


def test_metrics_of_a_service_with_credentials_need_their_token() -> None:
    """They count all projects, so that none of these may read them: only who shows the token of the metrics."""
    with running(gate=Doors(), registry="x", metrics_token="m" * 32) as service:
        for headers in ({}, {"Authorization": "Bearer nonsense"}, {"Authorization": "Bearer \xff"}):
            assert ask(service.port, "/metrics", headers=headers).status == 403
        assert ask(service.port, "/metrics", headers={"Authorization": "Bearer " + "m" * 32}).status == 200
    with running(gate=Doors(), registry="x") as service:
        assert ask(service.port, "/metrics", headers={"Authorization": "Bearer "}).status == 403


def test_a_denial_is_an_event() -> None:
    """V1, A3: who may watch hears of denials; whoever was denied hears nothing of the lock."""
    with running(gate=Doors("acquire"), registry="x") as service, closing(Stream(service.port)) as stream:
        until(lambda: len(service.service.events) == 1, what="the stream")
        refused = ask(service.port, "/v1/locks/acquire", {"key": "k", "ttlMs": 60_000})
        assert (refused.status, refused.json["code"]) == (403, "LOCK_ACCESS_DENIED")
        batch = {"operations": [{"operation": "acquire", "key": "k", "ttlMs": 60_000}]}
        (outcome,) = ask(service.port, "/v1/locks/batch", batch).json["outcomes"]
        assert outcome["code"] == "LOCK_ACCESS_DENIED"
        assert stream.events("denied")[0] == {"event": "denied", "key": "k", "by": "member:ada", "action": "acquire"}


def test_a_key_of_another_project_is_as_good_as_unused() -> None:
    """V5: keys are stored with their project and shown without it, in answers, lists and events."""
    with running("memory:shared-by-two", gate=Doors(), registry="x") as service:
        granted = post(service, "acquire", key="k", ttlMs=60_000, owner="me", client="forged@host:1")
        assert (granted["key"], granted["owner"]) == ("k", "me")
        (shown,) = ask(service.port, "/v1/locks").json["locks"]
        assert (shown["key"], shown["owner"], shown["heldBy"]) == ("k", "me", "member:ada")
        refused = post(service, "acquire", key="k", ttlMs=60_000)
        assert (refused["holder"]["key"], refused["holder"]["owner"]) == ("k", "me")
        with running("memory:shared-by-two") as other:
            assert post(other, "acquire", key="k", ttlMs=60_000)["acquired"] is True


class Failing:
    """A store that does not answer, or fails as no store should."""

    mode = "async"

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def status(self, key: str, *, timeout: float) -> Any:
        raise self._error

    acquire = status

    async def close(self) -> None:
        return None


def test_a_service_whose_store_is_gone_is_not_ready() -> None:
    """It lives, is not ready, and tells nothing of its store's place to whoever asks."""
    with running(Failing(StoreUnavailable("no route to db.internal", applied=False))) as service:  # type: ignore[arg-type]
        assert ask(service.port, "/healthz").status == 200
        answer = ask(service.port, "/readyz")
        assert answer.status == 503
        assert b"internal" not in answer.body


def test_a_fault_of_the_service_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """An error that nobody foresaw is answered 503 with an unknown effect; what it was stands in the log alone."""
    with running(Failing(ZeroDivisionError("canary"))) as service:  # type: ignore[arg-type]
        answer = ask(service.port, "/v1/locks/status?key=k")
        assert (answer.status, answer.json["applied"]) == (503, None)
        assert b"canary" not in answer.body
        assert "canary" in caplog.text


def test_requests_are_logged_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    """C176, SEC3: a line of JSON for each request, with neither tokens nor credentials nor the query."""
    caplog.set_level(logging.INFO, logger="leased.server")
    with running(log_requests=True) as service:
        post(service, "acquire", key="k", ttlMs=60_000, token=TOKEN, requestId="r-1")
        ask(service.port, f"/v1/locks/status?key={TOKEN}", headers={"Authorization": f"Bearer {TOKEN}"})
        ask(service.port, "/v1/locks/acquire", b'{"token": "%s"' % TOKEN.encode())
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "leased.server"]
    assert [line["status"] for line in lines] == [200, 200, 400]
    assert (lines[0]["path"], lines[0]["requestId"], lines[0]["principal"]) == ("/v1/locks/acquire", "r-1", "local")
    assert TOKEN not in caplog.text


def test_nobody_in_particular_is_local() -> None:
    """The principal of a service without credentials has a name that nobody else can have."""
    assert LOCAL.name == "local"
