"""Answers of HTTP/1.1 are read from any pieces they come in, and what is none is never taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leased.stores._http_wire import Answer, NotHttp, Reading, Requests

WHOLE = [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody", Answer(200, b"body", keep=True)),
    (b"HTTP/1.1 200\r\ncontent-length:0\r\n\r\n", Answer(200, b"", keep=True)),
    (b"HTTP/1.1 503 No\r\nConnection: Close\r\nContent-Length: 1\r\n\r\nx", Answer(503, b"x", keep=False)),
    (b"HTTP/1.1 204 None\r\nContent-Length: 9\r\n\r\n", Answer(204, b"", keep=True)),
    (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", Answer(200, b"x", keep=False)),
    (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx", Answer(200, b"x", keep=True)),
    (b"HTTP/1.1 100 Go on\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", Answer(200, b"x", keep=True)),
    (
        b"HTTP/1.1 302 F\r\nLocation: /a\r\nContent-Length: 0\r\n\r\n",
        Answer(302, b"", keep=True, location="/a"),
    ),
    (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
        Answer(200, b"abc0123456789", keep=True),
    ),
    (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n1\r\na\r\n0\r\nX: y\r\nZ: w\r\n\r\n",
        Answer(200, b"a", keep=True),
    ),
]
NONE = [
    b"SSH-2.0-OpenSSH",
    b"HTTP/2 200\r\n\r\n",
    b"HTTP/1.1 2000 OK\r\n\r\n",
    b"HTTP/1.1 101 Other\r\nUpgrade: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nx",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nxy",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
    b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
    b"HTTP/1.1 200 OK\r\n folded\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nName : value\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 70_000,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"A: b\r\n" * 20_000,
]


def read(text: bytes, cuts: list[int]) -> Answer | None:
    """What is read when it comes in pieces, cut at these places."""
    reading, last = Reading(), 0
    for cut in [*sorted({cut % len(text) for cut in cuts}), len(text)]:
        if text[last:cut]:
            reading.feed(text[last:cut])
        last = cut
    return reading.answer


@pytest.mark.parametrize(("text", "answer"), WHOLE)
def test_an_answer_is_read_whole_and_byte_by_byte(text: bytes, answer: Answer) -> None:
    """It is there with its last byte, and not before."""
    assert read(text, []) == answer
    assert read(text, list(range(len(text)))) == answer
    assert read(text[:-1], []) is None


@given(which=st.sampled_from(WHOLE), cuts=st.lists(st.integers(0, 1_000), max_size=8))
def test_pieces_make_no_difference(which: tuple[bytes, Answer], cuts: list[int]) -> None:
    """Wherever it was cut, the same is read."""
    assert read(which[0], cuts) == which[1]


@pytest.mark.parametrize("text", NONE, ids=lambda text: repr(text[:60]))
def test_what_is_no_answer_is_not_taken_for_one(text: bytes) -> None:
    """Another protocol, lengths that contradict each other, and what has no end are told."""
    with pytest.raises(NotHttp):
        read(text, [])
    with pytest.raises(NotHttp):
        read(text, list(range(0, len(text), 100)))


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    """Then no other request may follow; one that ends before its length has not come."""
    reading = Reading()
    reading.feed(b"HTTP/1.1 200 OK\r\n\r\nbo")
    reading.feed(b"dy")
    assert [reading.answer, reading.end(), reading.answer] == [None, True, Answer(200, b"body", keep=False)]
    for begun in (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbod", b"HTTP/1.1 200", b""):
        reading = Reading()
        if begun:
            reading.feed(begun)
        assert not reading.end()
        assert reading.begun == bool(begun)


def test_more_than_the_answer_ends_the_connection() -> None:
    """What nobody asked for could be taken for the answer to the next request."""
    reading = Reading()
    reading.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200")
    assert reading.answer == Answer(200, b"x", keep=False)
    with pytest.raises(NotHttp):
        reading.feed(b" OK")


def test_interim_answers_without_end_do_no_harm() -> None:
    """Thousands of them in one piece are skipped like one."""
    reading = Reading()
    reading.feed(b"HTTP/1.1 103 E\r\n\r\n" * 3_000 + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert reading.answer == Answer(200, b"", keep=True)


@given(text=st.binary(max_size=200))
def test_no_bytes_are_more_than_refused(text: bytes) -> None:
    """Whatever follows a head, it is read, or refused as no answer."""
    for head in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
        try:
            Reading().feed(head + text)
        except NotHttp:
            continue


def test_requests_are_written_as_the_standard_asks() -> None:
    """Host, length and credential are there once; a body follows its head."""
    requests = Requests("h:1", path="/base", credential="lk_1_x")
    assert requests.get("/v1/locks?prefix=a") == (
        b"GET /base/v1/locks?prefix=a HTTP/1.1\r\nHost: h:1\r\nUser-Agent: leased\r\n"
        b"Accept: application/json, application/problem+json\r\nAccept-Encoding: identity\r\n"
        b"Authorization: Bearer lk_1_x\r\n\r\n"
    )
    for _ in range(2):
        head, _, body = requests.post("/v1/locks/look", b"{}").partition(b"\r\n\r\n")
        assert head.startswith(b"POST /base/v1/locks/look HTTP/1.1\r\nHost: h:1\r\n")
        assert head.endswith(b"Content-Type: application/json\r\nContent-Length: 2")
        assert body == b"{}"
    assert b"Authorization" not in Requests("h", path="", credential=None).get("/")
