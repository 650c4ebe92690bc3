"""Ctrl-C at every point of the blocking face at which the interpreter may deliver it: nothing is left behind."""

import functools
import gc
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import leased
from leased import context
from leased.clocks import BlockingClock
from leased.interrupt import BodyInterrupted
from leased.model import Claim, Contended, Held
from leased.stores.memory import MemoryStore
from tests.faces.interrupts import Interrupts

Use = Callable[[leased.Lock], Any]


class Scene:
    """A store, a lock, and what can be seen of leftovers."""

    def __init__(self, store: MemoryStore | None = None, **terms: Any) -> None:
        self.store = store or MemoryStore(BlockingClock())
        self.events: list[leased.Event] = []
        self.locks = leased.connect(self.store, observer=self.events.append)
        self.lock = self.locks.lock("k", **{"owner": "o", **terms})

    def leftovers(self) -> list[str]:
        """What an interrupted use has left behind."""
        client = self.locks._client()
        lines = client.env.lines
        found = {
            "the key is taken": self.locks.status("k").held,
            "a line": lines._lines,
            "a reserved owner": lines._reserved,
            "a scope in the lock": self.lock._scopes,
            "a current block": leased.current(),
            "a block of the client": client.blocks,
            "a watch": self.store._bells,
        }
        return [name for name, left in found.items() if left]


def with_block(lock: leased.Lock) -> None:
    """`with lock:`."""
    with lock:
        pass


def with_hold(lock: leased.Lock) -> None:
    """`with lock.hold():`."""
    with lock.hold():
        pass


def with_run(lock: leased.Lock) -> None:
    """`run`."""
    assert lock.run(lambda: 7).value == 7


def with_decorator(lock: leased.Lock) -> None:
    """As a decorator."""
    assert lock(lambda: 7)() == 7


def with_generator(lock: leased.Lock) -> None:
    """As a decorator of a generator."""

    def steps() -> Iterator[int]:
        yield 7

    assert list(lock(steps)()) == [7]


KEPT: list[Any] = []


def with_acquire(lock: leased.Lock) -> None:
    """A bare handle, kept until somebody looks."""
    KEPT.append(lock.acquire())


def with_try(lock: leased.Lock) -> None:
    """A bare handle of a single try."""
    KEPT.append(lock.try_acquire())


USES: list[Use] = [with_block, with_hold, with_run, with_decorator, with_generator, with_acquire, with_try]


def interrupted_everywhere(make: Callable[[], Scene], use: Use) -> Iterator[tuple[Interrupts, Scene]]:
    """The scene after each single interrupt of this use, until there are no more points."""
    at = 0
    while True:
        scene, interrupts = make(), Interrupts(at=at)
        try:
            interrupts.run(functools.partial(use, scene.lock))
        except KeyboardInterrupt:
            assert interrupts.struck
        if not interrupts.struck:
            return
        yield interrupts, scene
        KEPT.clear()
        context._innermost.set(None)
        at += 1


