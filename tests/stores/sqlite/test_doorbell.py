"""Bells between processes: quick when they ring, harmless when they do not, gone with the last watch."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from leased.clocks import step
from leased.model import Abandon, Acquire, Claim, Held, Release
from leased.stores._doorbell import Doorbell, chime, doorbell
from leased.stores.sqlite import SqliteStore
from tests.stores.sqlite.conftest import Make
from tests.stores.sqlite.test_processes import heard, running


def bells_of(path: Path) -> Path:
    """Where the pipes of a file are."""
    return Path(f"{path}-bells")


def pipes(path: Path) -> list[Path]:
    """Those that are there."""
    return [name for name in bells_of(path).iterdir() if name.is_fifo()] if bells_of(path).exists() else []


def names(path: Path) -> list[Path]:
    """Under which they are found by those who ring."""
    return [name for name in bells_of(path).glob("*/*") if name.is_fifo()]


def room(path: Path, key: str = "key") -> Path:
    """The folder with the names for a key, made if it is not there."""
    folder = bells_of(path) / chime("", key)[:1].hex()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def name(path: Path, ending: str, key: str = "key") -> Path:
    """A name under which those who ring for a key look."""
    return room(path, key) / f"{chime('', key).hex()}-{ending}"


def listeners() -> int:
    """Threads that listen now."""
    return sum(thread.name == "leased-doorbell" for thread in threading.enumerate())


def until(condition: Callable[[], bool]) -> bool:
    """Whether it came true within some seconds."""
    give_up_at = time.monotonic() + 5.0
    while not condition():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.001)
    return True


def hold(store: SqliteStore, token: str, key: str = "key") -> None:
    """Get a key."""
    assert isinstance(step(store.acquire(Claim(key, token, 30.0), timeout=5.0)), Held)


def test_a_release_in_another_process_rings(make: Make, path: Path) -> None:
    """Whoever watches hears of each release, once it can be acted upon, wherever it took place."""
    store, rung = make(), threading.Event()
    with running("ring", path, "sqlite3") as process:
        heard(process)
        end = step(store.watch("key", rung.set))
        for turn in range(5):
            assert heard(process, f"token {turn}") == {"released": True}
            assert rung.wait(5.0)
            rung.clear()
            hold(store, f"ours {turn}")
            step(store.release("key", f"ours {turn}", timeout=5.0))
            assert rung.wait(5.0)
            rung.clear()
        end()


@pytest.mark.real_clock
def test_waiting_costs_nothing(make: Make, path: Path) -> None:
    """A process with watches uses no measurable time of the processor while nobody rings."""
    ends = [step(make().watch(f"key {number}", lambda: None)) for number in range(5)]
    began = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - began < 0.05
    for end in ends:
        end()


@pytest.mark.parametrize("freeing", ["release", "abandon", "force", "batch"])
def test_all_that_frees_rings(make: Make, freeing: str) -> None:
    """Release, abandon and forced release ring the watches of their key, of every store on the file, and no others."""
    store, other, apart = make(), make(), make(namespace="apart")
    rung: list[str] = []
    ends = [
        step(each.watch(key, lambda name=name: rung.append(name)))  # type: ignore[misc]  # a default binds the name
        for each, key, name in [(store, "key", "here"), (other, "key", "there"), (store, "b", "b"), (apart, "key", "x")]
    ]
    hold(store, "token")
    match freeing:
        case "release":
            step(store.release("key", "token", timeout=5.0))
        case "abandon":
            step(store.abandon("key", "token", timeout=5.0))
        case "force":
            step(store.force_release("key", timeout=5.0))
        case _:
            step(store.many([Acquire(Claim("c", "d", 9.0)), Release("key", "token"), Abandon("e", "f")], timeout=5.0))
    assert sorted(rung) == ["here", "there"]
    for end in ends:
        end()
    hold(store, "next")
    step(store.release("key", "next", timeout=5.0))
    assert len(rung) == 2


def test_what_frees_nothing_is_quiet(make: Make) -> None:
    """A refused release, or an abandon of nothing, wakes nobody."""
    store, rung = make(), threading.Event()
    end = step(store.watch("key", rung.set))
    hold(store, "token")
    step(store.release("key", "wrong", timeout=5.0))
    step(store.abandon("key", "other", timeout=5.0))
    assert not step(store.force_release("key", fencing_token=1, timeout=5.0))
    assert not rung.is_set()
    end()


def test_the_last_watch_takes_the_pipe_along(make: Make, path: Path) -> None:
    """One pipe and one thread serve all watches of a process; with the last both go, and no descriptor stays."""
    store, other = make(), make()
    assert until(lambda: listeners() == 0)
    before = len(os.listdir("/dev/fd"))
    ends = [step(each.watch(key, lambda: None)) for each in (store, other) for key in ("a", "b")]
    assert (len(pipes(path)), len(names(path)), listeners()) == (1, 2, 1)
    for end in ends:
        assert len(pipes(path)) == 1
        end()
        end()
    assert pipes(path) == names(path) == []
    assert until(lambda: listeners() == 0)
    assert until(lambda: len(os.listdir("/dev/fd")) <= before)


def test_closing_a_store_ends_its_watches(make: Make, path: Path) -> None:
    """A store that was closed listens no more, and leaves the watches of others on the file alone."""
    closed, other = make(), make()
    rung: list[str] = []
    step(closed.watch("key", lambda: rung.append("closed")))
    end = step(other.watch("key", lambda: rung.append("other")))
    step(closed.close())
    hold(other, "token")
    step(other.release("key", "token", timeout=5.0))
    assert rung == ["other"]
    end()
    assert pipes(path) == []


def test_one_bell_may_be_given_twice(make: Make) -> None:
    """Two watches with the same bell are two: to end one of them, even twice, leaves the other."""
    store, rung = make(), threading.Event()
    first, second = (step(store.watch("key", rung.set)) for _ in range(2))
    first()
    first()
    hold(store, "token")
    step(store.release("key", "token", timeout=5.0))
    assert rung.is_set()
    second()


def test_watches_come_and_go_while_others_ring(path: Path) -> None:
    """The end of a watch never meets a bell badly: no descriptor is closed under the other's hands."""
    path.touch()
    stop = threading.Event()
    here = Doorbell(str(bells_of(path)))
    elsewhere = Doorbell(str(bells_of(path)))  # as another process would have: it knows nothing of the first

    def ring() -> None:
        while not stop.is_set():
            elsewhere.ring([chime("", "key")])

    ringer = threading.Thread(target=ring)
    ringer.start()
    try:
        for _ in range(200):
            rung = threading.Event()
            end = here.watch(chime("", "key"), rung.set, mode=0o600, group=-1)
            assert rung.wait(5.0)
            end()
    finally:
        stop.set()
        ringer.join()
    assert pipes(path) == names(path) == []


