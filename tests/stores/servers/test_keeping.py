"""Grants, times and keys on servers: what is kept exactly, compared exactly and ended exactly."""

import time
from datetime import timedelta
from typing import Any

import pytest

import leased
from leased import LockTimeout
from leased.policy import MAX_TTL
from tests.faces.world import block, done
from tests.stores.servers.conftest import Stand

KEYS = [
    "plain", "Plain", "plain ", " plain", "plain.", "a", "a:b", "{x}y", "x}y{", "{}", "{", "}", "%7B", "%", "_", "\\",
    "'; DROP TABLE leased_record; --", "ß", "SS", "ss", "é", "e\u0301", "\u00e9\u0301", "İ", "i", "𝕜", "k" * 255,
    "𝕜" * 255, "a*", "a?", "[ab]", "\u200b", "日本語",
]  # fmt: skip


async def test_every_key_is_its_own(stand: Stand) -> None:
    """C105, C145, C149, C152, C153, S3: case, spaces, forms of Unicode, braces and length never make two keys one."""
    locks, others = stand.connect(), stand.elsewhere()
    longest = 255 - len(f"{stand.namespace}::") * (stand.kind == "service")  # there both are one key
    keys = [key[:longest] for key in KEYS]
    handles = [await stand.take(locks.lock(key, ttl=60)) for key in keys]
    listed = [status.key for status in await done(others.list())]
    assert listed == sorted(keys, key=str.encode)
    for handle, key in zip(handles, keys, strict=True):
        assert await done(others.lock(key).try_acquire()) is None
        status = await done(others.status(key))
        assert (status.key, status.fencing_token) == (key, handle.fencing_token)
        assert await done(handle.renew())
    for handle, key in zip(handles, keys, strict=True):
        assert await done(handle.release())
        assert not (await done(others.status(key))).held
    assert [status.key for status in await done(others.list())] == []


async def test_namespaces_do_not_meet(stand: Stand) -> None:
    """S3, C145: the same key in another namespace is another key, also where one begins like the other."""
    locks = stand.connect()
    other = stand.connect(stand.safe_url + "x")
    await stand.take(locks.lock("k"))
    await stand.take(other.lock("k"))
    assert [status.key for status in await done(locks.list())] == ["k"]
    assert (await done(other.force_release("k"))) is True
    assert (await done(locks.status("k"))).held


@pytest.mark.parametrize("ttl", [0.999, 1, 1.5, "2500ms", timedelta(milliseconds=2001)])
async def test_a_lease_lasts_as_long_as_was_asked_for(stand: Stand, ttl: Any) -> None:
    """C051: no resolution of a store cuts a ttl short, and none makes it nothing."""
    locks = stand.connect()
    handle = await stand.take(locks.lock("k", ttl=ttl))
    status = await done(locks.status("k"))
    assert status.expires_at - status.acquired_at >= handle.ttl - 1e-6
    assert await done(handle.release())


async def test_the_longest_ttl_works_and_a_longer_one_is_refused_before_it_is_sent(stand: Stand) -> None:
    """C061: no number overflows on the way: 90 days are 90 days, and nothing above that reaches the server."""
    locks = stand.connect()
    handle = await stand.take(locks.lock("k", ttl=MAX_TTL))
    assert await done(handle.renew(MAX_TTL))
    status = await done(locks.status("k"))
    assert status.expires_in == pytest.approx(MAX_TTL, abs=60)
    for ttl in (MAX_TTL + 0.001, 2.0**31, 2.0**53, 2.0**63):
        with pytest.raises(leased.InvalidRequest):
            locks.lock("k", ttl=ttl)
        with pytest.raises(leased.InvalidRequest):
            await done(handle.renew(ttl))
    assert (await done(locks.status("k"))).expires_in == pytest.approx(MAX_TTL, abs=60)
    assert await done(handle.release())


async def test_renewing_sets_and_never_adds(stand: Stand) -> None:
    """C062, M7: three renewals of 30 s leave 30 s; a smaller ttl shortens; `max_hold` is never exceeded."""
    locks = stand.connect()
    handle = await stand.take(locks.lock("k", ttl=10, max_hold=40))
    for _ in range(3):
        assert await done(handle.renew(30))
    assert (await done(locks.status("k"))).expires_in == pytest.approx(30, abs=5)
    assert await done(handle.renew(5))
    assert (await done(locks.status("k"))).expires_in <= 5
    assert await done(handle.renew(3600))
    assert (await done(locks.status("k"))).expires_in <= 40
    assert await done(handle.release())


