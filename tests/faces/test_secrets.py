"""Secrets: whatever the package writes, shows or raises, at the loudest log level, holds no token and no password."""

# ruff: noqa: PT012 (what a whole block raises at its end is what these tests are about)

import asyncio
import gc
import io
import logging
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from typing import Any

import pytest

import leased
import leased.aio
from leased import LockLost, StoreNotUsable, StoreUnavailable
from leased.model import Abandon, Claim, Held, Lease, Look, Release, Renew
from tests.faces.world import Face, World, block, done

SECRET = "CANARY-c0ffee-7"
URLS = [
    f"redis://user:{SECRET}@localhost:6379/0",
    f"rediss://:{SECRET}@localhost",
    f"postgresql://user:{SECRET}@db.example/locks?sslmode=require",
    f"postgresql://db.example/locks?user=me&password={SECRET}",
    f"mysql://user:pa%40ss{SECRET}@db.example:3306/locks",
    f"nonsense://{SECRET}@host/path",
    f"nonsense:user:{SECRET}@host",
    f"nats://{SECRET}@localhost",
    f"https://locks.example/?token={SECRET}",
    f"https://locks.example/#{SECRET}",
    f"memory:?password={SECRET}",
    f"sqlite:locks.db?key={SECRET}",
    f"//user:{SECRET}@host/db",
    f"user:{SECRET}@host",
    f"redis://[::1:{SECRET}@x",
    f"memory:{SECRET}@x?leased_timeout=soon",
    f"redis://user:{SECRET}@host?leased_timeout=0",
    f"redis://user:{SECRET}@host?leased_unknown=1",
]


class Everything:
    """All that is written while it is watched: log records with arguments and tracebacks, warnings, both outputs."""

    def __init__(self) -> None:
        self.text: list[str] = []

    def add(self, *things: object) -> None:
        """Watch these too, in every form they have."""
        for thing in things:
            self.text += [repr(thing), str(thing)]
            if isinstance(thing, BaseException):
                self.text += traceback.format_exception(thing)
                self.text += [repr(vars(thing)), *map(str, getattr(thing, "__notes__", []))]

    def has(self, secret: str) -> list[str]:
        """Whatever shows the secret."""
        return [text for text in self.text if secret in text]


@pytest.fixture
def everything() -> Iterator[Everything]:
    """Watch the loudest logging, and both outputs."""
    watched = Everything()

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            watched.text.append(logging.Formatter("%(message)s %(args)s").format(record))

    handler, output = Keep(), io.StringIO()
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        with redirect_stdout(output), redirect_stderr(output):
            yield watched
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
        watched.text.append(output.getvalue())


@pytest.mark.parametrize("url", URLS)
async def test_no_part_of_a_url_that_may_be_secret_is_ever_shown(face: Face, url: str, everything: Everything) -> None:
    """C176: passwords, users, parameters and fragments of a URL are in no message, repr, pickle error or log line."""
    locks = None
    try:
        locks = face.module.connect(url)
        everything.add(locks)
        lock = locks.lock("k")
        everything.add(lock)
        with pytest.raises(TypeError) as unpicklable:
            pickle.dumps(locks)
        everything.add(unpicklable.value)
        await done(lock.try_acquire())
    except (leased.LeasedError, TypeError) as error:
        everything.add(error, getattr(error, "hint", ""))
    if locks is not None:
        with suppress(leased.LeasedError):
            await done(locks.close())
    assert everything.has(SECRET) == []


async def test_no_token_is_ever_shown(world: World, everything: Everything) -> None:
    """C176, M3, SEC3: through grants, refusals, losses, failures and forgotten handles no token is written."""
    locks = world.locks
    lock = locks.lock("k", ttl=10, owner="run-7", metadata={"a": 1}, name="job", renew=True)
    secrets = []

    handle = await done(lock.acquire())
    secrets.append(handle.token)
    everything.add(handle, lock, locks, handle._hold, handle._client, world.events, world.store, world.memory)
    everything.add(await done(handle.renew()), await done(locks.status("k")), await done(locks.list()))
    with pytest.raises(leased.LockNotAcquired) as refused:
        await done(locks.lock("k").acquire())
    everything.add(refused.value, refused.value.holder)
    with pytest.raises(TypeError) as copied:
        pickle.dumps(handle)
    everything.add(copied.value)

    called: list[object] = []

    def fail() -> None:
        called.append(1)
        raise ZeroDivisionError(repr(handle))

    handle.on_lost(fail)
    await done(world.elsewhere().force_release("k"))
    world.move(4)
    await world.until(lambda: called)
    with pytest.raises(LockLost) as lost:
        handle.ensure_held()
    everything.add(lost.value, await done(handle.release()), await done(handle.renew()))

    for error in (StoreNotUsable("no"), StoreUnavailable("no")):
        for operation in ("acquire", "renew", "release", "abandon", "look"):
            world.store.fail(operation, error, times=4)
        with pytest.raises(StoreUnavailable) as raised:
            await done(lock.acquire())
        everything.add(raised.value)
        world.store.let_go()
    with pytest.raises(ValueError, match="body") as failed:
        async with block(lock) as held:
            secrets.append(held.token)
            world.store.fail("release", StoreNotUsable("no"), times=9)
            raise ValueError("body")
    everything.add(failed.value)
    world.store.let_go()
    world.move(20)

    forgotten = await done(lock.acquire())
    secrets.append(forgotten.token)
    kept = [forgotten]
    del forgotten
    with pytest.warns(ResourceWarning) as warned:
        kept.clear()
    gc.collect()
    everything.add(*(str(warning.message) for warning in warned))
    secrets += [call.token for call in world.store.calls if call.token]
    assert len(secrets) > 5
    for secret in secrets:
        assert everything.has(secret) == []


