"""Writes the reference pages that follow from the code: `docs/reference/*.md`; with `--check` it only compares.

The code is the source: class docstrings, constants with the text below them. Nothing is written by hand on those pages,
so that they cannot say something else than the code does.
"""

import argparse
import ast
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from leased import errors, policy

ROOT = Path(__file__).parent.parent
PACKAGE = Path(inspect.getfile(errors)).parent
REFERENCE = ROOT / "docs" / "reference"

ERRORS_INTRODUCTION = """\
Every error of leased derives from `LeasedError`: `except leased.LeasedError` catches them all. The code is stable and
meant for programs, the exit status is that of the command line, and *retry* says whether the same call can work later.\
"""
LIMITS_INTRODUCTION = """\
These are constants of `leased.policy`. Those that can be set for one client, recipe or call say how; the others are the
same everywhere."""


def paragraph(text: str) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join(inspect.cleandoc(text).partition("\n\n")[0].split())


def rest(text: str) -> str:
    """What a docstring says after its first paragraph."""
    return inspect.cleandoc(text).partition("\n\n")[2].strip()


def table(titles: str, rows: Iterator[tuple[str, ...]]) -> str:
    """A Markdown table; titles are separated by bars."""
    names = titles.split("|")
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(cell.strip() for cell in line)} |" for line in lines)


def error_classes() -> list[type[errors.LeasedError]]:
    """All error classes in the order of the source."""
    found = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.LeasedError)]
    return sorted(found, key=lambda kind: inspect.getsourcelines(kind)[1])


def special_codes() -> dict[str, str]:
    """Codes that are given at the place of raising, each with the class that it is given to."""
    codes: dict[str, str] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                for argument in node.keywords:
                    if argument.arg == "code" and isinstance(argument.value, ast.Constant):
                        codes[str(argument.value.value)] = node.func.id
    return codes


def errors_page() -> str:
    """The error tree with codes and statuses, then one section per class."""

    def codes(kind: type[errors.LeasedError]) -> str:
        special = {code for code, name in special_codes().items() if name == kind.__name__}
        return ", ".join(f"`{code}`" for code in sorted({kind.code} | special))

    def also(kind: type[errors.LeasedError]) -> str:
        return ", ".join(f"`{base.__name__}`" for base in kind.__bases__ if base is not Exception)

    rows = (
        (
            f"[`{kind.__name__}`](#{kind.__name__.lower()})",
            also(kind),
            codes(kind),
            str(kind.http_status or "–"),
            str(kind.exit_status),
            "yes" if kind.retryable else "no",
        )
        for kind in error_classes()
    )
    sections = (
        f"## {kind.__name__}\n\n{paragraph(kind.__doc__ or '')}\n\n{rest(kind.__doc__ or '')}".strip()
        for kind in error_classes()
    )
    return "\n\n".join(
        [
            "# Errors",
            ERRORS_INTRODUCTION,
            table("class|derives from|code|HTTP|exit|retry", rows),
            *sections,
        ]
    )


def constants() -> Iterator[tuple[str, object, str]]:
    """Name, value and text of every public constant of `policy`, in the order of the source."""
    for node, below in itertools.pairwise(ast.parse(inspect.getsource(policy)).body):
        match node:
            case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)) if name[0].isupper():
                text = ast.literal_eval(below.value) if isinstance(below, ast.Expr) else ""
                yield name, getattr(policy, name), " ".join(text.split())
            case _:
                pass


def limits_page() -> str:
    """Every limit and default with its value and its reason."""
    rows = ((f"`{name}`", f"{value:,}".replace(",", "\u202f"), text) for name, value, text in constants())
    return "\n\n".join(
        [
            "# Limits and defaults",
            LIMITS_INTRODUCTION,
            table("name|value|what it bounds, and why so", rows),
        ]
    )


PAGES: dict[str, Callable[[], str]] = {
    "errors.md": errors_page,
    "limits.md": limits_page,
}
NOTE = "<!-- Written by scripts/reference.py from the source; change that and run `make reference`. -->\n\n"


def main() -> int:
    """Write or compare all pages; 1 when a page is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a page is not up to date")
    only_check = parser.parse_args().check
    stale = []
    for name, page in PAGES.items():
        path, text = REFERENCE / name, f"{NOTE}{page()}\n"
        if only_check:
            if not path.exists() or path.read_text() != text:
                stale.append(name)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    if stale:
        print(f"stale: {', '.join(stale)}; run `make reference`", file=sys.stderr)
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
