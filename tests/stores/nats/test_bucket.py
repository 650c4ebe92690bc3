"""The bucket: how it is made, what its settings mean, and what happens when it is deleted, or others write in it."""

import json
import secrets
import time
from collections.abc import Callable
from typing import Any

import pytest

import leased
from leased.cli import main
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.model import Claim, Contended, Held, Lost
from leased.stores._cas_shelf import Beaten, Put, Written
from leased.stores._nats_shelf import NatsShelf
from tests.servers.nats import ask, messages, request
from tests.servers.process import Server
from tests.stores.nats.conftest import TIMEOUT, TOKEN, Caller

OTHER = "another-token-16"


def make(server: Server, **settings: Any) -> str:
    """A bucket with other settings than ours; its URL."""
    bucket = f"b{secrets.token_hex(6)}"
    config = {"name": f"KV_{bucket}", "subjects": [f"$KV.{bucket}.>"], "max_msgs_per_subject": 1, **settings}
    found = ask(server.place, f"$JS.API.STREAM.CREATE.KV_{bucket}", config)
    assert "error" not in found, found
    return f"{server.url}/{bucket}"


def fresh(server: Server) -> str:
    """The name of a bucket that is not there."""
    return f"{server.url}/b{secrets.token_hex(6)}"


def stream(url: str) -> str:
    """The stream below the bucket of a URL."""
    return f"KV_{url.rpartition('/')[2]}"


def test_it_is_made_on_first_use(caller: Caller, nats_server: Server) -> None:
    """M6: with file storage, one message a key, no limits, and numbers that no other bucket of that name had."""
    url = fresh(nats_server)
    store = caller.open(url)
    caller.take(store, "key")
    config = ask(nats_server.place, f"$JS.API.STREAM.INFO.{stream(url)}")["config"]
    assert (config["storage"], config["max_msgs_per_subject"], config["max_age"]) == ("file", 1, 0)
    assert (config["max_bytes"], config["discard"]) == (-1, "new")
    assert config["first_seq"] > 1_000_000_000_000_000
    assurance = store.assurance()
    assert (assurance.exclusive, assurance.early_loss, assurance.takeover) == ("primary", False, "margin")
    assert "single replica" in "; ".join(assurance.notes)


def test_the_printed_schema_makes_it(nats_server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """What `leased schema` prints is what the server takes, and is then used as it is."""
    url = fresh(nats_server)
    assert main(["schema", url], {}) == 0
    config = json.loads(capsys.readouterr().out)
    assert "error" not in ask(nats_server.place, f"$JS.API.STREAM.CREATE.{stream(url)}", config)
    with leased.connect(url) as locks:
        assert locks.lock("k").acquire().release()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"max_age": 60_000_000_000}, "max_age"),
        ({"max_bytes": 1_000_000, "discard": "old"}, "discard old"),
        ({"max_msgs": 1000, "discard": "old"}, "discard old"),
        ({"retention": "workqueue"}, "retention workqueue"),
    ],
    ids=["age", "bytes", "messages", "queue"],
)
def test_a_bucket_that_forgets_leases_is_refused(
    caller: Caller, nats_server: Server, settings: dict[str, Any], why: str
) -> None:
    """S1: settings under which leases would vanish are named, at once, and nothing is written."""
    url = make(nats_server, **settings)
    with pytest.raises(StoreNotUsable, match=why):
        caller(caller.open(url).acquire(Claim("key", TOKEN, 30.0), timeout=TIMEOUT))
    assert messages(nats_server.place, url.rpartition("/")[2]) == 0


def test_a_bucket_in_memory_is_said_to_be_volatile(caller: Caller, nats_server: Server) -> None:
    """Assurance: what a restart of the server loses is no promise, and `require` refuses it."""
    url = make(nats_server, storage="memory")
    store = caller.open(url)
    caller.take(store, "key")
    assert store.assurance().exclusive == "volatile"
    assert store.assurance().early_loss
    strict = caller.open(url, require="primary")
    with pytest.raises(StoreNotUsable, match="volatile"):
        caller(strict.acquire(Claim("other", TOKEN, 30.0), timeout=TIMEOUT))