async def test_a_text_that_is_refused_is_not_shown(world: World, everything: Everything) -> None:
    """SEC3, SEC17: the text of a handle, whole or broken, and a token of the caller's are in no error."""
    handle = await world.take(world.locks.lock("k"))
    text = handle.dump()
    await done(handle.release())
    broken = [text, text[:-1], text.replace('"secret"', '"x"'), text.replace("1", "2", 1), text.replace("}", ",}")]
    for attempt in broken:
        with pytest.raises(leased.LeasedError) as raised:
            await done(world.locks.restore(attempt))
        everything.add(raised.value)
    for token in (handle.token[:15], handle.token + "\n", handle.token * 20):
        with pytest.raises(leased.InvalidRequest) as refused:
            await done(world.locks.lock("k").acquire(token=token))
        everything.add(refused.value)
    assert everything.has(handle.token) == []
    assert everything.has(handle.token[:15]) == []


def test_values_that_carry_a_token_do_not_show_it() -> None:
    """SEC3: claims, leases and operations, as a store of another author may log them, hide their token."""
    token = f"{SECRET}-{SECRET}"
    values: list[Any] = [
        Claim("k", token, 1.0),
        Lease("k", token, 1, 1.0, None, 1.0),
        Held(Lease("k", token, 1, 1.0, None, 1.0)),
        Renew("k", token, 1.0, 1),
        Release("k", token),
        Abandon("k", token),
        Look("k", token),
    ]
    for value in values:
        assert SECRET not in repr(value)
        assert SECRET not in str(value)


def test_tokens_are_random_enough() -> None:
    """M3, SEC1: minted tokens have at least 128 random bits and never repeat."""
    world = World(face=_face())
    tokens = set()
    for number in range(2_000):
        handle = world.locks.lock(f"k{number}").acquire()
        tokens.add(handle.token)
        handle.release()
    assert len(tokens) == 2_000
    assert min(len(set(token)) for token in tokens) >= 5
    assert all(len(bytes.fromhex(token)) >= 16 for token in tokens)


def _face() -> Face:
    from tests.faces.world import Blocking

    return Blocking()


def test_the_memory_store_keeps_no_token() -> None:
    """M3, SEC2: what the store keeps is the SHA-256 of the token, nothing from which it can be read."""
    world = World(face=_face())
    handle = world.locks.lock("k").acquire()
    record = world.memory._find("k")
    assert record is not None
    kept = repr([getattr(record, name) for name in record.__slots__])
    assert handle.token not in kept
    handle.release()


def test_the_log_is_quiet_when_logging_is_off() -> None:
    """C191: without any logging set up, an ordinary run writes nothing; problems reach the last-resort handler only."""
    program = "\n".join(
        [
            "import leased, logging",
            "logging.disable(logging.CRITICAL)",
            "locks = leased.connect('memory:')",
            "with locks.lock('k', ttl=0.2, renew=False, if_lost='return'):",
            "    import time; time.sleep(0.25)",
            "leased.lock('k').run(lambda: None)",
        ]
    )
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=20)
    assert (ran.stdout, ran.stderr) == ("", "")


Check = Callable[[], None]


def test_debugging_a_loop_shows_no_token(everything: Everything) -> None:
    """SEC3: asyncio in debug mode, with slow callbacks logged, shows no token."""

    async def main() -> str:
        async with leased.aio.connect("memory:debugged") as locks:
            asyncio.get_running_loop().slow_callback_duration = 0.0
            async with locks.lock("k") as held:
                await asyncio.sleep(0.001)
                return str(held.token)

    token = asyncio.run(main(), debug=True)
    assert everything.has(token) == []
