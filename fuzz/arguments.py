"""Arguments of the command: parsed or refused with words; nothing else is run."""

from fuzz.given import text_of
from leased.cli.dispatch import _parse
from leased.cli.mistakes import left_over
from leased.cli.parser import UsageError, build, subcommand


def check(data: bytes) -> None:
    """Only `UsageError` is raised, or the help is printed that was asked for."""
    words = [text_of(word) for word in data.split(b"\0")]
    subcommand(words)
    try:
        given, left = _parse(build(), words)
        if left:
            raise left_over(given, left, command=None)
    except UsageError as error:
        assert error.message
    except SystemExit as ended:
        assert not ended.code
