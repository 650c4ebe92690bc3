"""The clock of the file: boots, wall clocks that move, fencing tokens through all of it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leased.clocks import step
from leased.errors import StoreNotUsable
from leased.model import DEFAULT_TERMS, Claim, Contended, Held, Lost, Status, Terms
from leased.policy import DEFAULT_MAX_HOLD, MAX_TTL, REPLAY_WINDOW
from leased.stores import _sqlite_clock
from leased.stores._sqlite_clock import host_clock
from leased.stores.sqlite import SqliteStore
from tests.stores.sqlite.conftest import Host, Make, rows


def hold(
    store: SqliteStore, token: str = "token", *, ttl: float = 30.0, key: str = "key", terms: Terms = DEFAULT_TERMS
) -> Held:
    """Get a key."""
    granted = step(store.acquire(Claim(key, token, ttl, terms=terms), timeout=2.0))
    assert isinstance(granted, Held)
    return granted


def state(store: SqliteStore, key: str = "key") -> Status:
    """What anyone may see."""
    return step(store.status(key, timeout=2.0))


def test_a_reboot_ends_all_leases(make: Make) -> None:
    """After a reboot nobody holds anything, whatever was left of the lease, and numbers go on rising."""
    host = Host()
    before = hold(make(clock=host.clock()), ttl=MAX_TTL)
    host.reboot()
    store = make(clock=host.clock())
    assert state(store).state == "free"
    assert step(store.renew("key", "token", ttl=30.0, number=1, timeout=2.0)) == Lost("expired")
    assert hold(store, "next").lease.fencing_token > before.lease.fencing_token


def test_a_boot_clock_that_has_not_come_far_revives_nothing(make: Make) -> None:
    """A lease of an earlier boot is not read on the clock of this one, which starts again from zero."""
    host = Host(boot=10_000_000.0)
    hold(make(clock=host.clock()), ttl=60.0)
    host.reboot(up=0.5)
    assert state(make(clock=host.clock())).state == "free"


@pytest.mark.parametrize(
    ("terms", "closed_for"),
    [(Terms(hold_at_least=3600.0), 3600.0 - 40.0), (Terms(lock_delay=100.0), 100.0 - 10.0)],
    ids=["hold_at_least", "lock_delay"],
)
def test_closed_periods_go_on_through_a_reboot(make: Make, terms: Terms, closed_for: float) -> None:
    """`hold_at_least` counts from the grant, `lock_delay` from the reboot that ended the lease, on the wall clock."""
    host = Host()
    hold(make(clock=host.clock()), ttl=60.0, terms=terms)
    host.reboot(down=30.0, up=10.0)
    store = make(clock=host.clock())
    seen = state(store)
    assert (seen.state, seen.owner) == ("closed", None)
    assert seen.free_in == pytest.approx(closed_for)
    assert isinstance(step(store.acquire(Claim("key", "next", 30.0), timeout=2.0)), Contended)
    host.move(closed_for)
    hold(store, "next")


def test_a_released_key_stays_closed_through_a_reboot(make: Make) -> None:
    """A job that finished at once does not run again on the same day because the machine was restarted."""
    host = Host()
    store = make(clock=host.clock())
    hold(store, ttl=90.0, terms=Terms(hold_at_least=3600.0))
    host.move(60.0)
    assert step(store.release("key", "token", timeout=2.0))
    host.reboot(down=30.0, up=10.0)
    assert state(make(clock=host.clock())).free_in == pytest.approx(3600.0 - 100.0)


def test_sweeping_keeps_what_a_reboot_left_closed(make: Make, path: Path) -> None:
    """Rows of an earlier boot go when they are over, and are carried into this boot's time when they are not."""
    host = Host()
    store = make(clock=host.clock())
    hold(store, terms=Terms(hold_at_least=3600.0))
    for number in range(20):
        hold(store, f"t{number}", key=f"lapses-{number}")
    host.reboot(down=60.0, up=100.0)
    other = make(clock=host.clock())
    for number in range(40):
        hold(other, f"n{number}", key="free", ttl=0.2)
        step(other.release("free", f"n{number}", timeout=2.0))
    assert rows(path, "SELECT key, boot FROM record") == [("key", 2)]
    assert state(other).free_in == pytest.approx(3600.0 - 160.0)


def test_the_wall_clock_moves_no_lease(make: Make) -> None:
    """Setting the wall clock, in either direction, neither ends nor stretches a lease."""
    host = Host()
    store = make(clock=host.clock())
    hold(store, ttl=30.0)
    host.move(10.0)
    for wall in (0.0, 4e9):
        host.wall = wall
        assert state(store).expires_in == pytest.approx(20.0)
    host.wall = 0.0
    host.move(20.0)
    assert state(store).state == "free"


def test_numbers_rise_while_the_wall_clock_goes_back(make: Make) -> None:
    """Fencing tokens rise with every grant: after the clock was set back, over restart and reboot, and for all keys."""
    host = Host()
    seen = [hold(make(clock=host.clock())).lease.fencing_token]
    assert seen == [int(host.wall * 1e6)]
    host.wall -= 86_400.0
    host.reboot()
    for number in range(3):
        seen.append(hold(make(clock=host.clock()), "next", key=f"key-{number}").lease.fencing_token)
    assert seen == sorted(set(seen))
    assert seen[-1] < 2**53


def test_a_lost_file_is_followed_by_higher_numbers(make: Make, path: Path) -> None:
    """A new file starts from the wall clock, above all numbers of the lost one."""
    first = hold(make()).lease.fencing_token
    path.unlink()
    assert hold(make()).lease.fencing_token > first