@pytest.fixture(autouse=True)
def _quiet_leftovers() -> Iterator[None]:
    """A coroutine that an interrupt kept from starting is reported by the interpreter: that is not what is tested."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
        KEPT.clear()
        gc.collect()


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_an_interrupt_at_any_point_leaves_nothing_behind(use: Use) -> None:
    """C007, L12: wherever `KeyboardInterrupt` strikes, it comes out, the key is free, and the lock works again."""
    points = 0
    for interrupts, scene in interrupted_everywhere(Scene, use):
        points += 1
        if interrupts.where.startswith("begin of") and interrupts.where.endswith("__exit__"):
            continue  # before the first instruction of an exit nothing of ours can run
        assert scene.leftovers() == [], interrupts.where
        with scene.lock:
            assert scene.locks.status("k").held
        assert scene.leftovers() == [], interrupts.where
    assert points > 50


def test_the_first_instant_of_an_exit_is_the_only_gap() -> None:
    """C007: an interrupt before the first instruction of `__exit__` cannot be met; then the lease is still the block's,
    with its fencing token, and the next one takes over once it has ended."""
    gaps = [
        (interrupts, scene)
        for interrupts, scene in interrupted_everywhere(Scene, with_block)
        if interrupts.where.startswith("begin of") and interrupts.where.endswith("__exit__")
    ]
    assert len(gaps) == 1
    assert gaps[0][1].locks.force_release("k")


class Yields(MemoryStore):
    """A store whose key is held by somebody else, who lets go right after the first refusal."""

    def __init__(self) -> None:
        super().__init__(BlockingClock())
        self.holder = Claim("k", "somebody-elses-token", 30.0)
        self.refused = 0

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        """Refuse once."""
        if not self.refused:
            self.refused += 1
            await super().acquire(self.holder, timeout=timeout)
            answer = await super().acquire(claim, timeout=timeout)
            await self.release("k", self.holder.token, timeout=timeout)
            return answer
        return await super().acquire(claim, timeout=timeout)


@pytest.mark.parametrize("use", [with_block, with_acquire], ids=lambda use: use.__name__)
def test_an_interrupt_while_waiting_leaves_nothing_behind(use: Use) -> None:
    """C007, L12: also in the line, and between a refusal and the grant that follows it; at worst
    the store rings a bell for nothing."""
    points = 0
    for interrupts, scene in interrupted_everywhere(lambda: Scene(Yields(), wait=5, retry_delay=0.001), use):
        points += 1
        if interrupts.where.startswith("begin of") and interrupts.where.endswith("__exit__"):
            continue
        if scene.locks.status("k").held:  # the stranger, where the interrupt came while the store was asked
            scene.store.refused = 1  # type: ignore[attr-defined]  # it is a Yields
            scene.locks.abandon("k", "somebody-elses-token")
        in_the_store = ["a watch"] if interrupts.where.endswith(" watch") else []
        assert scene.leftovers() in ([], in_the_store), interrupts.where
        assert scene.lock.run(lambda: 7).value == 7
    assert points > 100


def test_an_interrupt_of_a_release_frees_the_key_or_leaves_the_handle_able_to() -> None:
    """C002, C007: wherever a release is interrupted, either the key is free or the same handle frees it."""

    def make() -> Scene:
        scene = Scene()
        scene.lock._recipe  # noqa: B018 - made outside of what is interrupted
        KEPT.append(scene.lock.acquire())
        return scene

    points = 0
    at = 0
    while True:
        scene, interrupts = make(), Interrupts(at=at)
        handle = KEPT.pop()
        try:
            interrupts.run(handle.release)
        except KeyboardInterrupt:
            assert interrupts.struck
        if not interrupts.struck:
            break
        if scene.locks.status("k").held:
            assert handle.release(), interrupts.where
        assert not scene.locks.status("k").held
        at, points = at + 1, points + 1
    assert points > 20


def test_ctrl_c_ends_a_long_wait_at_once() -> None:
    """C007: a real SIGINT in the middle of a wait of a minute raises `KeyboardInterrupt` within a second."""
    store = MemoryStore(BlockingClock())
    held = leased.connect(store).lock("k").acquire()
    locks = leased.connect(store)
    lock = locks.lock("k", wait=60)
    lines = locks._client().env.lines
    struck_at: list[float] = []

    def strike() -> None:
        while not store._bells:
            time.sleep(0.001)
        struck_at.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    for use in (lock.acquire, lambda: with_block(lock)):
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        striker = threading.Thread(target=strike)
        try:
            striker.start()
            with pytest.raises(KeyboardInterrupt):
                use()
            assert time.monotonic() - struck_at.pop() < 1
        finally:
            striker.join()
            signal.signal(signal.SIGINT, before)
        assert lines._lines == {}
    held.release()
    with lock:
        pass


def test_an_interrupted_body_is_left_as_any_other() -> None:
    """C077: Ctrl-C in a body comes out unchanged, and the key is free."""
    scene = Scene()
    error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as raised, scene.lock:
        raise error
    assert raised.value is error
    assert scene.leftovers() == []


def test_a_body_interrupted_just_as_it_ends_is_left_all_the_same() -> None:
    """H5, L12: a strike that is delivered anywhere on the way out, before the block takes it back, frees the key and
    comes out as `LeaseDeadlineExceeded`; none is delivered later."""
    at, points = 0, 0
    while True:
        scene = Scene(ttl=10.0, enforce=True)
        scene.lock.__enter__()._hold.stop = None  # only this test strikes
        interrupter = scene.lock._scopes[0]._interrupter
        assert interrupter is not None
        scene.store.offset += 9.9
        scene.lock._scopes[0].handle._hold.valid_until -= 9.9  # type: ignore[union-attr]  # it was entered
        interrupts = Interrupts(BodyInterrupted, at=at, unless=interrupter._left.is_set)
        at += 1
        try:
            interrupts.run(functools.partial(scene.lock.__exit__, None, None, None))
        except leased.LeaseDeadlineExceeded:
            points += interrupts.struck
            assert scene.leftovers() == [], interrupts.where
        except BodyInterrupted:
            assert interrupts.where.startswith("begin of")
            assert interrupts.where.endswith("__exit__")
            context._innermost.set(None)
        if not interrupts.struck:
            break
    assert points > 10
