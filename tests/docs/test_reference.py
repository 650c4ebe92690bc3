"""The reference names everything that a user can meet, and says what the code says."""

import argparse
import ast
import inspect
import logging
import re
import subprocess
import sys
from typing import get_args

import leased
from leased import targets
from leased.cli.parser import build
from leased.observe import LOGGED, EventName
from leased.policy import OPERATION_TIMEOUT
from tests.docs.pages import ROOT

REFERENCE = ROOT / "docs" / "reference"
SOURCE = ROOT / "src" / "leased"
OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][a-z-]*")


def sections(page: str) -> dict[str, str]:
    """Heading to text of a reference page, for headings of the second level."""
    parts = re.split(r"^## (.+)$", (REFERENCE / page).read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def texts_in_source(pattern: str) -> set[str]:
    """All string constants of the package that match the pattern from end to end."""
    return {
        node.value
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(pattern, node.value)
    }


def test_generated_pages_are_up_to_date() -> None:
    """The pages that follow from the code are what the code would write now."""
    script = ROOT / "scripts" / "reference.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_explained() -> None:
    """Each name of `leased` has a section of its own, with a text, among the names or among the errors."""
    explained = sections("api.md") | sections("errors.md")
    silent = [
        name
        for name in leased.__all__
        if not re.search(r"\w\w", re.sub(r"```.*?```", "", explained.get(name, ""), flags=re.DOTALL))
    ]
    assert not silent


def test_every_error_code_is_listed() -> None:
    """Each code that an error can carry stands in the table of errors."""
    table = (REFERENCE / "errors.md").read_text()
    codes = texts_in_source(r"(LOCK|LEASE|LEASED|STALE)_[A-Z_]+") - texts_in_source(r"LEASED_(?!ERROR)[A-Z_]+")
    assert "LOCK_KEY_INVALID" in codes
    assert not [code for code in codes if f"`{code}`" not in table]


def test_every_subcommand_and_option_is_listed() -> None:
    """Each option that the command line understands stands in the section of its command, or among the common ones."""
    explained = sections("cli.md")
    common = (REFERENCE / "cli.md").read_text().partition("\n## ")[0]
    (commands,) = [action for action in build()._actions if isinstance(action, argparse._SubParsersAction)]
    assert "run" in commands.choices
    for name, command in commands.choices.items():
        text = common + explained[f"leased {name}"]
        unknown = {option for action in command._actions for option in action.option_strings} - set(
            OPTION.findall(text)
        )
        assert not unknown, name


def test_every_setting_is_explained() -> None:
    """Each option of a client, in both spellings, and each environment variable stands on the page of settings."""
    page = (REFERENCE / "settings.md").read_text()
    options = [name for name in inspect.signature(leased.connect).parameters if name != "url"]
    assert options
    assert not [name for name in options if f"`{name}`" not in page]
    in_a_url = {f"leased_{name}" for name in options} - {"leased_observer", "leased_clock"}
    assert not [name for name in in_a_url if f"`{name}`" not in page]
    variables = texts_in_source(r"LEASED_(?!ERROR)[A-Z_]+|NO_COLOR|XDG_[A-Z_]+")
    assert variables
    assert not [name for name in variables if f"`{name}`" not in page]


def test_limits_carry_the_values_of_the_code() -> None:
    """A limit on the page has the value that the code uses."""
    rows = [line for line in (REFERENCE / "limits.md").read_text().splitlines() if "`OPERATION_TIMEOUT`" in line]
    assert len(rows) == 1
    assert f"| {OPERATION_TIMEOUT} |" in rows[0]


def test_every_parameter_of_a_stores_own_is_described() -> None:
    """What only one store takes stands on the page of settings and on that store's own page."""
    settings = (REFERENCE / "settings.md").read_text()
    for scheme, store in targets._SCHEMES.items():
        name = {"postgres": "postgresql", "mariadb": "mysql"}.get(store.module.rpartition(".")[2])
        page = REFERENCE.parent / "stores" / f"{name or store.module.rpartition('.')[2]}.md"
        assert f"`{scheme}:" in settings, scheme
        for parameter in store.parameters:
            assert f"| `leased_{parameter}` |" in settings, scheme
            assert f"`leased_{parameter}=" in page.read_text(), scheme


def test_every_event_is_described() -> None:
    """Each event stands in the table of events, with the level at which it is logged."""
    page = (REFERENCE / "settings.md").read_text()
    for name in get_args(EventName):
        level = LOGGED.get(name)
        logged = "–" if level is None else logging.getLevelName(level).lower()
        assert re.search(rf"^\| `{name}` \|.*\| {logged} \|$", page, re.MULTILINE), name
