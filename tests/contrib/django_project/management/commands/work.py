"""A command that says when it runs, works until it is told to end, and fails if it is told so."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management import BaseCommand, CommandError  # type: ignore[import-untyped]

import leased


class Command(BaseCommand):  # type: ignore[misc]
    """See above."""

    def add_arguments(self, parser: Any) -> None:
        """See Django."""
        parser.add_argument("--fail", action="store_true")

    def handle(self, *_: Any, **given: Any) -> None:
        """See Django."""
        try:
            self.stdout.write(f"runs {leased.current_fencing_token()}")
            self.stdout.flush()
            sys.stdin.readline()
        finally:
            self.stdout.write("ends")
            self.stdout.flush()
        if given["fail"]:
            raise CommandError("the work failed", returncode=3)
