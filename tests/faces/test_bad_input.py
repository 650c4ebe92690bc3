"""What cannot work is refused at once, before any store: each message names the value, the limit and the next step."""

import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

import leased
from leased import InvalidRequest, StoreNotUsable
from tests.faces.world import Face, World, done

DAY = 86_400.0


def named(value: Any) -> str:
    """A name for a test, the same in every process."""
    return re.sub(r" at 0x\w+", "", repr(value))[:40]


LONGEST = 90 * DAY
NAN, INF = float("nan"), float("inf")

GOOD_DURATIONS: list[tuple[Any, float]] = [
    (1, 1.0),
    (1.5, 1.5),
    (0.105, 0.105),
    (0.999, 0.999),
    (Decimal("1.5"), 1.5),
    (Fraction(3, 2), 1.5),
    (timedelta(minutes=1, milliseconds=250), 60.25),
    ("30", 30.0),
    ("1.5", 1.5),
    (".5", 0.5),
    ("250ms", 0.25),
    ("1.5s", 1.5),
    ("1m30s", 90.0),
    ("1h", 3_600.0),
    ("2h30m10s500ms", 9_010.5),
    ("1d", DAY),
    ("1w", 7 * DAY),
    (" 30s ", 30.0),
    (LONGEST, LONGEST),
    (int(LONGEST), LONGEST),
    ("90d", LONGEST),
    (timedelta(days=90), LONGEST),
]

NO_DURATIONS: list[Any] = [
    None,
    True,
    False,
    "",
    " ",
    "soon",
    "1 m",
    "1m 30s",
    "\u0663s",
    "\uff15",
    Decimal("sNaN"),
    "30sec",
    "m",
    "1m30",
    "-5s",
    "5s-",
    "1e3",
    "nan",
    "inf",
    "0x10",
    "1,5",
    b"5",
    bytearray(b"5"),
    [],
    (5,),
    {},
    object(),
    1 + 2j,
]

OUT_OF_RANGE: list[Any] = [
    0,
    -1,
    -0.0,
    0.104999,
    "104ms",
    timedelta(0),
    timedelta(seconds=-1),
    Decimal("0.1"),
    LONGEST + 0.001,
    int(LONGEST) + 1,
    2**31,
    2**53,
    2**63,
    2**1_100,
    "2147483648",
    "91d",
    timedelta.max,
    INF,
    -INF,
    NAN,
    Decimal("Infinity"),
    Decimal("NaN"),
]


@pytest.mark.parametrize(("value", "seconds"), GOOD_DURATIONS, ids=named)
async def test_durations_are_seconds_timedelta_or_text(world: World, value: Any, seconds: float) -> None:
    """L1, C051, C061: numbers, `timedelta` and text mean the same, exactly, up to the documented maximum."""
    handle = await world.take(world.locks.lock("k", ttl=value))
    assert handle.ttl == seconds
    status = await done(world.locks.status("k"))
    assert status.expires_in == pytest.approx(seconds, abs=0.5)
    assert await done(handle.renew(value))
    assert handle.ttl == seconds


@pytest.mark.parametrize("value", [*NO_DURATIONS, *OUT_OF_RANGE], ids=named)
async def test_a_ttl_that_cannot_be_one_is_refused_before_the_store(world: World, value: Any) -> None:
    """M5, C061: no ttl outside 105 ms to 90 days, of no other kind; nothing wraps or reaches the store."""
    with pytest.raises(InvalidRequest) as raised:
        world.locks.lock("k", ttl=value)
    assert isinstance(raised.value, ValueError)
    assert "ttl" in raised.value.message
    assert raised.value.hint
    assert world.store.requests == 0


@pytest.mark.parametrize("value", [0, 0.104, LONGEST + 1, 2**53], ids=named)
def test_a_ttl_out_of_range_has_its_own_code_and_names_the_limits(value: Any) -> None:
    """The code is `LOCK_TTL_OUT_OF_RANGE`; message and hint name value, both limits and what to think of."""
    with pytest.raises(InvalidRequest) as raised:
        leased.lock("k", ttl=value)
    assert raised.value.code == "LOCK_TTL_OUT_OF_RANGE"
    for word in (str(value), "0.105", "7776000", "90 days"):
        assert word in str(raised.value)