def test_a_full_bucket_grants_nothing_and_loses_nothing(caller: Caller, nats_server: Server) -> None:
    """A limit with discard new: what does not fit was certainly not written, and what is there stays."""
    store = caller.open(make(nats_server, max_msgs=1, discard="new"))
    caller.take(store, "one")
    with pytest.raises(StoreUnavailable):
        caller(store.acquire(Claim("two", TOKEN, 30.0), timeout=TIMEOUT))
    assert isinstance(caller(store.look("one", TOKEN, timeout=TIMEOUT)), Held)
    assert "limit" in "; ".join(store.assurance().notes)


def test_a_bucket_that_is_deleted_is_made_anew(caller: Caller, nats_server: Server) -> None:
    """A deleted bucket forgets: a holder is lost at its next call, fencing tokens still rise, and a write that was
    decided on the old bucket hits nothing in the new one."""
    url = fresh(nats_server)
    store, other = caller.open(url), caller.open(url)
    before = caller.take(store, "key")
    assert "error" not in ask(nats_server.place, f"$JS.API.STREAM.DELETE.{stream(url)}")
    after = caller.take(other, "key", OTHER)
    assert after > before
    assert isinstance(caller(store.renew("key", TOKEN, ttl=30.0, number=1, timeout=TIMEOUT)), Lost)
    assert not caller(store.release("key", TOKEN, timeout=TIMEOUT))
    assert isinstance(caller(other.look("key", OTHER, timeout=TIMEOUT)), Held)


def test_keys_that_others_deleted_can_be_had(caller: Caller, nats_server: Server) -> None:
    """A marker of a deletion by the tools of NATS is no record: the key is free, and is granted over it."""
    url = fresh(nats_server)
    store = caller.open(url, namespace="n")
    first = caller.take(store, "key")
    (subject,) = ask(nats_server.place, f"$JS.API.STREAM.INFO.{stream(url)}", {"subjects_filter": ">"})["state"][
        "subjects"
    ]
    request(nats_server.place, subject, headers="KV-Operation: DEL")
    another = caller.open(url, namespace="n")
    assert caller(another.status("key", timeout=TIMEOUT)).state == "free"
    assert caller(another.list("", after="", limit=10, timeout=TIMEOUT)) == []
    assert caller.take(another, "key", OTHER) > first
    assert isinstance(caller(store.acquire(Claim("key", TOKEN, 30.0), timeout=TIMEOUT)), Contended)


@pytest.mark.parametrize("deny_delete", [True, False])
def test_a_removal_takes_only_what_it_saw(caller: Caller, nats_server: Server, *, deny_delete: bool) -> None:
    """A sweep of a record that somebody wrote meanwhile removes nothing; one that nobody wrote goes, and the key can be
    written again. Also in buckets made by the tools of NATS, which delete by markers."""
    store = caller.open(make(nats_server, deny_delete=deny_delete, allow_rollup_hdrs=True))
    shelf = store._shelf
    put = Put("key", b"one", None, 0.0)
    (first,) = caller(shelf.put([put], timeout=TIMEOUT))
    assert isinstance(first, Written)
    (second,) = caller(shelf.put([put._replace(value=b"two", version=first.version)], timeout=TIMEOUT))
    assert isinstance(second, Written)
    caller(shelf.remove([("key", first.version)], timeout=TIMEOUT))
    assert caller(shelf.get(["key"], timeout=TIMEOUT))[0].value == b"two"
    caller(shelf.remove([("key", second.version)], timeout=TIMEOUT))
    assert caller(shelf.get(["key"], timeout=TIMEOUT))[0].version is None
    (beaten,) = caller(shelf.put([put._replace(version=second.version)], timeout=TIMEOUT))
    assert isinstance(beaten, Beaten)
    caller(shelf.get(["key"], timeout=TIMEOUT))
    (third,) = caller(shelf.put([put], timeout=TIMEOUT))
    assert isinstance(third, Written)


