"""What is in the file: bounded, without secrets, byte for byte, and never in the way when it is damaged."""

import zlib
from pathlib import Path

import pytest

from leased.clocks import step
from leased.errors import StoreNotUsable
from leased.model import Acquire, Claim, Contended, Held, Look, Lost, Release, Released, Status, Terms
from leased.policy import REPLAY_WINDOW
from leased.stores.sqlite import SqliteStore
from tests.stores.sqlite.conftest import Host, Make, rows


def hold(store: SqliteStore, key: str, token: str = "token", *, ttl: float = 30.0, late: bool = False) -> bool:
    """Whether one try got the key."""
    return isinstance(step(store.acquire(Claim(key, token, ttl, late=late), timeout=2.0)), Held)


def counts(path: Path) -> tuple[int, int]:
    """How many records and marks there are."""
    ((records, marks),) = rows(path, "SELECT (SELECT count(*) FROM record), (SELECT count(*) FROM mark)")
    return records, marks


def test_a_released_key_leaves_nothing(make: Make, path: Path) -> None:
    """Ten thousand keys, each used once, leave no row and no larger file; later numbers are higher (C179)."""
    store = make()

    def use(first: int) -> None:
        keys = [f"key-{number}" for number in range(first, first + 1_000)]
        step(store.many([Acquire(Claim(key, f"token of {key}", 30.0)) for key in keys], timeout=5.0))
        for key in keys[:5]:
            assert step(store.force_release(key, timeout=5.0))
        step(store.many([Release(key, f"token of {key}") for key in keys], timeout=5.0))

    hold(store, "key")
    first = step(store.status("key", timeout=2.0)).fencing_token
    step(store.release("key", "token", timeout=2.0))
    use(0)
    pages = rows(path, "PRAGMA page_count")
    for number in range(1_000, 10_000, 1_000):
        use(number)
    assert counts(path) == (0, 50)
    assert rows(path, "PRAGMA page_count") <= [(pages[0][0] + 2,)]
    hold(store, "key")
    last = step(store.status("key", timeout=2.0)).fencing_token
    assert first is not None
    assert last is not None
    assert last > first


def test_lapsed_leases_and_marks_are_swept_by_whoever_writes(make: Make, path: Path) -> None:
    """What holders who never released left behind goes in steps while others work, whoever they are (C180)."""
    host = Host()
    store = make(clock=host.clock())
    for number in range(100):
        hold(store, f"lapses-{number}")
        step(store.abandon("other", f"ended-{number}", timeout=2.0))
    assert counts(path) == (100, 100)
    host.move(30.0 + REPLAY_WINDOW)
    sweeper = make(clock=host.clock())
    for number in range(100):
        hold(sweeper, "busy", f"token-{number}")
        step(sweeper.release("busy", f"token-{number}", timeout=2.0))
    assert counts(path) == (0, 0)


def test_short_lived_processes_sweep_too(make: Make, path: Path) -> None:
    """A program that takes one lock and ends still removes more rows than it adds."""
    host = Host()
    for number in range(12):
        store = make(clock=host.clock())
        hold(store, f"lapses-{number}")
        step(store.close())
        host.move(30.0 + REPLAY_WINDOW)
    assert counts(path)[0] <= 2


def test_a_lapsed_record_is_kept_while_its_token_may_come_again(make: Make, path: Path) -> None:
    """The sweep does not make a token that had its lease grantable before the replay window is over."""
    host = Host()
    store = make(clock=host.clock())
    hold(store, "key", late=True)
    host.move(30.0 + REPLAY_WINDOW - 1.0)
    for number in range(40):
        hold(store, "busy", f"t{number}")
        step(store.release("busy", f"t{number}", timeout=2.0))
    refused = step(store.acquire(Claim("key", "token", 30.0), timeout=2.0))
    assert isinstance(refused, Contended)
    assert refused.ended


