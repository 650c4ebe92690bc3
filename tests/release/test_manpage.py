"""The manual page says what the parser says, in roff that programs accept."""

import argparse
import os
import re
import shutil
import subprocess

import pytest

import leased
from leased.cli.parser import EXIT_STATUSES, build
from scripts.manpage import PAGE, escaped, page

SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"]
REQUESTS = {"TH", "SH", "SS", "PP", "TP", "nf", "fi", "sp"}


def shown(text: str) -> str:
    """Roff as it reads, as far as our own page uses it."""
    text = re.sub(r"\\f[BIR]|\\&", "", text)
    text = re.sub(r"\\\[u([0-9A-F]+)\]", lambda match: chr(int(match[1], 16)), text)
    return text.replace(r"\-", "-").replace(r"\(ga", "`").replace(r"\(aq", "'").replace(r"\e", "\\")


def test_the_page_is_up_to_date() -> None:
    """What is in the tree, and in the wheel, is what the parser gives now."""
    assert PAGE.read_text() == page(), "run `make reference`"


def test_every_command_option_and_status_is_there() -> None:
    """Nothing that can be typed is missing."""
    text = shown(page())
    (commands,) = [action for action in build()._actions if isinstance(action, argparse._SubParsersAction)]
    for name, parser in commands.choices.items():
        assert f"\n.SS leased {name}\n" in text
        for action in parser._actions:
            for option in action.option_strings:
                assert option in text
    for status, meaning in EXIT_STATUSES:
        assert f".TP\n{status}\n{meaning}\n" in text
    assert f'"leased {leased.__version__}"' in text


def test_its_structure_is_that_of_a_manual_page() -> None:
    """Sections in their usual order; no request but known ones; a term and a text below each tag; ASCII throughout."""
    lines = page().splitlines()
    assert [line.removeprefix(".SH ") for line in lines if line.startswith(".SH ")] == SECTIONS
    assert {line[1:].split()[0] for line in lines if line.startswith(".") and not line.startswith(r".\"")} <= REQUESTS
    assert page().isascii()
    for at, line in enumerate(lines):
        assert line, "an empty line is a request to some programs"
        if line == ".TP":
            assert not lines[at + 1].startswith(".")
            assert not lines[at + 2].startswith(".")
    assert lines.count(".nf") == lines.count(".fi")


def test_text_cannot_become_a_request() -> None:
    """A line that begins like a request, a backslash, an option and other characters are shown as they are."""
    assert escaped(r".so /etc/passwd") == r"\&.so /etc/passwd"
    assert escaped("'quoted'") == r"\(aqquoted\(aq"
    assert escaped(r"a\b --x é …") == r"a\eb \-\-x \[u00E9] ..."


def test_a_program_that_checks_such_pages_accepts_it() -> None:
    """It has nothing to say against it, but that it is of no date."""
    if shutil.which("mandoc") is None and os.environ.get("CI") != "true":
        pytest.skip("mandoc is not installed: apt-get install mandoc")  # in CI it has to be there, or the test fails
    lint = ["mandoc", "-T", "lint", "-W", "warning", str(PAGE)]
    done = subprocess.run(lint, capture_output=True, text=True, timeout=30, check=False)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "missing date" not in line]
    assert said == []