def test_marks_do_not_outlive_their_boot(make: Make) -> None:
    """An ended token is refused for the replay window of its boot; after a reboot no copy of its claim is left."""
    host = Host()
    store = make(clock=host.clock())
    step(store.abandon("key", "token", timeout=2.0))
    host.move(REPLAY_WINDOW - 1.0)
    refused = step(store.acquire(Claim("key", "token", 30.0), timeout=2.0))
    assert isinstance(refused, Contended)
    assert refused.ended
    host.reboot(up=0.1)
    hold(make(clock=host.clock()))


def test_two_boots_at_once_are_noticed(make: Make) -> None:
    """Where two machines share the file, the one that was there first is told so, instead of going on alone."""
    host = Host()
    first, second = make(clock=host.clock()), make(clock=Host(boot_id="other").clock())
    hold(first)
    hold(second, "second")
    with pytest.raises(StoreNotUsable, match=r"two boots at once: other and, here, first.*one host"):
        step(first.renew("key", "token", ttl=30.0, number=1, timeout=2.0))
    with pytest.raises(StoreNotUsable, match="two boots"):
        step(first.force_release("key", timeout=2.0))
    assert isinstance(step(second.look("key", "second", timeout=2.0)), Held)


def test_offset_moves_both_clocks(make: Make) -> None:
    """Tests let leases expire without sleeping: time that is added to the store counts for leases and numbers."""
    store, other = make(), make()
    first = hold(store)
    other.offset = 31.0
    second = hold(other, "next")
    assert second.lease.fencing_token >= first.lease.fencing_token + 30_000_000


def test_the_longest_times_are_exact(make: Make) -> None:
    """A ttl and a hold at their maximum neither wrap nor shrink, and end to the microsecond (C061)."""
    host = Host()
    store = make(clock=host.clock())
    assert hold(store, ttl=MAX_TTL).lease.left == MAX_TTL == DEFAULT_MAX_HOLD
    host.move(MAX_TTL - 0.000_002)
    assert state(store).held
    host.move(0.000_004)
    assert not state(store).held


def test_durations_are_rounded_up(make: Make, path: Path) -> None:
    """A duration that is no whole number of microseconds is kept a little longer, never shorter."""
    assert hold(make(), ttl=0.300_000_01).lease.left >= 0.3 + 1e-8
    assert rows(path, "SELECT ttl FROM record") == [(300_001,)]


DAYLIGHT = """
import sys, time
from leased.clocks import step
from leased.model import DEFAULT_TERMS, Claim
from leased.stores._sqlite_clock import HostClock
from leased.stores.sqlite import SqliteStore

for number, wall in enumerate((1774745999, 1792889999)):  # a second before each change of 2026 in central Europe
    now = [wall]
    clock = HostClock(lambda: (now[0] - wall + 1000) * 1_000_000, lambda: now[0] * 1_000_000, lambda: "boot")
    store = SqliteStore(sys.argv[1] + str(number), clock=clock)
    step(store.acquire(Claim("key", "token", 30.0), timeout=2.0))
    for _ in range(4):
        seen = step(store.status("key", timeout=2.0))
        print(seen.state, seen.expires_in, seen.expires_at - now[0], seen.acquired_at - wall, time.tzname)
        now[0] += 5
    step(store.renew("key", "token", ttl=7200.0, number=1, timeout=2.0))
    print(step(store.look("key", "token", timeout=2.0)).lease.left)
    now[0] += 7200
    print(step(store.status("key", timeout=2.0)).state)
    step(store.close())
"""


def test_daylight_saving_changes_nothing(tmp_path: Path) -> None:
    """Acquire, renewal, expiry and status run the same across both changes of the clocks, in any time zone (C068)."""
    told = []
    for zone in ("UTC", "Europe/Berlin", "Australia/Lord_Howe"):
        done = subprocess.run(
            [sys.executable, "-c", DAYLIGHT, str(tmp_path / zone.replace("/", "-"))],
            env={**os.environ, "TZ": zone},
            capture_output=True,
            text=True,
            check=True,
        )
        told.append([line.partition(" (")[0] for line in done.stdout.splitlines()])
    assert told[0][:2] == ["held 30.0 30.0 0.0", "held 25.0 25.0 0.0"]
    assert told[0][4:6] == ["7200.0", "free"]
    assert told[0] == told[1] == told[2]


def test_the_host_clock_is_the_boot_clock() -> None:
    """The real clock counts from the boot, also the time the machine sleeps, and names the boot as the kernel does."""
    clock = host_clock()
    earliest = time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else 0.0
    assert clock.boot() / 1e6 >= int(earliest)
    assert abs(clock.wall() / 1e6 - time.time()) < 60.0
    assert clock.boot_id() == host_clock().boot_id() != ""


def test_a_time_namespace_is_seen_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container with a clock of its own, the store reads the clock of the host: they share the leases."""
    if sys.platform != "linux":
        pytest.skip("time namespaces exist on Linux")  # never in CI, which is Linux
    real = host_clock().boot()
    texts = {"/proc/self/timens_offsets": "monotonic 0 0\nboottime 86400 500000000\n"}
    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path: texts.get(str(path)) or read(path))
    assert host_clock().boot() - real == pytest.approx(-86_400_500_000, abs=60_000_000)
    texts["/proc/self/timens_offsets"] = "monotonic 5 0\n"
    assert host_clock().boot() - real == pytest.approx(0, abs=60_000_000)


def test_a_system_without_boot_ids_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where boots cannot be told apart there is no store, and the error says what is missing."""
    if sys.platform != "linux":
        pytest.skip("the boot id is a file on Linux")  # never in CI, which is Linux

    def fail(path: Path) -> str:
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(Path, "read_text", fail)
    with pytest.raises(StoreNotUsable, match="tell its boots apart.*mount /proc"):
        _sqlite_clock.host_clock().boot_id()
