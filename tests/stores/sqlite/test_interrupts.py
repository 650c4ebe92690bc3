"""An exception that a thread gets from outside, at any point of a call: the store goes on for everybody else."""

import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import leased
from leased.clocks import BlockingClock, step
from leased.join import Joined
from leased.model import Claim
from leased.stores.sqlite import SqliteStore
from tests.faces.interrupts import Interrupts
from tests.stores.sqlite.conftest import Make

Use = Callable[[Joined], Coroutine[Any, Any, object]]

USES: dict[str, Use] = {
    "acquire": lambda store: store.acquire(Claim("k", "the-token-of-the-interrupted", 5.0), timeout=1),
    "status": lambda store: store.status("k", timeout=1),
}


def _call(use: Use, store: Joined) -> object:
    return step(use(store))


@pytest.fixture(autouse=True)
def _quiet_leftovers() -> Iterator[None]:
    """A coroutine that an interrupt kept from starting is reported by the interpreter: that is not what is tested."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_an_interrupt_at_any_point_leaves_the_file_to_others(make: Make, use: Use) -> None:
    """C007, L12: wherever `KeyboardInterrupt` strikes, the next calls are served at once, joined or not."""
    store = make()
    joined = Joined(store, BlockingClock())
    step(joined.status("k", timeout=5))  # opens the file
    at = 0
    while True:
        interrupts = Interrupts(at=at)
        try:
            interrupts.run(partial(_call, use, joined))
        except KeyboardInterrupt:
            assert interrupts.struck
        if not interrupts.struck:
            break
        try:
            step(joined.abandon("k", "the-token-of-the-interrupted", timeout=1))
            step(store.status("k", timeout=1))
        except leased.StoreUnavailable as error:
            pytest.fail(f"interrupted {interrupts.where}: {error}")
        at += 1
    assert at > 30


def test_a_body_struck_while_it_waits_for_the_file_takes_nothing_with_it(tmp_path: Path) -> None:
    """H5, C007: an enforced lease ends while its body waits for another thread's transaction; then the error comes as
    soon as the file is the body's, and the file is given back."""
    locks = leased.connect(f"sqlite:{tmp_path}/locks.db")
    locks.status("k")
    store: Any = locks._client().store
    database = store._store._database
    assert isinstance(store._store, SqliteStore)
    database._line.acquire()  # as a long transaction does
    enforced = leased.connect("memory:struck-while-waiting").lock("e", ttl=0.2, enforce=True)
    struck = threading.Event()

    def give_back() -> None:
        assert struck.wait(5)
        database._line.release()

    other = threading.Thread(target=give_back)
    other.start()

    def body() -> None:
        held: Any = leased.current()
        held.on_lost(struck.set)
        locks.lock("k").try_acquire()

    with pytest.raises(leased.LeaseDeadlineExceeded):
        enforced.run(body)
    other.join()
    handle = locks.lock("k", wait=1).acquire()
    assert handle.release()
    locks.close()
