"""Warnings that the library logs, as lines for people on standard error. It says nothing that is told elsewhere."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from leased.cli.output import Output


@contextlib.contextmanager
def log_shown(output: Output) -> Iterator[None]:
    """While the block runs, each warning and error of the logger `leased` is told once, whatever else logs it."""
    handler = _Telling(output)
    logger = logging.getLogger("leased")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Telling(logging.Handler):
    """Tells each message once, on one line; a fault of ours with its traceback, for whoever is to mend it."""

    def __init__(self, output: Output) -> None:
        super().__init__(logging.WARNING)
        self._output = output
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if record.module == "observe" and not record.exc_info:
            return  # an event: the command says in its own words what it means here
        message = record.getMessage()
        if message in self._told:
            return
        self._told.add(message)
        self._output.warn(message)
        if record.exc_info and record.exc_info[0] is not None:
            import traceback

            for part in traceback.format_exception(*record.exc_info):
                for line in part.splitlines():
                    self._output.talk(line)