@pytest.mark.parametrize("value", [*NO_DURATIONS[1:], -1, "-1s", NAN, -INF], ids=named)
async def test_a_wait_that_cannot_be_one_is_refused(world: World, value: Any) -> None:
    """W1: a wait is a duration or `FOREVER`, in the recipe and in `acquire`."""
    with pytest.raises(InvalidRequest, match="wait"):
        world.locks.lock("k", wait=value)
    with pytest.raises(InvalidRequest, match="wait"):
        await done(world.locks.lock("k").acquire(value))
    assert world.store.requests == 0


@pytest.mark.parametrize("value", [0, 0.0, "0", "0s", timedelta(0), 1e9, leased.FOREVER, "365d"], ids=named)
async def test_any_other_wait_is_allowed(world: World, value: Any) -> None:
    """W1: zero and long waits work; the key is free, so nobody waits."""
    assert await done((await world.take(world.locks.lock("k", wait=value))).release())
    assert await done((await world.take(world.locks.lock("k"), value)).release())


BAD_KEYS: list[tuple[Any, str]] = [
    ("", "empty"),
    ("x" * 256, "256 characters"),
    ("a\0b", "U+0000"),
    ("a\nb", "U+000A"),
    ("a\x7fb", "U+007F"),
    ("a\x85b", "U+0085"),
    ("a\x1b[31mb", "U+001B"),
    ("\ud800", "U+D800"),
    (b"k", "bytes"),
    (None, "NoneType"),
    (7, "int"),
    (("a",), "tuple"),
]


@pytest.mark.parametrize(("key", "word"), BAD_KEYS, ids=named)
async def test_a_key_that_cannot_be_one_is_refused_everywhere(world: World, key: Any, word: str) -> None:
    """S3, C152: 1 to 255 characters (not bytes) without control characters; the message says which rule and where."""
    calls: list[Callable[[], Any]] = [
        lambda: world.locks.lock(key),
        lambda: world.locks.status(key),
        lambda: world.locks.force_release(key),
        lambda: world.locks.abandon(key, "a-token-of-my-own-0001"),
        lambda: world.face.module.lock(key),
    ]
    for call in calls:
        with pytest.raises(InvalidRequest) as raised:
            await done(call())
        assert raised.value.code == "LOCK_KEY_INVALID"
        assert word in str(raised.value)
        assert raised.value.hint or word == "empty"
        assert raised.value.message.isprintable()
    assert world.store.requests == 0


@pytest.mark.parametrize(
    "key", ["k", "x" * 255, "ü" * 255, "語" * 255, "\U0001f600" * 255, " ", "a b", "\u202e", "%00", "..", "{"]
)
async def test_any_other_text_is_a_key(world: World, key: str) -> None:
    """S3, C152: one, two, three and four byte characters count as one; anything printable or not control works."""
    handle = await world.take(world.locks.lock(key))
    assert handle.key == key
    assert (await done(world.locks.status(key))).held
    assert [status.key for status in await done(world.locks.list(key))] == [key]


@pytest.mark.parametrize(
    "metadata",
    [
        [],
        "text",
        {1: "a"},
        {"a": object()},
        {"a": NAN},
        {"a": INF},
        {"a": {1, 2}},
        {"host": "mine"},
        {"pid": 1},
        {"program": "x"},
        {"a": "x" * 1_016},
    ],
    ids=named,
)
async def test_metadata_that_cannot_be_kept_is_refused(world: World, metadata: Any) -> None:
    """M12: a dictionary of at most 1 KiB as JSON, with text keys, and none that every lease carries by itself."""
    with pytest.raises(InvalidRequest, match="metadata"):
        world.locks.lock("k", metadata=metadata)
    assert await done((await world.take(world.locks.lock("k", metadata={"a": "x" * 1_015}))).release())


def test_metadata_that_is_itself_inside_is_refused() -> None:
    """M12: a circle is no JSON."""
    circle: dict[str, Any] = {}
    circle["self"] = circle
    with pytest.raises(InvalidRequest, match="metadata"):
        leased.lock("k", metadata=circle)
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidRequest, match="metadata"):
        leased.lock("k", metadata={"deep": deep})


SPANS: list[tuple[str, Any, Any]] = [
    ("max_hold", 0.105, 0.104),
    ("max_hold", LONGEST, LONGEST + 1),
    ("hold_at_least", 0, -1),
    ("hold_at_least", LONGEST, LONGEST + 1),
    ("lock_delay", 0, -1),
    ("lock_delay", LONGEST, LONGEST + 1),
    ("retry_delay", 0.001, 0.0009),
    ("retry_delay", 1, 1.001),
]


