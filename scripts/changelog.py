"""Composes the fragments in `changes/` into a section of `CHANGELOG.md` for this version, and removes them.

With `--draft` it prints the section and changes nothing.
"""

import argparse
import datetime as dt
import re
import sys
from pathlib import Path

import leased

ROOT = Path(__file__).parent.parent
KINDS = {"added": "Added", "changed": "Changed", "removed": "Removed", "fixed": "Fixed", "security": "Security"}
HEAD = "# Changes\n\nWhat users can see, the newest release first.\n"
NAME = re.compile(rf"(?P<what>[a-z0-9-]+)\.(?P<kind>{'|'.join(KINDS)})\.md")


class Refused(Exception):
    """The fragments cannot become a section; the message says which, and why."""


def fragments(directory: Path) -> list[Path]:
    """All fragments in the order of their names. Raises `Refused` for a file that is none."""
    found = sorted(path for path in directory.iterdir() if path.name != "README.md")
    for path in found:
        if not NAME.fullmatch(path.name):
            raise Refused(f"{path.name}: a fragment is called WHAT-HAPPENED.KIND.md, with a kind of {', '.join(KINDS)}")
        if not path.read_text().strip():
            raise Refused(f"{path.name}: there is nothing in it")
    if not found:
        raise Refused(f"there are no fragments in {directory.name}/: nothing has changed since the last release")
    return found


def item(path: Path) -> str:
    """A fragment as an item of a list; its links, which begin in its directory, begin in the one above."""
    text = path.read_text().strip().replace("](../", "](")
    return "- " + "\n".join(f"  {line}".rstrip() for line in text.splitlines()).lstrip()


def section(found: list[Path], *, version: str, day: dt.date) -> str:
    """The section of a release, by kinds."""
    parts = [f"## {version} ({day.isoformat()})"]
    for kind, title in KINDS.items():
        items = [item(path) for path in found if path.name.endswith(f".{kind}.md")]
        if items:
            parts.append("\n".join([f"### {title}\n", *items]))
    return "\n\n".join(parts) + "\n"


def with_section(log: str, new: str) -> str:
    """The change log with the new section before all others. Raises `Refused` if it has one of that version."""
    title = new.partition(" (")[0]
    if re.search(rf"^{re.escape(title)} \(", log, re.MULTILINE):
        raise Refused(
            f"the change log has {title.removeprefix('## ')} already: raise __version__ in src/leased/__init__.py"
        )
    head, begin, rest = (log or HEAD).partition("\n## ")
    return f"{head.rstrip()}\n\n{new}{begin}{rest}"


def main(arguments: list[str] | None = None, *, root: Path = ROOT) -> int:
    """Compose, or say why not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draft", action="store_true", help="print the section, and change nothing")
    draft = parser.parse_args(arguments).draft
    log = root / "CHANGELOG.md"
    try:
        found = fragments(root / "changes")
        new = section(found, version=leased.__version__, day=dt.datetime.now(dt.UTC).date())
        text = with_section(log.read_text() if log.exists() else "", new)
    except Refused as error:
        print(error, file=sys.stderr)
        return 1
    if draft:
        print(new, end="")
        return 0
    log.write_text(text)
    for path in found:
        path.unlink()
    print(f"{len(found)} fragments are now {leased.__version__} in {log.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
