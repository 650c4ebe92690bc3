"""Answers of the right form that say nothing that was asked for: an error of ours, never a bare one of Python's."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from leased.errors import StoreNotUsable, StoreUnavailable
from leased.model import Abandon, Acquire, Claim, Look, Operation, Release, Renew
from leased.stores._redis_wire import packed
from tests.servers.process import Server
from tests.stores.redis.conftest import TIMEOUT, Caller

SOON = 0.5
NONSENSE = (
    b"+OK\r\n",
    b":7\r\n",
    b"$3\r\nfoo\r\n",
    b"$-1\r\n",
    b"*0\r\n",
    b"*1\r\n*1\r\n:5\r\n",
    b"*-1\r\n",
    b"$0\r\n\r\n",
)
KINDS = {"server": "redis://{}", "cluster": "redis+cluster://{}", "sentinel": "redis+sentinel://{}/service"}

Answering = Callable[[bytes], bytes | None]
"""The answer to a command, if it is another one than that of a server that has no data."""


class Parrot:
    """Answers every command, whatever it is, as `answering` says."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.place = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connected, _ = self._listening.accept()
                self._open.append(connected)
                self._threads.append(threading.Thread(target=self._serve, args=(connected,)))
                self._threads[-1].start()

    def _serve(self, connected: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := connected.recv(65_536):
                commands = [b"*" + command for command in data.split(b"\r\n*")]
                connected.sendall(b"".join(self._answer(command) for command in commands))

    def _answer(self, command: bytes) -> bytes:
        return self._answering(command) or _sane(command)

    def close(self) -> None:
        """Listen no more, and let all threads end."""
        for one in (self._listening, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(TIMEOUT)


def _sane(command: bytes) -> bytes:
    """What a server answers to what is said on every new connection."""
    if b"INFO" in command:
        return b"$13\r\nrole:master\r\n\r\n"
    return b"*0\r\n" if b"CONFIG" in command else b"+OK\r\n"


@pytest.fixture
def parrot() -> Iterator[Callable[[Answering], str]]:
    """Starts one that answers so; where it listens."""
    with contextlib.ExitStack() as closing:

        def start(answering: Answering) -> str:
            started = Parrot(answering)
            closing.callback(started.close)
            return started.place

        yield start


@pytest.mark.parametrize("answer", NONSENSE)
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_only_talks_nonsense_is_told(
    caller: Caller, parrot: Callable[[Answering], str], kind: str, answer: bytes
) -> None:
    """S2: whatever stands in an answer while connecting, the caller gets an error of this library: nothing applied."""
    store = caller.open(KINDS[kind].format(parrot(lambda _: answer)))
    with pytest.raises(StoreUnavailable) as caught:
        caller(store.acquire(Claim("key", "token", 30.0), timeout=SOON))
    assert caught.value.applied is False


@pytest.mark.parametrize("answer", NONSENSE)
def test_a_script_that_is_answered_with_nonsense_leaves_its_caller_unsure(
    caller: Caller, parrot: Callable[[Answering], str], answer: bytes
) -> None:
    """S2: nobody knows whether it ran; in a batch each member says so."""
    store = caller.open(f"redis://{parrot(lambda command: answer if b'EVAL' in command else None)}")
    asked: list[Operation] = [
        Acquire(Claim("a", "token", 30.0)),
        Renew("b", "token", 30.0, 1),
        Release("c", "token"),
        Abandon("d", "token"),
        Look("e", "token"),
    ]
    for call in (
        store.acquire(Claim("key", "token", 30.0), timeout=TIMEOUT),
        store.renew("key", "token", ttl=30.0, number=1, timeout=TIMEOUT),
        store.release("key", "token", timeout=TIMEOUT),
        store.abandon("key", "token", timeout=TIMEOUT),
        store.look("key", "token", timeout=TIMEOUT),
        store.status("key", timeout=TIMEOUT),
        store.force_release("key", timeout=TIMEOUT),
    ):
        with pytest.raises(StoreUnavailable, match="no sense") as caught:
            caller(call)
        assert caught.value.applied is None
    for outcome in caller(store.many(asked, timeout=TIMEOUT)):
        assert isinstance(outcome, StoreUnavailable)
        assert outcome.applied is None


@pytest.mark.parametrize("answer", NONSENSE)
def test_a_list_of_names_that_is_none_is_told(
    caller: Caller, parrot: Callable[[Answering], str], answer: bytes
) -> None:
    """L7: what a scan of all names is answered with must be names."""
    store = caller.open(f"redis://{parrot(lambda command: answer if b'SCAN' in command else None)}")
    with pytest.raises(StoreUnavailable, match="no sense"):
        caller(store.list("", after="", limit=5, timeout=TIMEOUT))


def test_more_answers_than_questions_end_the_connection(caller: Caller, parrot: Callable[[Answering], str]) -> None:
    """S2: where answers and questions do not match, no answer is believed, and the next call connects anew."""
    several = [b":1\r\n:2\r\n"]
    place = parrot(lambda command: several.pop() if b"EVAL" in command and several else None)
    store = caller.open(f"redis://{place}")
    with pytest.raises(StoreUnavailable, match="more answers") as caught:
        caller(store.status("key", timeout=TIMEOUT))
    assert caught.value.applied is None
    with pytest.raises(StoreUnavailable, match="no sense"):
        caller(store.status("key", timeout=TIMEOUT))


def test_a_move_to_nowhere_is_told(caller: Caller, parrot: Callable[[Answering], str]) -> None:
    """A cluster that sends a command away without saying where is no reason to fail in another way."""
    slots = b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:%d\r\n"
    port: list[int] = []

    def answer(command: bytes) -> bytes | None:
        if b"SLOTS" in command:
            return slots % port[0]
        return b"-MOVED away\r\n" if b"EVAL" in command else None

    place = parrot(answer)
    port.append(int(place.rpartition(":")[2]))
    store = caller.open(f"redis+cluster://{place}")
    with pytest.raises(StoreNotUsable, match="MOVED"):
        caller(store.status("key", timeout=TIMEOUT))


def test_a_watch_survives_what_it_cannot_read(caller: Caller, parrot: Callable[[Answering], str]) -> None:
    """W3: nonsense on the listening connection ends that connection, not the thread that listens for all."""
    confirmed = packed(b"subscribe", b"leased::{key}")[:-2] + b"\r\n:1\r\n"
    sane = confirmed.replace(b"*2", b"*3", 1)
    answers = [sane, b":5\r\n", b"*1\r\n:5\r\n"]
    heard: list[bytes] = []

    def answer(command: bytes) -> bytes | None:
        if b"SUBSCRIBE" not in command:
            return None
        heard.append(command)
        return answers.pop() if len(answers) > 1 else sane

    store = caller.open(f"redis://{parrot(answer)}")
    with contextlib.suppress(StoreUnavailable):
        caller(store.watch("key", lambda: None))
    give_up_at = time.monotonic() + 2 * TIMEOUT
    while len(heard) < 3:
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def test_a_port_without_tls_is_told_as_such(
    caller: Caller, valkey_server: Server, private_valkey: Callable[..., Server]
) -> None:
    """S2: `rediss://` to a port that does not speak TLS, and `redis://` to one that does, say what to write instead."""
    plain = caller.open(f"rediss://{valkey_server.host}:{valkey_server.port}")
    with pytest.raises(StoreUnavailable) as caught:
        caller(plain.status("key", timeout=SOON))
    assert "redis://" in (caught.value.hint or "")
    secure = private_valkey("redis", tls=True)
    with pytest.raises(StoreUnavailable) as caught:
        caller(caller.open(f"redis://{secure.host}:{secure.port}").status("key", timeout=TIMEOUT))
    assert "rediss://" in (caught.value.hint or "")


def test_a_database_that_is_not_there_is_told_as_such(caller: Caller, valkey_server: Server) -> None:
    """S2: the hint names the database in the URL, not scripts."""
    store = caller.open(f"redis://{valkey_server.host}:{valkey_server.port}/99")
    with pytest.raises(StoreNotUsable, match="DB index") as caught:
        caller(store.status("key", timeout=TIMEOUT))
    assert "database" in (caught.value.hint or "")
