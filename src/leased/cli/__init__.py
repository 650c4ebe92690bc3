"""The command `leased`: reads arguments, calls a function per subcommand, answers with a status; it locks nothing."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

__all__ = ["main"]

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None, env: Mapping[str, str] | None = None) -> int:
    """Run one command and return its exit status; never raises, except when its own code is at fault.

    `argv` is without the program's name (default: that of this process), `env` the environment to read settings from.
    """
    try:
        import contextlib
        import os

        arguments = list(sys.argv[1:] if argv is None else argv)
        if arguments in (["--version"], ["-V"]):
            from leased.cli.streams import OutputFailed, say_version

            with contextlib.suppress(BrokenPipeError, OutputFailed):  # told below, where it fails again
                return say_version()
        from leased.cli.dispatch import dispatch

        return dispatch(arguments, os.environ.copy() if env is None else env)
    except KeyboardInterrupt:
        return _INTERRUPTED
