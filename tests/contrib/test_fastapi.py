"""FastAPI under uvicorn: one request at a time for each order, and errors as answers."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import leased
from leased import aio
from tests.contrib.fastapi_app import make
from tests.servers.ports import Port
from tests.until import until

ROOT = Path(__file__).parents[2]
Ask: TypeAlias = Callable[[str], tuple[int, Any, Any]]


class Application:
    """The program, running."""

    def __init__(self, stack: ExitStack, store: str) -> None:
        self.store = store
        reserved = Port()
        stack.callback(reserved.release)
        self.port = reserved.number
        command = [sys.executable, "-m", "tests.contrib.fastapi_app", store, str(self.port)]
        self.program = subprocess.Popen(command, cwd=ROOT)
        stack.callback(self.program.wait)
        stack.callback(self.program.kill)
        until(self._answers, what="the application listens", seconds=60.0)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
        except ConnectionRefusedError:
            assert self.program.poll() is None
            return False
        return True

    def ask(self, path: str) -> tuple[int, Any, Any]:
        """Status, JSON and headers of the answer to a POST."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("POST", path)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read()), answer.headers
        finally:
            connection.close()


@pytest.fixture
def application(tmp_path: Path) -> Iterator[Application]:
    """The program on a file of this test alone."""
    with ExitStack() as stack:
        yield Application(stack, f"sqlite:{tmp_path / 'locks.db'}")


def test_one_request_at_a_time_for_each_order(application: Application) -> None:
    """P4: a second request for the same order is answered 409 with the key and its holder; another order is not
    held up, and the handler has the fencing token, also in its context."""
    with ThreadPoolExecutor() as pool, leased.connect(application.store) as locks:
        first = pool.submit(application.ask, "/orders/7?seconds=2.5")
        until(lambda: locks.status("order:7").held, what="the first one has the key")
        status, body, headers = application.ask("/orders/7?seconds=0")
        assert (status, body["code"], body["key"]) == (409, "LOCK_NOT_ACQUIRED", "order:7")
        assert headers["content-type"] == "application/problem+json"
        assert application.ask("/patient/7")[1]["code"] == "LOCK_TIMEOUT"
        assert application.ask("/orders/8?seconds=0")[0] == 200
        status, body, _ = first.result()
        assert status == 200
        assert body["fencingToken"] == body["current"] > 0
        assert application.ask("/orders/7?seconds=0")[1]["fencingToken"] > body["fencingToken"]


def test_errors_are_answers(application: Application) -> None:
    """P2, P4: each with its status; 429 says when to come back; a key that cannot be made is a 400."""
    status, body, headers = application.ask("/limited")
    assert (status, body["code"], headers["retry-after"]) == (429, "lock_rate_limited", "2")
    assert application.ask("/stale")[:2][0] == 409
    status, body, _ = application.ask("/wrong/7")
    assert (status, body["code"]) == (400, "LOCK_INVALID_REQUEST")
    assert "'order:{order_id}' cannot be filled in" in body["detail"]


def test_a_lost_lease_stops_the_handler(application: Application) -> None:
    """H3: an async handler is cancelled, and the answer says that the lease was lost."""
    status, body, _ = application.ask("/lose/7")
    assert (status, body["code"]) == (500, "LOCK_LOST")


def test_a_store_that_does_not_answer_is_a_503() -> None:
    """P4: and nothing is handled without the lease."""
    with ExitStack() as stack:
        status, body, _ = Application(stack, "redis://127.0.0.1:1?leased_timeout=0.5").ask("/orders/7?seconds=0")
        assert (status, body["code"], body["applied"]) == (503, "LOCK_STORE_UNAVAILABLE", False)
        assert "127.0.0.1" not in str(body)


def test_a_client_that_goes_away_leaves_nothing_held(application: Application) -> None:
    """P4: uvicorn lets the handler finish; its key is held as long as it works, and free when it has ended. Whoever
    went away while waiting for the key keeps nobody out either."""
    with leased.connect(application.store) as locks:
        gone = http.client.HTTPConnection("127.0.0.1", application.port, timeout=60)
        gone.request("POST", "/orders/7?seconds=1.0")
        until(lambda: locks.status("order:7").held, what="the request has the key")
        gone.close()
        waiting = http.client.HTTPConnection("127.0.0.1", application.port, timeout=60)
        waiting.request("POST", "/patient/7")
        waiting.close()
        assert locks.status("order:7").held
        assert application.ask("/orders/7?seconds=0")[0] == 409
        until(lambda: not locks.status("order:7").held, what="the handler has ended")
        assert application.ask("/orders/7?seconds=0")[0] == 200


