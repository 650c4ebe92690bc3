"""`manage.py locked KEY COMMAND …`: runs another management command under a lock, or not at all."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

from django.core.management import BaseCommand, CommandError, call_command  # type: ignore[import-untyped]

from leased.contrib.django import locks
from leased.errors import LeasedError, LockNotAcquired

_KILLED = 128
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Command(BaseCommand):  # type: ignore[misc]
    """Its exit status is as of `leased run`: 75 if somebody else has the key, 76 if the lease was lost meanwhile, 69 if
    the store does not answer, 128+N if signal N ended it; else that of the command.

    Ctrl-C, SIGTERM and SIGHUP end the command as `SystemExit` does, and free its key. Where the command handles one of
    them itself, that is how it is."""

    help = "Run a management command under a lock of this project, so that it runs in one place at a time."

    def add_arguments(self, parser: Any) -> None:
        """See Django."""
        parser.add_argument("key", help="what to lock")
        parser.add_argument("command", help="the management command to run")
        parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
        parser.add_argument("--wait", default="0", help="how long to wait for the key, such as 10m (0)")
        parser.add_argument("--ttl", default="30s", help="how long a process that dies keeps the key (30s)")
        parser.add_argument("--skip", action="store_true", help="if somebody else has the key, end with status 0")

    def handle(self, *_: Any, **given: Any) -> None:
        """See Django."""
        try:
            with _ended_by_signals():
                self._run(given)
        except LeasedError as error:
            raise CommandError(str(error), returncode=error.exit_status) from error
        except KeyboardInterrupt:
            raise SystemExit(_KILLED + signal.SIGINT) from None

    def _run(self, given: dict[str, Any]) -> None:
        lock = locks().lock(given["key"], ttl=given["ttl"], wait=given["wait"], name="manage")
        with ExitStack() as block:
            try:
                block.enter_context(lock)
            except LockNotAcquired as busy:
                if not given["skip"]:
                    raise
                self.stderr.write(f"skipped: {busy.message}")
                return
            call_command(given["command"], *given["arguments"])


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Inside, the first signal that would kill this process raises `SystemExit`, so that what is held is released; more
    of them change nothing, for some send each twice. What somebody else handles or ignores is left alone."""
    taken: list[int] = []

    def end(number: int, _: Any) -> NoReturn:
        for one in taken:
            signal.signal(one, signal.SIG_IGN)
        raise SystemExit(_KILLED + number)

    if threading.current_thread() is threading.main_thread():
        taken += [one for one in _ENDING if signal.getsignal(one) is signal.SIG_DFL]
    for one in taken:
        signal.signal(one, end)
    try:
        yield
    finally:
        for one in taken:
            if signal.getsignal(one) in (end, signal.SIG_IGN):
                signal.signal(one, signal.SIG_DFL)
