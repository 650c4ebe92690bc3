"""What stands between and behind the chunks of a body: never a header, and never without end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from leased.server.connections import MAX_HEAD
from leased.server.gate import Budgets
from leased.server.limits import Budget
from tests.server.access.gates import PLENTY, World
from tests.server.running import Running, running
from tests.server.talking import PATIENCE, ask
from tests.server.test_hostile import statuses
from tests.server.test_known_heads import TYPICAL, Reading

BODY = b'{"key":"trailed","token":"tttttttttttttttttttt"}'
HEAD = b"POST /v1/locks/look HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)
FORGED = b"Authorization: Bearer x\r\nX-Forwarded-For: 10.0.0.1\r\nHost: evil.example\r\nExpect: 100-continue\r\n"
TOO_LONG = b"more than %d bytes" % MAX_HEAD


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with running() as one:
        yield one


def exchange(talking: socket.socket, *pieces: bytes) -> bytes:
    """What the service says to these pieces, up to the end of one answer or of the connection."""
    found = b""
    for piece in pieces:
        with suppress(OSError):
            talking.sendall(piece)
    with suppress(OSError):
        while not (b"\r\n\r\n" in found and found.endswith(b"}")) and (part := talking.recv(65_536)):
            found += part
    return found


@pytest.mark.parametrize("cut", range(0, len(CHUNKED + CHUNKS + FORGED) + 2, 7))
def test_a_trailer_is_no_header(cut: int) -> None:
    """RFC 9110, 6.5.1: whatever it says, and wherever the packets end, a request is read by its head alone."""
    data = CHUNKED + CHUNKS + FORGED + b"\r\n"

    async def talk() -> None:
        plain = await Reading().say(CHUNKED + CHUNKS + b"\r\n")
        talking = Reading()
        first, _, _ = await talking.say(data[:cut])
        second = await talking.say(data[cut:])
        assert (first + second[0], *second[1:]) == plain
        assert talking.connection.headers == [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"transfer-encoding", b"chunked"),
        ]

    asyncio.run(talk())


@pytest.mark.parametrize("cut", [0, len(CHUNKS) - 3])
def test_a_trailer_lets_nobody_in_and_moves_no_limit(cut: int) -> None:
    """SEC5: a credential counts in the head alone, and so does the address that a proxy wrote."""
    failures = Budget(3, 3600.0)
    world = World(budgets=Budgets(attempts=PLENTY.attempts, requests=PLENTY.requests, failures=failures))
    valid = b"Authorization: Bearer %b\r\n" % world.key("member", "ada").text.encode()
    wrong = CHUNKED.replace(b"\r\n\r\n", b"\r\nX-Forwarded-For: 9.9.9.9\r\nAuthorization: Bearer lk_bad\r\n\r\n")
    said = []
    with running(gate=world.gate, registry="in memory", proxy_hops=1) as service:
        for head, trailer in [(CHUNKED, valid)] + [(wrong, b"X-Forwarded-For: 10.0.0.%d\r\n" % n) for n in range(5)]:
            data = CHUNKS + trailer + b"\r\n"
            with closing(socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE)) as talking:
                said += statuses(exchange(talking, head + data[:cut], data[cut:]))
    assert said == [401] * 4 + [429] * 2


def test_a_head_behind_trailers_is_a_head() -> None:
    """In the same packet, on the same connection, and where it was seen before."""

    async def talk() -> None:
        one = TYPICAL % (2, b"{}")
        alone = await Reading().say(one)
        talking = Reading()
        for _ in range(3):
            seen, _, closed = await talking.say(CHUNKED + CHUNKS + FORGED + b"\r\n" + one)
            assert (seen[1:], closed) == (alone[0], False)
            assert await talking.say(one) == alone

    asyncio.run(talk())


def test_small_trailers_are_accepted_again_and_again(service: Running) -> None:
    """Those of one request do not count for the next, and the connection goes on."""
    trailers = b"X-Checksum: %b\r\n" % (b"a" * 9_000)
    with closing(socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE)) as talking:
        for _ in range(10):
            assert statuses(exchange(talking, CHUNKED + CHUNKS, trailers + FORGED + b"\r\n")) == [200]
            assert statuses(exchange(talking, CHUNKED + CHUNKS + trailers + b"\r\n")) == [200]


MANY = b"".join(b"a%d: b\r\n" % number for number in range(3_000))
ENDLESS = {
    "one trailer": CHUNKS + b"X: " + b"a" * 20_000,
    "one trailer that ends": CHUNKS + b"X: %b\r\n\r\n" % (b"a" * 20_000),
    "the name of a trailer": CHUNKS + b"a" * 20_000,
    "many trailers": CHUNKS + MANY,
    "many trailers that end": CHUNKS + MANY + b"\r\n",
    "an extension of a chunk": b"%x;" % len(BODY) + b"a" * 20_000,
    "the value of an extension": b'%x;a="' % len(BODY) + b"a" * 20_000,
    "an extension of the last chunk": CHUNKS[:-2] + b";" + b"a" * 20_000,
    "the size of a chunk": b"0" * 20_000,
}


@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.parametrize("packet", [1_000, 300_000])
def test_what_does_not_end_is_refused_and_no_more_of_it_is_read(name: str, packet: int) -> None:
    """SEC12: after the bytes of a head at the most, and two packets, the answer is 400 and the connection closed."""
    data = ENDLESS[name]

    async def talk() -> None:
        talking, given, answered = Reading(), 0, b""
        await talking.say(CHUNKED)
        for begin in range(0, 1_000_000, packet):
            piece = data[begin : begin + packet]
            given += len(piece)
            _, answered, closed = await talking.say(piece or b"a" * packet)
            if closed:
                break
        assert given <= MAX_HEAD + 2 * packet
        assert talking.seen == []
        assert statuses(answered) == [400]
        assert TOO_LONG in answered

    asyncio.run(talk())


def test_a_client_that_sends_trailers_without_end_stops_nobody(service: Running) -> None:
    """SEC12: over a real connection it hears why, or is cut, long before it is done."""
    for endless in (CHUNKS + b"X: ", CHUNKS + MANY, b"1;"):
        with closing(socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE)) as talking:
            talking.sendall(CHUNKED + endless)
            with pytest.raises(ConnectionError):
                talking.sendall(b"a" * 200_000_000)
        assert ask(service.port, "/healthz").status == 200
    with closing(socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE)) as talking:
        said = exchange(talking, CHUNKED + CHUNKS, b"X: %b\r\n\r\n" % (b"a" * MAX_HEAD))
    assert statuses(said) == [400]
    assert TOO_LONG in said


@pytest.mark.parametrize("end", [b"\r\n\r\n", b""])
def test_a_head_that_is_too_long_is_told_the_limit(end: bytes) -> None:
    """The refusal says how many bytes there may be, whether the head ends or not."""

    async def talk() -> None:
        talking = Reading()
        await talking.say(b"GET /healthz HTTP/1.1\r\n")
        seen, answered, closed = await talking.say(b"X: " + b"a" * 20_000 + end)
        assert (seen, statuses(answered), closed) == ([], [400], True)
        assert TOO_LONG in answered

    asyncio.run(talk())