async def test_a_lease_is_counted_from_the_attempt_that_won(stand: Stand) -> None:
    """C056, C055, C140: a waiter whose wait was longer than its ttl gets a whole lease when it is granted."""
    first = await stand.take(stand.elsewhere().lock("k", ttl=1.0))
    waiter = await stand.take(stand.connect().lock("k", ttl=0.8, wait=20))
    assert waiter.remaining() > 0.5
    assert waiter.fencing_token > first.fencing_token
    assert await done(waiter.release())


@pytest.mark.parametrize("ahead", [180.0, -180.0])
async def test_the_clock_of_a_client_decides_nothing(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    """C067, M5: a client three minutes ahead or behind neither takes a lease that goes on nor loses its own."""
    held = await stand.take(stand.elsewhere().lock("k", ttl=30))
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + ahead)
    wrong = stand.connect()
    assert await done(wrong.lock("k").try_acquire()) is None
    own = await stand.take(wrong.lock("own", ttl=30))
    assert await done(own.renew())
    assert own.remaining() == pytest.approx(30, abs=5)
    assert await done(held.renew())
    assert abs(own.fencing_token - held.fencing_token) < 60_000_000
    assert await done(own.release())


async def test_a_shared_recipe_frees_nobody_elses_lease(stand: Stand) -> None:
    """C010, C092: who overran his lease says so at the end, and the next holder keeps the key."""
    lock = stand.connect().lock("k", ttl=0.3)
    late = await stand.take(lock)
    successor = await stand.take(stand.elsewhere().lock("k", ttl=30, wait=20))
    released = await done(late.release())
    assert not released
    assert released.reason in ("not_holder", "expired")
    assert (await done(stand.elsewhere().status("k"))).fencing_token == successor.fencing_token
    assert await done(successor.release())


async def test_a_late_renewal_brings_nothing_back(stand: Stand) -> None:
    """C021, M7: a lease that lapsed, was taken and released again is not renewed; nothing is created."""
    late = await stand.take(stand.connect().lock("k", ttl=0.3))
    others = stand.elsewhere()
    between = await stand.take(others.lock("k", wait=20))
    assert await done(between.release())
    renewed = await done(late.renew())
    assert not renewed
    assert late.lost
    assert not (await done(others.status("k"))).held
    again = await stand.take(others.lock("k"))
    assert again.fencing_token > between.fencing_token > late.fencing_token


async def test_the_writes_of_a_paused_holder_are_refused_by_its_token(stand: Stand) -> None:
    """C199, H7: who comes back after its lease has a lower number than what was written since; an equal one passes."""
    written = 0

    def write(fencing_token: int) -> bool:
        nonlocal written
        if fencing_token < written:
            return False
        written = fencing_token
        return True

    paused = await stand.take(stand.connect().lock("k", ttl=0.3))
    async with block(stand.elsewhere().lock("k", wait=20)) as held:
        assert write(held.fencing_token)
        assert write(held.fencing_token)
        assert not write(paused.fencing_token)


async def test_a_wait_ends_in_time_and_leaves_nothing(stand: Stand) -> None:
    """C053, C050: a waiter is back at its time; when the key is free afterwards nobody holds it in its name."""
    held = await stand.take(stand.elsewhere().lock("k", ttl=60))
    began = time.monotonic()
    with pytest.raises(LockTimeout):
        await stand.take(stand.connect().lock("k", wait=0.25))
    assert 0.25 <= time.monotonic() - began < 5.0
    assert await done(held.release())
    assert not (await done(stand.elsewhere().status("k"))).held


async def test_fencing_tokens_rise_without_a_counter(stand: Stand) -> None:
    """C179, M4: grants, re-takes, forced releases: each is above all before, and is a time in µs, so no row has to
    stay for ever for it."""
    locks, others = stand.connect(), stand.elsewhere()
    tokens = []
    for _ in range(3):
        handle = await stand.take(locks.lock("k", owner="run-1"))
        tokens.append(handle.fencing_token)
        taken_over = await stand.take(others.lock("k", owner="run-1"))
        tokens.append(taken_over.fencing_token)
        assert await done(others.force_release("k"))
    assert tokens == sorted(set(tokens))
    assert tokens[0] == pytest.approx(time.time() * 1e6, abs=120e6)
