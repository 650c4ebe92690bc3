"""The documentation's examples run, and its links lead somewhere."""

import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from leased.cli.parser import build
from tests.docs.pages import PAGES, ROOT, anchors, blocks, links, page_id

SKIPPED = "notest"
READERS = ("notest: the library that is left", "notest: the setting that is not enough")
COMMAND = re.compile(r"^(?:\$ |ExecStart=|[\d*/, ]+ )?(?:\S*/)?leased (?P<arguments>[a-z].*)$", re.MULTILINE)


def program(page: Path, *, without: str | tuple[str, ...] = SKIPPED) -> str:
    """All Python blocks of a page but some, by their notes, as one program whose line numbers are those of the page."""
    lines = [""] * len(page.read_text().splitlines())
    for block in blocks(page):
        if block.language == "python" and not block.note.startswith(without):
            body = block.body.splitlines()
            lines[block.line - 1 : block.line - 1 + len(body)] = body
    return "\n".join(lines).rstrip()


@pytest.mark.parametrize("page", [page for page in PAGES if program(page)], ids=page_id)
def test_python_examples_run(page: Path, tmp_path: Path) -> None:
    """The Python blocks of a page run one after the other, in one namespace, without a warning.

    C124: `how-to/run-once.md` lets eight threads meet, of which one may find the work undone.
    """
    path = tmp_path / "page.py"
    path.write_text(program(page))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LEASED_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=tmp_path,
        env=environment | {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{page_id(page)}:\n{done.stderr.replace(str(path), page_id(page))}"


@pytest.mark.parametrize("page", [page for page in PAGES if program(page, without=READERS)], ids=page_id)
def test_python_examples_say_where_names_come_from(page: Path) -> None:
    """Each name in a Python block is bound there or in another block of its page, also in blocks that do not run.

    What a reader has already, and is told to replace, is his own.
    """
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "--output-format", "concise", "-"],
        input=program(page, without=READERS),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{page_id(page)}:\n{done.stdout}{done.stderr}"


def commands(page: Path) -> list[str]:
    """Arguments of every `leased …` line in the fenced blocks of a page that are not Python."""
    return [
        match["arguments"]
        for block in blocks(page)
        if block.language not in {"", "python"}
        for match in COMMAND.finditer(block.body)
        if not match["arguments"].endswith("]") and "|" not in match["arguments"]
    ]


def words_of(arguments: str) -> list[str]:
    """The words of one command, up to a pipe, a redirection or the next command."""
    lexer = shlex.shlex(arguments, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(itertools.takewhile(lambda word: word.strip("<>|&;()"), lexer))


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=page_id)
def test_commands_can_be_typed_as_shown(page: Path) -> None:
    """The command line understands every `leased …` that a page shows: the subcommand, its options and their values."""
    for arguments in commands(page):
        words = words_of(arguments)
        if "--" in words:
            assert words[words.index("--") + 1 :], f"{page_id(page)}: no command in {arguments!r}"
            words = words[: words.index("--")]
        build().parse_args(words)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_an_example_that_does_not_run_says_why(page: Path) -> None:
    """Every fenced block names its language or shows plain text, and `notest` is followed by a reason."""
    for block in blocks(page):
        where = f"{page_id(page)}:{block.line}"
        assert block.language in {"", "python", "sh", "console", "ini", "toml", "text", "json", "sql"}, where
        if block.note:
            assert block.note.startswith(f"{SKIPPED}: "), f"{where}: write `python {SKIPPED}: the reason`"
            assert len(block.note) > len(f"{SKIPPED}: "), where


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    """A link within the project names a file that exists and, after `#`, one of its headings."""
    for target in links(page):
        name, _, anchor = target.partition("#")
        goal = (page.parent / name).resolve() if name else page
        assert goal.exists(), f"{page_id(page)}: {target}"
        assert goal.is_relative_to(ROOT), f"{page_id(page)}: {target}"
        assert not anchor or anchor in anchors(goal), f"{page_id(page)}: {target}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.is_relative_to(ROOT / "docs")], ids=page_id)
def test_every_page_can_be_reached(page: Path) -> None:
    """A reader who follows links from the first page comes to every page of the documentation."""
    reached: set[Path] = set()
    ahead = [ROOT / "docs" / "index.md"]
    while ahead:
        here = ahead.pop()
        if here not in reached and here.suffix == ".md" and here.exists():
            reached.add(here)
            ahead += [(here.parent / target.partition("#")[0]).resolve() for target in links(here) if target[0] != "#"]
    assert page in reached
