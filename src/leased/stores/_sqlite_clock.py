"""The clock of this host for leases in a file: counts suspend, cannot be set, and knows its boot. It never sleeps."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from leased.errors import StoreNotUsable
from leased.stores._sqlite_failures import OUT_OF_FILES, from_system

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True, slots=True)
class HostClock:
    """Three readings: µs since this boot, µs since the epoch, and the id of this boot."""

    boot: Callable[[], int]
    wall: Callable[[], int]
    boot_id: Callable[[], str]


def _wall() -> int:
    return time.time_ns() // 1000


if sys.platform == "darwin":

    def _boot_clock() -> Callable[[], int]:
        return lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000

    def _boot_id() -> str:
        import ctypes

        text = ctypes.create_string_buffer(64)
        size = ctypes.c_size_t(len(text))
        if ctypes.CDLL(None).sysctlbyname(b"kern.bootsessionuuid", text, ctypes.byref(size), None, 0):
            raise StoreNotUsable("this system does not tell its boots apart (kern.bootsessionuuid)")
        return text.value.decode()

else:

    def _boot_clock() -> Callable[[], int]:
        ahead = _ahead_in_this_namespace()
        return lambda: (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ahead) // 1000

    def _boot_id() -> str:
        try:
            return Path(_BOOT_ID).read_text().strip()
        except OSError as error:
            if error.errno in OUT_OF_FILES:
                raise from_system(_BOOT_ID, error) from error
            raise StoreNotUsable(
                f"this system does not tell its boots apart: {error}", hint="mount /proc, or use another store"
            ) from error


def _ahead_in_this_namespace() -> int:
    """By how many nanoseconds a container with a time namespace of its own runs ahead of the host."""
    try:
        lines = Path("/proc/self/timens_offsets").read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        name, seconds, nanoseconds = line.split()
        if name in ("boottime", "7"):
            return int(seconds) * 1_000_000_000 + int(nanoseconds)
    return 0


def host_clock() -> HostClock:
    """The real one."""
    return HostClock(_boot_clock(), _wall, _boot_id)
