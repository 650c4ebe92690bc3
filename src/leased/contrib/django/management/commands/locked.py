"""`manage.py locked KEY COMMAND …`: runs another management command under a lock, or not at all."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import Any

from django.core.management import BaseCommand, CommandError, call_command  # type: ignore[import-untyped]

from leased.contrib.django import locks
from leased.errors import LeasedError, LockNotAcquired


class Command(BaseCommand):  # type: ignore[misc]
    """Its exit status is as of `leased run`: 75 if somebody else has the key, 76 if the lease was lost meanwhile, 69 if
    the store does not answer; else that of the command."""

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
        except LeasedError as error:
            raise CommandError(str(error), returncode=error.exit_status) from error