@pytest.mark.parametrize("deny_delete", [True, False])
def test_a_sweep_looks_at_what_is_old_and_no_further(caller: Caller, nats_server: Server, *, deny_delete: bool) -> None:
    """M4: whatever the bucket holds, what is younger costs one question; and markers are gone through once."""
    store = caller.open(make(nats_server, deny_delete=deny_delete, allow_rollup_hdrs=True), namespace="n")
    shelf = store._shelf
    assert isinstance(shelf, NatsShelf)
    keys = [f"key{number}" for number in range(5)]
    written = caller(shelf.put([Put(key, key.encode(), None, 0.0) for key in keys], timeout=TIMEOUT))
    asked: list[str] = []
    ask_all = shelf._link.ask

    async def count(connection: Any, questions: Any, *, seconds: float) -> Any:
        asked.extend(question.subject for question in questions)
        return await ask_all(connection, questions, seconds=seconds)

    shelf._link.ask = count  # type: ignore[method-assign]
    long_ago, soon = time.time() - 3600.0, time.time() + 3600.0
    assert caller(shelf.old(long_ago, begin="", limit=9, timeout=TIMEOUT))[0] == []
    assert len(asked) == 1
    page, begin = caller(shelf.old(soon, begin="", limit=3, timeout=TIMEOUT))
    assert [(key, found.value) for key, found in page] == [(key, key.encode()) for key in keys[:3]]
    assert [found.version for _, found in page] == [one.version for one in written[:3] if isinstance(one, Written)]
    caller(shelf.remove([(key, found.version or 0) for key, found in page], timeout=TIMEOUT))
    page, begin = caller(shelf.old(soon, begin=begin, limit=9, timeout=TIMEOUT))
    assert [key for key, _ in page] == keys[3:]
    caller(shelf.remove([(key, found.version or 0) for key, found in page], timeout=TIMEOUT))
    page, begin = caller(shelf.old(soon, begin=begin, limit=9, timeout=TIMEOUT))
    asked.clear()
    assert caller(shelf.old(soon, begin=begin, limit=9, timeout=TIMEOUT))[0] == []
    assert len(asked) == 1


def test_keys_are_kept_byte_for_byte_and_in_order(caller: Caller, nats_server: Server) -> None:
    """S3: any text of 255 characters is a key, also what subjects may not have in them; pages are in byte order."""
    store = caller.open(fresh(nats_server), namespace="\N{GRINNING FACE}" * 255)
    keys = ["*", ">", "a.b", " ", "a b", "A", "a", "ä", "\N{GRINNING FACE}" * 255, "$KV", "=", "-", "_"]
    for key in keys:
        caller.take(store, key)
    found: list[str] = []
    while page := caller(store.list("", after=found[-1] if found else "", limit=4, timeout=TIMEOUT)):
        found += [status.key for status in page]
    assert found == sorted(keys, key=str.encode)


def test_a_server_that_was_killed_forgets_no_lease(caller: Caller, private_nats: Callable[..., Server]) -> None:
    """C104: after a kill and a restart the lease is there, and the next call goes over a new connection."""
    server = private_nats()
    store = caller.open(server.url)
    caller.take(store, "key", ttl=60.0)
    server.kill()
    with pytest.raises(StoreUnavailable) as caught:
        caller(store.status("key", timeout=0.5))
    assert caught.value.applied is False
    server.start()
    assert isinstance(caller(store.look("key", TOKEN, timeout=TIMEOUT)), Held)


def test_a_server_that_hangs_holds_nobody_beyond_his_time(caller: Caller, private_nats: Callable[..., Server]) -> None:
    """W2: a paused server ends each call at its time, unknown, and serves again once it goes on."""
    server = private_nats()
    store = caller.open(server.url)
    caller.take(store, "key", ttl=60.0)
    server.pause()
    try:
        for _ in range(3):
            began = time.monotonic()
            with pytest.raises(StoreUnavailable):
                caller(store.renew("key", TOKEN, ttl=60.0, number=1, timeout=0.5))
            assert time.monotonic() - began < 2.0
    finally:
        server.resume()
    assert isinstance(caller(store.renew("key", TOKEN, ttl=60.0, number=2, timeout=TIMEOUT)), Held)