def test_renewed_leases_survive_the_sweep(make: Make) -> None:
    """A lease that is renewed for much longer than it was granted for is found due, and left alone."""
    host = Host()
    store = make(clock=host.clock())
    hold(store, "key", ttl=1.0)
    step(store.renew("key", "token", ttl=3_600.0, number=1, timeout=2.0))
    host.move(1_000.0)
    for number in range(40):
        hold(store, "busy", f"t{number}")
        step(store.release("busy", f"t{number}", timeout=2.0))
    assert isinstance(step(store.look("key", "token", timeout=2.0)), Held)


def test_only_hashes_of_tokens_are_kept(make: Make, path: Path) -> None:
    """The secret is in none of the files, whatever was done with it."""
    store = make()
    secret = "the-secret-of-this-claim"
    hold(store, "key", secret, late=True)
    step(store.renew("key", secret, ttl=30.0, number=1, timeout=2.0))
    step(store.release("key", secret, late=True, timeout=2.0))
    step(store.abandon("key", secret, timeout=2.0))
    for file in path.parent.iterdir():
        assert file.is_dir() or secret.encode() not in file.read_bytes()


TWINS = [
    ("A", "a"),
    ("e", "é"),
    ("x", "x "),
    ("\U0001f600", "\U0001f601"),
    ("\u00e9", "e\u0301"),
    ("ß", "ss"),
    ("key", "key\u200b"),
    ("1", "01"),
    ("a", "a\u00a0"),
]


@pytest.mark.parametrize("pair", TWINS, ids=ascii)
def test_keys_and_owners_are_compared_byte_for_byte(make: Make, pair: tuple[str, str]) -> None:
    """Keys that look alike are two keys, and owners that look alike are two owners (C149)."""
    store = make()
    assert hold(store, pair[0], "first")
    assert hold(store, pair[1], "second")
    claims = [Claim("owned", token, 30.0, owner=owner) for token, owner in zip(("third", "fourth"), pair, strict=True)]
    assert isinstance(step(store.acquire(claims[0], timeout=2.0)), Held)
    assert isinstance(step(store.acquire(claims[1], timeout=2.0)), Contended)


def test_keys_with_equal_checksums_are_two_keys(make: Make) -> None:
    """The full key decides, not a short hash of it (C153)."""
    twins = ("plumless", "buckeroo")
    assert zlib.crc32(twins[0].encode()) == zlib.crc32(twins[1].encode())
    store = make()
    assert all(hold(store, key) for key in twins)


def test_lists_are_in_the_order_of_bytes(make: Make) -> None:
    """Pages follow UTF-8, where code units of other encodings would sort an emoji before a private character."""
    store = make()
    keys = sorted(["a", "Z", "é", "\ue000", "\U0001f600", "z" * 255, "a b", "a\u00a0b"], key=str.encode)
    for key in keys:
        hold(store, key, f"token of {key}")
    found: list[str] = []
    while page := step(store.list("", after=found[-1] if found else "", limit=3, timeout=2.0)):
        found += [status.key for status in page]
    assert found == keys


def test_texts_that_are_hard_to_store_come_back(make: Make) -> None:
    """Owner and metadata are seen as they were given; a name of a process that is no text harms nothing."""
    store = make()
    terms = Terms(held_by="job\udcff@host:1", metadata='{"quote": "\'; DROP TABLE record; --", "emoji": "\U0001f600"}')
    step(store.acquire(Claim("key", "token", 30.0, owner="a'b\"c", terms=terms), timeout=2.0))
    seen = step(store.status("key", timeout=2.0))
    assert (seen.owner, seen.held_by) == ("a'b\"c", "job?@host:1")
    assert seen.metadata == {"quote": "'; DROP TABLE record; --", "emoji": "\U0001f600"}


