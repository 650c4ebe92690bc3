"""A command line that was not understood, in words that say how it could be. Loaded only then; it runs nothing."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from leased.checks import did_you_mean
from leased.cli.parser import PUT_DASHES, Parser, UsageError, subcommand
from leased.targets import hide_secrets


def no_such_command(parser: Parser, arguments: Sequence[str], *, commands: Iterable[str]) -> UsageError | None:
    """What to say of a word in the place of the subcommand that names none; `None` if that was not the mistake."""
    word = subcommand(arguments)
    if word is None or word in commands:
        return None
    options = [option for option in arguments[: arguments.index(word)] if option.startswith("-")]
    unknown = [option for option in options if option.partition("=")[0] not in parser.options()]
    if unknown:
        return _unknown_option(parser, unknown[0])
    return UsageError(
        f"there is no command {hide_secrets(word)!r}", parser.format_usage(), hint=did_you_mean(word, commands)
    )


def left_over(given: argparse.Namespace, words: Sequence[str], *, command: Sequence[str] | None) -> UsageError:
    """What to say of words that the subcommand has no place for."""
    parser: Parser = given.parser
    if words[0].startswith("-"):
        return _unknown_option(parser, words[0])
    if given.command == "run" and command is None:
        return UsageError(PUT_DASHES, parser.format_usage())
    if given.command in {"renew", "release"}:  # not repeated: it may be the handle
        return UsageError("a handle is no argument: pipe it in, or put it into LEASED_HANDLE", parser.format_usage())
    shown = " ".join(hide_secrets(word) for word in words)
    return UsageError(f"unrecognized arguments: {shown}", parser.format_usage())


def _unknown_option(parser: Parser, option: str) -> UsageError:
    """Its name alone: what follows it may be a secret."""
    name = option.partition("=")[0]
    return UsageError(f"there is no option {name}", parser.format_usage(), hint=did_you_mean(name, parser.options()))
