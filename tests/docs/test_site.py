"""The documentation builds as a site that is whole: no warning, no dead link, nothing fetched from another host."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.pages import ROOT

CONFIGURATION = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
IN_STYLES = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])(?P<target>[^"')]+)""")


@dataclass
class Document:
    """What of a built page matters here: names that can be linked, links to follow, and files the browser fetches."""

    names: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)


class Reader(HTMLParser):
    """Collects a document's names, links and what it fetches."""

    def __init__(self) -> None:
        super().__init__()
        self.found = Document()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.found.names |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.found.links.append(given["href"])
        elif tag == "link" and "href" in given:
            self.found.fetched.append(given["href"])
        elif "src" in given:
            self.found.fetched.append(given["src"])
        self.found.fetched += IN_STYLES.findall(given.get("style", ""))


def read(page: Path) -> Document:
    """What of a built page matters here."""
    reader = Reader()
    reader.feed(page.read_text())
    return reader.found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from a copy of the sources by the command of `make docs`."""
    place = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", place / "docs")
    shutil.copy(ROOT / "zensical.toml", place)
    (place / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "site_notes.py", place / "scripts")
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean"],
        cwd=place,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in (done.stdout + done.stderr).lower(), done.stdout + done.stderr
    return place / "site"


def navigated(entry: object) -> Iterator[str]:
    """The pages below an entry of the navigation."""
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        for below in entry.values():
            yield from navigated(below)
    elif isinstance(entry, list):
        for one in entry:
            yield from navigated(one)


def test_each_page_stands_once_in_the_navigation() -> None:
    """`nav` in zensical.toml names every page of `docs`, once, and no other: a builder says nothing of either."""
    pages = sorted(page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md"))
    assert sorted(navigated(CONFIGURATION["nav"])) == pages


def test_every_page_is_built(site: Path) -> None:
    """Each Markdown page has become a page of the site, with its title and with no Markdown left in its text."""
    for source in (ROOT / "docs").rglob("*.md"):
        page = site / source.relative_to(ROOT / "docs").with_suffix(".html")
        assert page.exists(), page
        text = page.read_text()
        assert "<h1" in text, page
        assert "```" not in text, f"{page}: a fence that is not closed or not understood"
        assert "notest" not in text, f"{page}: what is meant for tests alone"
        assert not re.search(r"<p>\s*\|", text), f"{page}: a table that is none"


def test_links_of_the_site_lead_somewhere(site: Path) -> None:
    """Each link within the site, those of the frame included, leads to a file of the site and a name on that page."""
    documents = {page: read(page) for page in site.rglob("*.html")}
    assert len(documents) > 40
    for page, document in documents.items():
        if page.name == "404.html":  # it is shown at any depth, and links from the root of a server
            continue
        for link in document.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            goal = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            goal = goal / "index.html" if goal.is_dir() else goal
            where = f"{page.relative_to(site)}: {link}"
            assert goal.is_relative_to(site), where
            assert goal.exists(), where
            if parts.fragment and goal in documents:
                assert unquote(parts.fragment) in documents[goal].names | {"__top"}, where


def test_the_site_needs_no_other_host(site: Path) -> None:
    """A page fetches nothing from elsewhere: no font, no script, no picture; so it works without a network."""
    fetched = [(page, target) for page in site.rglob("*.html") for target in read(page).fetched]
    fetched += [(sheet, target) for sheet in site.rglob("*.css") for target in IN_STYLES.findall(sheet.read_text())]
    assert fetched
    for page, target in fetched:
        parts = urlsplit(target)
        where = f"{page.relative_to(site)}: {target}"
        if parts.scheme == "data":
            continue
        assert not parts.scheme, where
        assert not parts.netloc, where
        if page.name != "404.html":
            assert (page.parent / unquote(parts.path)).resolve().exists(), where