def test_a_plain_handler_holds_the_key_while_its_thread_works(application: Application, tmp_path: Path) -> None:
    """P4: a `def` handler, in a thread of the server: longer than its lease, which is renewed, with handle and fencing
    token; others are refused meanwhile, and served when it has ended."""
    told = tmp_path / "told"
    with ThreadPoolExecutor() as pool, leased.connect(application.store) as locks:
        first = pool.submit(application.ask, f"/plain/7?told={told}")
        until(lambda: locks.status("order:7").held, what="the handler has the key")
        token = locks.status("order:7").fencing_token
        with pytest.raises(leased.LockTimeout):
            locks.lock("order:7", wait=2.5).acquire()
        assert application.ask("/orders/7?seconds=0")[0] == 409
        told.with_suffix(".go").touch()
        status, body, _ = first.result()
        assert (status, told.read_text()) == (200, "held")
        assert body == {"order": "7", "fencingToken": token, "current": token}
        until(lambda: locks.status("order:7").state == "free", what="it is released")
        assert application.ask("/orders/7?seconds=0")[1]["fencingToken"] > token


def test_a_plain_handler_whose_client_goes_away(application: Application, tmp_path: Path) -> None:
    """P4: the server lets the thread work on: the key is held until it has ended, and then free."""
    told = tmp_path / "told"
    with leased.connect(application.store) as locks:
        gone = http.client.HTTPConnection("127.0.0.1", application.port, timeout=60)
        gone.request("POST", f"/plain/7?told={told}")
        until(lambda: locks.status("order:7").held, what="the handler has the key")
        gone.close()
        with pytest.raises(leased.LockTimeout):
            locks.lock("order:7", wait=2.5).acquire()
        told.with_suffix(".go").touch()
        until(lambda: locks.status("order:7").state == "free", what="it is released")
        assert told.read_text() == "held"


def test_a_plain_handler_whose_lease_is_lost(application: Application, tmp_path: Path) -> None:
    """H3: the client is told at once; nobody can stop the thread, which finds out by `ensure_held` before it writes."""
    told = tmp_path / "told"
    with ThreadPoolExecutor() as pool, leased.connect(application.store) as locks:
        first = pool.submit(application.ask, f"/plain/7?told={told}")
        until(lambda: locks.status("order:7").held, what="the handler has the key")
        assert locks.force_release("order:7")
        with locks.lock("order:7", ttl=60, wait=5):
            status, body, _ = first.result()
            assert (status, body["code"], told.exists()) == (500, "LOCK_LOST", False)
            told.with_suffix(".go").touch()
            until(told.exists, what="the handler has looked")
            until(told.read_text, what="it has said so")
            assert told.read_text() == "LOCK_LOST"


def test_an_application_that_is_killed_frees_its_keys_with_the_ttl(application: Application) -> None:
    """S3: whoever is killed in the middle of a request blocks the order for a ttl, and no longer."""
    with ThreadPoolExecutor() as pool, leased.connect(application.store) as locks:
        broken = pool.submit(application.ask, "/orders/7?seconds=60")
        until(lambda: locks.status("order:7").held, what="the request has the key")
        application.program.kill()
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            broken.result()
        with locks.lock("order:7", wait=30):
            pass


def test_a_handler_in_a_thread_whose_request_is_cut_off(tmp_path: Path) -> None:
    """H3: nobody can stop a thread: where the request's task is cancelled the key is freed, and `ensure_held` tells
    the handler that works on."""
    store = f"sqlite:{tmp_path / 'locks.db'}"
    app = make(store)
    state = app.state
    state.begun, state.cut_off, state.told = threading.Event(), threading.Event(), []
    scope = {"type": "http", "method": "POST", "path": "/threaded/7", "headers": [], "query_string": b""}

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_: Any) -> None:
        raise AssertionError

    async def main() -> None:
        async with aio.connect(store) as state.locks:
            request = asyncio.create_task(app(scope, receive, send))
            await asyncio.to_thread(state.begun.wait, 30)
            assert (await state.locks.status("order:7")).held
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
            assert not (await state.locks.status("order:7")).held
            state.cut_off.set()
            await asyncio.to_thread(until, lambda: state.told, what="the handler has looked")

    asyncio.run(main())
    assert state.told == ["LOCK_NOT_HELD"]
