"""Reads the documentation's Markdown: its pages, their fenced blocks, their links. Judges nothing."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (
    [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    + sorted((ROOT / "docs").rglob("*.md"))
    + sorted((ROOT / "changes").rglob("*.md"))
    + sorted((ROOT / "examples").rglob("*.md"))
)

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_HIDDEN = re.compile(r"^<!-- python\n(?P<body>.*?)^-->$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block, or the text of a comment `<!-- python … -->`, which prepares an example without being shown."""

    language: str
    note: str
    line: int
    body: str


def page_id(page: Path) -> str:
    """How a page is called in messages."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """All blocks of a page, in order."""
    text = page.read_text()
    found = []
    for match in _FENCE.finditer(text):
        language, _, note = match["info"].strip().partition(" ")
        indent = match["indent"]
        body = "".join(line.removeprefix(indent) for line in match["body"].splitlines(keepends=True))
        found.append(Block(language, note.strip(), text.count("\n", 0, match.start("body")) + 1, body))
    found += [
        Block("python", "", text.count("\n", 0, match.start("body")) + 1, match["body"])
        for match in _HIDDEN.finditer(text)
    ]
    return sorted(found, key=lambda block: block.line)


def prose(page: Path) -> str:
    """The text of a page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def links(page: Path) -> Iterator[str]:
    """Targets of all links of a page that lead to another page or heading of this project."""
    for match in _LINK.finditer(prose(page)):
        if "://" not in match["target"] and not match["target"].startswith("mailto:"):
            yield match["target"]


def anchors(page: Path) -> set[str]:
    """The names under which a page's headings can be linked."""
    titles = (match["title"].lower() for match in _HEADING.finditer(prose(page)))
    return {re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-") for title in titles}
