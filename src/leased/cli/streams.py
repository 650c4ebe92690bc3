"""The standard streams: data to one, talk to the other, at once. It knows no format, and loads next to nothing."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO


class OutputFailed(Exception):
    """Data could not be written, for another reason than that its reader has left."""


def is_terminal(stream: TextIO | None) -> bool:
    """Whether the stream is there, open, and a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def write(text: str) -> None:
    """Write data at once; `BrokenPipeError` if its reader has left, `OutputFailed` if it cannot be written."""
    if sys.stdout is None:
        raise OutputFailed("standard output is closed")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        raise OutputFailed(f"standard output cannot be written: {error}") from error


def murmur(text: str) -> None:
    """Write talk at once; where standard error is closed, full or broken there is nobody to tell."""
    if sys.stderr is not None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            drop(sys.stderr)


def drop(stream: TextIO | None) -> None:
    """Let what is still buffered go nowhere: nobody reads it, and the interpreter must not fail over it at its end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # type: ignore[union-attr]  # a stream that is not there raises, too
        os.close(nowhere)


def say_version() -> int:
    """Print name and version."""
    from leased import __version__

    write(f"leased {__version__}\n")
    return 0
