"""Writes `man/leased.1`, the manual page of the command, from its parser; with `--check` it only compares."""

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import leased
from leased.cli.parser import ABOUT, EXAMPLE, EXIT_STATUSES, build

PAGE = Path(__file__).parent.parent / "man" / "leased.1"
NOTE = r".\" Written by scripts/manpage.py from the parser; change that and run `make reference`."
ENVIRONMENT = (
    ("LEASED_URL", "the store, where --url names none"),
    ("LEASED_API_KEY", "the credential for a lock service"),
    ("LEASED_HANDLE", "the handle for renew and release, rather than on standard input"),
    ("LEASED_SERVE_NAME", "any setting of serve, such as LEASED_SERVE_PORT"),
    ("LEASED_KEY, LEASED_FENCING_TOKEN, LEASED_OWNER", "set by run for its command"),
    ("NO_COLOR", "if not empty: no colours"),
    ("XDG_STATE_HOME", "where the file of this user is, if not in ~/.local/state"),
)
FILES = (
    ("leased.toml", 'in the working directory or the nearest one above: url = "..." names the store'),
    (
        "~/.local/state/leased/locks.db",
        "the store where nothing names another; on macOS in ~/Library/Application Support",
    ),
)


def escaped(text: str) -> str:
    """Text as roff shows it unchanged: no escape, no hyphenation of options, no request at the beginning of a line."""
    safe = text.replace("\\", r"\e").replace("-", r"\-").replace("…", "...").replace("`", r"\(ga").replace("'", r"\(aq")
    ascii_only = "".join(c if c.isascii() else rf"\[u{ord(c):04X}]" for c in safe)
    return rf"\&{ascii_only}" if ascii_only.startswith(".") else ascii_only


def entry(term: str, text: str) -> Iterator[str]:
    """A term and, indented, what it means."""
    yield ".TP"
    yield term
    yield escaped(text)


def spelled(action: argparse.Action) -> str:
    """An option or argument as it is typed: what is meant literally in bold, what is to be replaced in italics."""
    choices = f"{{{','.join(map(str, action.choices))}}}" if action.choices else ""
    value = escaped(str(action.metavar or choices or action.dest.upper()))
    if not action.option_strings:
        return rf"\fI{value}\fR"
    names = ", ".join(rf"\fB{escaped(name)}\fR" for name in action.option_strings)
    return names if action.nargs == 0 else rf"{names} \fI{value}\fR"


def options(actions: Iterable[argparse.Action]) -> Iterator[str]:
    """All that have a text."""
    for action in actions:
        if action.help:
            yield from entry(spelled(action), action.help)


def example(text: str) -> Iterator[str]:
    """Lines that stay as they are."""
    yield from [".PP", ".nf"]
    yield from (escaped(line) if line else ".sp" for line in text.splitlines())
    yield ".fi"


def command(name: str, parser: argparse.ArgumentParser, *, known: set[str]) -> Iterator[str]:
    """The subsection of a subcommand."""
    yield f".SS {escaped(f'leased {name}')}"
    yield escaped(parser.description or "")
    yield ".PP"
    yield rf"\fB{escaped(parser.usage or '')}\fR"
    yield from options(action for action in parser._actions if not known.intersection(action.option_strings))
    if parser.epilog:
        yield from example(parser.epilog)


def page() -> str:
    """The whole page."""
    parser = build()
    (commands,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    common = [action for action in parser._actions if action is not commands]
    known = {name for action in common for name in action.option_strings}
    lines = [NOTE, f'.TH LEASED 1 "" "leased {leased.__version__}" "User Commands"']
    lines += [".SH NAME", r"leased \- exclusive, expiring, fenced claims on named keys"]
    lines += [".SH SYNOPSIS", r"\fBleased\fR [\fIoptions\fR] \fICOMMAND\fR [\fIarguments\fR]"]
    lines += [".SH DESCRIPTION", escaped(ABOUT), *example(EXAMPLE)]
    lines += [
        ".PP",
        escaped(
            "Data goes to standard output, as a table on a terminal and as JSON lines in a pipe or with --json; talk "
            "goes to standard error. Times are seconds or text such as 90s, 1m30s, 250ms."
        ),
    ]
    lines += [".SH OPTIONS", escaped("These stand before or after every command."), *options(common)]
    lines.append(".SH COMMANDS")
    for name, inner in commands.choices.items():
        lines += command(name, inner, known=known)
    for title, rows in (("EXIT STATUS", EXIT_STATUSES), ("ENVIRONMENT", ENVIRONMENT), ("FILES", FILES)):
        lines.append(f".SH {title}")
        for term, text in rows:
            lines += entry(rf"\fB{escaped(term)}\fR", text)
    lines += [".SH SEE ALSO", r"\fBflock\fR(1), \fBcrontab\fR(5), \fBsystemd.service\fR(5)"]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write or compare; 1 when the page is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the page is not up to date")
    if parser.parse_args().check:
        stale = not PAGE.exists() or PAGE.read_text() != page()
        if stale:
            print("stale: man/leased.1; run `make reference`", file=sys.stderr)
        return int(stale)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
