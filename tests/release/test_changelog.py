"""Fragments become a section of the change log, once, and nothing else is touched."""

import datetime as dt
from pathlib import Path

import pytest

import leased
from scripts.changelog import HEAD, ROOT, Refused, fragments, main, section, with_section

DAY = dt.date(2027, 1, 2)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with fragments of three kinds."""
    changes = tmp_path / "changes"
    changes.mkdir()
    texts = {
        "README.md": "# Changes since the last release\n",
        "wait.added.md": "Waiting,\nover two lines, and [a link](../docs/index.md).\n",
        "also.added.md": "First paragraph.\n\nSecond paragraph.\n",
        "hole.security.md": "A hole is closed.\n",
        "slip.fixed.md": "A slip.\n",
    }
    for name, text in texts.items():
        (changes / name).write_text(text)
    return tmp_path


def test_the_fragments_of_this_project_compose() -> None:
    """Each has a name and a text that a release can use."""
    text = section(fragments(ROOT / "changes"), version="9.9.9", day=DAY)
    assert text.startswith("## 9.9.9 (2027-01-02)\n\n### Added\n\n- ")
    assert "](../" not in text


def test_a_section_is_by_kinds_and_names(project: Path) -> None:
    """Kinds stand in one order, items in that of their names; paragraphs stay one item, links lead on."""
    assert section(fragments(project / "changes"), version="1.2.0", day=DAY) == (
        "## 1.2.0 (2027-01-02)\n\n"
        "### Added\n\n"
        "- First paragraph.\n\n  Second paragraph.\n"
        "- Waiting,\n  over two lines, and [a link](docs/index.md).\n\n"
        "### Fixed\n\n"
        "- A slip.\n\n"
        "### Security\n\n"
        "- A hole is closed.\n"
    )


def test_the_newest_release_stands_first() -> None:
    """What is in the log stays as it is, below."""
    first = with_section("", "## 1.0.0 (2026-01-01)\n\n### Added\n\n- One.\n")
    assert first == f"{HEAD}\n## 1.0.0 (2026-01-01)\n\n### Added\n\n- One.\n"
    second = with_section(first, "## 1.1.0 (2027-01-01)\n\n### Fixed\n\n- Two.\n")
    assert second == (
        f"{HEAD}\n## 1.1.0 (2027-01-01)\n\n### Fixed\n\n- Two.\n\n## 1.0.0 (2026-01-01)\n\n### Added\n\n- One.\n"
    )
    with pytest.raises(Refused, match=r"has 1\.1\.0 already"):
        with_section(second, "## 1.1.0 (2028-01-01)\n")


def test_composing_writes_the_log_and_removes_what_went_into_it(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A draft changes nothing; the real thing leaves the README of the directory alone, and cannot be done twice."""
    assert main(["--draft"], root=project) == 0
    draft = capsys.readouterr().out
    assert len(list((project / "changes").iterdir())) == 5
    assert not (project / "CHANGELOG.md").exists()
    assert main([], root=project) == 0
    assert (project / "CHANGELOG.md").read_text() == f"{HEAD}\n{draft}"
    assert draft.startswith(f"## {leased.__version__} (")
    assert [path.name for path in (project / "changes").iterdir()] == ["README.md"]
    assert main([], root=project) == 1
    assert "there are no fragments in changes/" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("thing.md", "x", "a fragment is called WHAT-HAPPENED.KIND.md"),
        ("Thing.added.md", "x", "a fragment is called"),
        ("thing.improved.md", "x", "with a kind of added, changed, removed, fixed, security"),
        ("thing.added.md", " \n", "there is nothing in it"),
    ],
)
def test_what_is_no_fragment_is_refused(
    project: Path, name: str, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is dropped without a word: the file is named, and nothing was changed."""
    (project / "changes" / name).write_text(text)
    assert main([], root=project) == 1
    told = capsys.readouterr().err
    assert name in told
    assert words in told
    assert not (project / "CHANGELOG.md").exists()