@pytest.mark.parametrize(("name", "good", "bad"), SPANS, ids=named)
async def test_each_term_has_its_limits_on_both_sides(world: World, name: str, good: Any, bad: Any) -> None:
    """M8, M9, M10: the limit itself works, beyond it the message names option, value and limits."""
    world.locks.lock("k", ttl=0.105, **{name: good})
    for value in (bad, NAN, "soon", True, INF):
        with pytest.raises(InvalidRequest, match=name):
            world.locks.lock("k", **{name: value})
    with pytest.raises(InvalidRequest) as raised:
        world.locks.lock("k", **{name: bad})
    assert str(bad) in str(raised.value)


COMBINATIONS: list[dict[str, Any]] = [
    {"if_lost": "ignore"},
    {"if_lost": None},
    {"enforce": True, "renew": True},
    {"enforce": True, "ttl": 5, "wait": 5},
    {"enforce": True, "ttl": 5, "wait": leased.FOREVER},
]


@pytest.mark.parametrize("options", COMBINATIONS, ids=named)
async def test_options_that_contradict_each_other_are_refused(world: World, options: dict[str, Any]) -> None:
    """H4, H5: `if_lost` has two words; an enforced lease never renews, and its ttl must exceed its wait."""
    with pytest.raises(InvalidRequest):
        world.locks.lock("k", **options)


async def test_a_bare_handle_cannot_be_enforced(world: World) -> None:
    """H5: `enforce` needs a body to interrupt: `acquire` and `try_acquire` refuse it before the store."""
    lock = world.locks.lock("k", enforce=True, ttl=5, wait=1)
    for call in (lock.acquire, lock.try_acquire):
        with pytest.raises(InvalidRequest, match="body"):
            await done(call())
    assert world.store.requests == 0


async def test_recipes_take_names_only(world: World) -> None:
    """L1: everything but the key is named; an unknown name is a `TypeError`."""
    with pytest.raises(TypeError):
        world.locks.lock("k", 30)
    with pytest.raises(TypeError):
        world.locks.lock("k", timeout=30)


BAD_URLS: list[tuple[Any, type[Exception], str]] = [
    ("", InvalidRequest, "URL"),
    (None, InvalidRequest, "None"),
    (7, InvalidRequest, "7"),
    (b"memory:", InvalidRequest, "memory"),
    ("locks.db", InvalidRequest, "scheme"),
    ("/var/locks.db", InvalidRequest, "scheme"),
    ("1memory:", InvalidRequest, "scheme"),
    ("nonsense:", InvalidRequest, "nonsense"),
    ("redis://localhost/name", InvalidRequest, "database"),
    ("nats://locks.example/a.b", InvalidRequest, "bucket"),
    ("http://locks.example", InvalidRequest, "leased_insecure"),
    ("memory:?unknown=1", InvalidRequest, "memory"),
    ("memory:?leased_unknown=1", InvalidRequest, "leased_unknown"),
    ("memory:?leased_timeout=soon", InvalidRequest, "timeout"),
    ("memory:?leased_timeout=0", InvalidRequest, "timeout"),
    ("memory:?leased_namespace=a%00b", InvalidRequest, "namespace"),
]


@pytest.mark.parametrize(("url", "error", "word"), BAD_URLS, ids=named)
async def test_a_url_that_cannot_work_is_refused_with_a_way_on(
    face: Face, url: Any, error: type[Exception], word: str
) -> None:
    """L0, S5: what is wrong with the URL is said, with a hint, at the latest on first use, and never as contention."""
    with pytest.raises(error) as raised:
        await done(face.module.connect(url).lock("k").try_acquire())
    assert isinstance(raised.value, leased.LeasedError)
    assert word in str(raised.value)


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("redsi://localhost", "did you mean redis?"),
        ("sqllite:locks.db", "did you mean sqlite?"),
        ("localhost:6379", "did you mean redis://localhost:6379?"),
        ("db.example.com:5432/app", "did you mean postgresql://db.example.com:5432/app?"),
        ("127.0.0.1:6379", "did you mean redis://127.0.0.1:6379?"),
        ("localhost:4711", "write what listens there before it: redis://, postgresql://, mysql://, …"),
        ("nonsense:", "known are memory:, sqlite:, "),
        ("sqlite://locks.db", "write sqlite:locks.db, or with its whole path sqlite:///absolute/locks.db"),
    ],
)
async def test_a_url_with_a_slip_is_told_what_was_meant(face: Face, url: str, hint: str) -> None:
    """S5: a scheme that is nearly one, one that was left out, and two slashes too many are told how it is written."""
    with pytest.raises(InvalidRequest) as raised:
        await done(face.module.connect(url).lock("k").try_acquire())
    assert (raised.value.hint or "").startswith(hint)