def test_a_release_wakes_only_those_who_wait_for_its_key(path: Path) -> None:
    """A process that watches one key is not bothered by releases of others."""
    path.touch()
    here, elsewhere = Doorbell(str(bells_of(path))), Doorbell(str(bells_of(path)))
    rung = threading.Event()
    end = here.watch(chime("", "key"), rung.set, mode=0o600, group=-1)
    read: list[bytes] = []
    ring_here = here._ring_here

    def listen(sound: bytes) -> None:
        read.append(sound)
        ring_here(sound)

    here._ring_here = listen  # type: ignore[method-assign]  # to see what comes through the pipe
    elsewhere.ring([chime("", f"other {number}") for number in range(600)])
    elsewhere.ring([chime("other", "key"), chime("", "key")])
    assert rung.wait(5.0)
    assert read == [chime("", "key")]
    end()


def test_pipes_of_dead_processes_go(make: Make, path: Path) -> None:
    """A name whose pipe nobody reads is removed by whoever rings, a forgotten pipe by the next who watches."""
    store = make()
    hold(store, "token")
    dead, forgotten, unfinished = name(path, "dead"), bells_of(path) / ".forgotten", bells_of(path) / ".unfinished"
    for pipe in (dead, forgotten, unfinished):
        os.mkfifo(pipe)
    os.utime(forgotten, (0, 0))
    step(store.release("key", "token", timeout=5.0))
    assert (dead.exists(), forgotten.exists(), unfinished.exists()) == (False, True, True)
    step(store.watch("key", lambda: None))()
    assert pipes(path) == [unfinished]