DAMAGE = ["expires_at = 'soon'", "free_at = 1.5", "token = 'text'", "token = x'00'", "boot = 'x'", "late = x''"]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_record_can_be_force_released(make: Make, damage: str) -> None:
    """A record that cannot be read is never read as free or held by somebody: it is shown, and goes by force (C093)."""
    store = make()
    hold(store, "key")
    hold(store, "other", "another")
    connection = store._database._file.connection  # type: ignore[union-attr]  # it is open
    connection.execute(f"UPDATE record SET {damage} WHERE key = 'key'")
    with pytest.raises(StoreNotUsable, match="'key' .*cannot be read.*forced release"):
        hold(store, "key", "next")
    assert step(store.status("key", timeout=2.0)) == Status("key", "held")
    assert [status.key for status in step(store.list("", after="", limit=9, timeout=2.0))] == ["key", "other"]
    outcomes = step(store.many([Look("key", "token"), Look("other", "another")], timeout=2.0))
    assert isinstance(outcomes[0], StoreNotUsable)
    assert isinstance(outcomes[1], Held)
    assert step(store.force_release("key", fencing_token=1, timeout=2.0)) is False
    assert step(store.force_release("key", timeout=2.0)) is True
    assert hold(store, "key", "next")


@pytest.mark.parametrize("column", ["owner", "held_by", "metadata"])
def test_text_that_is_no_text_is_shown_as_well_as_can_be(make: Make, column: str) -> None:
    """Bytes that are no UTF-8 where text belongs end neither status nor list nor the life of the lease (C093)."""
    store = make(clock=Host().clock())
    hold(store, "key")
    connection = store._database._file.connection  # type: ignore[union-attr]  # it is open
    connection.execute(f"UPDATE record SET {column} = CAST(x'61ff' AS TEXT)")
    (seen,) = step(store.list("", after="", limit=9, timeout=2.0))
    assert seen.state == "held"
    assert seen == step(store.status("key", timeout=2.0))
    assert step(store.release("key", "token", timeout=2.0)) == Released()


def test_a_list_ends_although_a_key_is_no_text(make: Make) -> None:
    """Pages from the last key on come to an end, with every other key in them, whatever stands in a row (C093)."""
    store = make(clock=Host().clock())
    for key in ("damaged", "a", "\N{GRINNING FACE}"):
        hold(store, key)
    connection = store._database._file.connection  # type: ignore[union-attr]  # it is open
    connection.execute("UPDATE record SET key = CAST(x'ff' AS TEXT) WHERE key = 'damaged'")
    found: list[str] = []
    for _ in range(5):
        page = step(store.list("", after=found[-1] if found else "", limit=9, timeout=2.0))
        found += [status.key for status in page]
        if not page:
            break
    else:
        pytest.fail(f"the list does not end: {found}")
    assert {"a", "\N{GRINNING FACE}"} < set(found)


def test_a_damaged_record_does_not_stop_the_sweep(make: Make, path: Path) -> None:
    """What cannot be read is passed over: the rows behind it still go."""
    host = Host()
    store = make(clock=host.clock())
    for number in range(30):
        hold(store, f"key-{number:02}")
    connection = store._database._file.connection  # type: ignore[union-attr]  # it is open
    connection.execute("UPDATE record SET expires_at = 'soon' WHERE key < 'key-03'")
    host.move(30.0 + REPLAY_WINDOW)
    for number in range(60):
        hold(store, "busy", f"t{number}")
        step(store.release("busy", f"t{number}", timeout=2.0))
    assert counts(path)[0] == 3


def test_a_late_renewal_creates_nothing(make: Make, path: Path) -> None:
    """A renewal that comes after the key went to another and was released says so and leaves no row (C021)."""
    host = Host()
    store = make(clock=host.clock())
    hold(store, "key")
    host.move(31.0)
    hold(store, "key", "next")
    step(store.release("key", "next", timeout=2.0))
    assert step(store.renew("key", "token", ttl=30.0, number=5, timeout=2.0)) == Lost("expired")
    assert counts(path) == (0, 0)