OPTIONS: list[tuple[str, list[Any], list[Any]]] = [
    ("timeout", [0.01, 300, "1m", timedelta(seconds=1)], [0, 0.009, 301, -1, NAN, INF, True, "soon"]),
    ("clock_margin", [0, 0.4, 0.2, "0.1"], [-0.01, 0.41, 1, NAN, INF, True, "much", None, []]),
    ("skew_margin", [0, 3_600, "1s"], [-1, 3_601, NAN, INF, False, "soon"]),
    ("takeover", ["margin", "observe"], ["seize", None, 1]),
    ("require", ["process", None], ["everything", "unknown", 7, "Process"]),
    ("namespace", ["", "a", "x" * 255], ["x" * 256, "a\nb", 7, None]),
]


@pytest.mark.parametrize(("name", "good", "bad"), OPTIONS, ids=lambda value: value if isinstance(value, str) else "")
async def test_each_option_of_connect_has_its_limits_on_both_sides(
    face: Face, name: str, good: list[Any], bad: list[Any]
) -> None:
    """L0: the limits themselves work; beyond them the message names option and value."""
    for value in good:
        await done(face.module.connect("memory:options", **{name: value}).close())
    for value in bad:
        with pytest.raises(InvalidRequest, match=name):
            face.module.connect("memory:options", **{name: value})


async def test_an_option_given_twice_is_refused(face: Face) -> None:
    """L0: the same option in the URL and as an argument is not guessed at."""
    with pytest.raises(InvalidRequest, match="twice"):
        face.module.connect("memory:?leased_timeout=3", timeout=4)


async def test_options_in_the_url_mean_the_same(face: Face) -> None:
    """L0: a URL carries the options as `leased_…` parameters, also the clock margin of later recipes."""
    locks = face.module.connect("memory:margins?leased_clock_margin=0.2&leased_timeout=7")
    handle = await done(locks.lock("k", ttl=10).acquire())
    assert handle.remaining() <= 10 * 0.8 - 0.05
    await done(handle.release())
    with pytest.raises(InvalidRequest, match="ttl"):
        locks.lock("k", ttl=0.16)
    locks.lock("k", ttl=0.17)


async def test_a_ttl_that_fits_the_default_is_checked_by_the_locks_that_use_it(face: Face) -> None:
    """M5: a module-level lock whose ttl is too short for the clock margin of its locks is refused when it is used."""
    lock = face.module.lock("k", ttl=0.105)
    locks = face.module.connect("memory:margin-of-default", clock_margin=0.4)
    with face.module.using_default(locks):
        for call in (lock.try_acquire, lock.acquire, lambda: lock.run(lambda: None)):
            with pytest.raises(InvalidRequest, match="ttl"):
                await done(call())


async def test_a_weaker_store_than_required_is_refused_at_connect(face: Face) -> None:
    """S10: `require` compares by rank and says what there is and what was wanted."""
    for word in ("volatile", "process"):
        await done(face.module.connect("memory:", require=word).close())
    for word in ("host", "until-failover", "primary", "replicated", "region", "consensus"):
        with pytest.raises(StoreNotUsable) as raised:
            face.module.connect("memory:", require=word)
        assert "'process'" in str(raised.value)
        assert repr(word) in str(raised.value)


async def test_a_forced_release_takes_a_whole_number(world: World) -> None:
    """L7: a fencing token that is no number is refused, not read as "any holder" or "no match"."""
    handle = await world.take(world.locks.lock("k"))
    for bad in ("12", 1.5, True, -1, str(handle.fencing_token)):
        with pytest.raises(InvalidRequest, match="fencing"):
            await done(world.locks.force_release("k", bad))
    assert not handle.lost


@pytest.mark.parametrize("prefix", [None, 7, b"k", "\ud800"])
async def test_a_list_takes_text(world: World, prefix: Any) -> None:
    """L7: a prefix that is no text is refused."""
    with pytest.raises(InvalidRequest, match="prefix"):
        await done(world.locks.list(prefix))