def test_an_old_pipe_that_is_read_stays(make: Make, path: Path) -> None:
    """A process that has been watching for long is still heard of when others begin to watch."""
    store, rung = make(), threading.Event()
    end = step(store.watch("key", rung.set))
    (pipe,) = pipes(path)
    os.utime(pipe, (0, 0))
    other = Doorbell(str(bells_of(path)))
    other.watch(chime("", "key"), lambda: None, mode=0o600, group=-1)()
    other.ring([chime("", "key")])
    assert rung.wait(5.0)
    assert pipes(path) == [pipe]
    end()


def test_a_killed_watcher_leaves_nothing_for_long(make: Make, path: Path) -> None:
    """A killed process is looked for no more after the next release."""
    store = make()
    hold(store, "token")
    with running("show_descriptors", path) as process:
        heard(process)
    assert len(names(path)) == 1
    step(store.release("key", "token", timeout=5.0))
    assert names(path) == []


def test_only_pipes_are_written_to(make: Make, path: Path, tmp_path: Path) -> None:
    """Files, links and directories that somebody put among the pipes are neither changed nor followed."""
    store, victim = make(), tmp_path / "victim"
    victim.write_text("untouched")
    name(path, "link").symlink_to(victim)
    name(path, "file").write_text("untouched")
    name(path, "directory").mkdir()
    hold(store, "token")
    step(store.release("key", "token", timeout=5.0))
    assert victim.read_text() == name(path, "file").read_text() == "untouched"
    assert len(list(room(path).iterdir())) == 3


def test_a_watcher_who_does_not_listen_stops_nobody(make: Make, path: Path) -> None:
    """When a process does not read its pipe it fills up; releases go on as ever."""
    store = make()
    pipe = name(path, "stopped")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for _ in range(20_000):
            doorbell(str(bells_of(path))).ring([chime("", "key")])
        hold(store, "token")
        assert step(store.release("key", "token", timeout=5.0))
        assert os.read(reader, 16) == 2 * chime("", "key")
    finally:
        os.close(reader)


def test_without_pipes_watches_work_within_the_process(make: Make, path: Path) -> None:
    """Where the directory can hold no pipes waiters poll: a watch is no error, and rings for this process."""
    bells_of(path).write_text("in the way")
    store, other, rung = make(), make(), threading.Event()
    end = step(store.watch("key", rung.set))
    hold(other, "token")
    step(other.release("key", "token", timeout=5.0))
    assert rung.is_set()
    end()
    assert listeners() == 0


def test_a_watch_needs_no_file_yet(make: Make, path: Path) -> None:
    """Watching comes before the first look at a store, so it opens nothing."""
    rung = threading.Event()
    end = step(make().watch("key", rung.set))
    assert not path.exists()
    assert len(names(path)) == 1
    other = make()
    hold(other, "token")
    step(other.release("key", "token", timeout=5.0))
    assert rung.is_set()
    end()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_has_no_watches(make: Make, path: Path) -> None:
    """A child inherits neither bells nor the name of the pipe: it rings the parent, and its end takes nothing away."""
    store, rung = make(), threading.Event()
    end = step(store.watch("key", rung.set))
    before = sorted(names(path))
    child = os.fork()
    if child == 0:
        try:
            hold(store, "token")
            step(store.release("key", "token", timeout=5.0))
            own = step(store.watch("key", lambda: None))
            count = len(names(path))
            own()
            os._exit(count)
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert rung.wait(5.0)
    assert sorted(names(path)) == before
    end()
    assert pipes(path) == names(path) == []
