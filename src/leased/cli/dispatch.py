"""From arguments to an exit status: parses, finds the subcommand, turns every error into words and a number."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from leased.cli.output import Output
from leased.cli.parser import Parser, UsageError, build, subcommand
from leased.cli.streams import OutputFailed, drop, murmur, say_version, write
from leased.errors import InvalidRequest, LeasedError, LockNotAcquired

if TYPE_CHECKING:
    from leased.cli.session import Subcommand

_SUBCOMMANDS = {
    "run": "run",
    "status": "by_key",
    "list": "by_key",
    "top": "top",
    "force-release": "by_key",
    "acquire": "by_handle",
    "renew": "by_handle",
    "release": "by_handle",
    "doctor": "doctor",
    "schema": "schema",
    "verify": "verify",
    "completion": "completion",
    "keys": "keys",
    "config": "config",
    "serve": "serve",
}
"""The module of each subcommand; its function there is called like it."""

_SYSTEM_REFUSED, _OUTPUT_FAILED = 71, 74


def dispatch(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the subcommand that the arguments name."""
    output = Output.choose(environment, json="--json" in arguments)
    try:
        return _run(list(arguments), environment)
    except UsageError as error:
        murmur(error.usage)
        output.complain(error.message)
        output.hint(error.hint)
        return InvalidRequest.exit_status
    except LeasedError as error:
        output.complain(error.message)
        if not isinstance(error, LockNotAcquired):  # its hint is for programs
            output.hint(error.hint)
        return error.exit_status
    except BrokenPipeError:
        drop(sys.stdout)
        return 128 + signal.SIGPIPE
    except OutputFailed as error:
        output.complain(str(error))
        drop(sys.stdout)
        return _OUTPUT_FAILED
    except OSError as error:  # the stores turn theirs into errors of their own: here it was a process or a pipe
        output.complain(f"the system refused: {error.strerror or error}")
        return _SYSTEM_REFUSED


def _run(arguments: list[str], environment: Mapping[str, str]) -> int:
    if sys.stdout is not None:
        with contextlib.suppress(AttributeError, ValueError, OSError):  # replaced, or known to be full: see `write`
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    command: tuple[str, ...] | None = None
    if subcommand(arguments) == "run" and "--" in arguments:
        at = arguments.index("--")
        command = tuple(arguments[at + 1 :])
        arguments = arguments[:at]
    parser = build()
    try:
        given, left = _parse(parser, arguments)
    except SystemExit:  # it has printed the help that was asked for
        return 0
    if left:
        from leased.cli.mistakes import left_over

        raise left_over(given, left, command=command)
    if given.version:
        return say_version()
    if given.command is None:
        write(parser.format_help())
        return 0
    from leased.cli.session import Session  # only here, where a store is likely to be asked for

    module = importlib.import_module(f"leased.cli.{_SUBCOMMANDS[given.command]}")
    function: Subcommand = getattr(module, given.command.replace("-", "_"))
    return function(Session(given, environment, Output.choose(environment, json=given.json), command))


def _parse(parser: Parser, arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """What was given, and words that had no place."""
    try:
        given, left = parser.parse_known_args(arguments)
    except UsageError as error:
        from leased.cli.mistakes import no_such_command

        raise no_such_command(parser, arguments, commands=_SUBCOMMANDS) or error from None
    return given, [word for word in left if word != "--"]
