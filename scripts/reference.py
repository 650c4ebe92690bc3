"""Writes the reference pages that follow from the code: `docs/reference/*.md`; with `--check` it only compares.

The code is the source: class docstrings, constants with the text below them. Nothing is written by hand on those pages,
so that they cannot say something else than the code does.
"""

import argparse
import ast
import functools
import importlib
import inspect
import itertools
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType

import leased
from leased import aio, contrib, errors, fences, observe, policy
from leased.cli.parser import EXIT_STATUSES, build

ROOT = Path(__file__).parent.parent
PACKAGE = Path(inspect.getfile(errors)).parent
REFERENCE = ROOT / "docs" / "reference"

ERRORS_INTRODUCTION = """\
Every error of leased derives from `LeasedError`: `except leased.LeasedError` catches them all. The code is stable and
meant for programs, the exit status is that of the command line, and *retry* says whether the same call can work later.\
"""
API_INTRODUCTION = """\
Everything here is in `leased`, for blocking callers. `leased.aio` has the same names with the same parameters for
asyncio, where blocks are `async with`. Durations are seconds, a `timedelta`, or text such as `"1m30s"` or `"250ms"`.
Errors have [a page of their own](errors.md)."""
CLI_INTRODUCTION = """\
Data goes to standard output, as a table on a terminal and as JSON lines in a pipe or with `--json`; talk goes to
standard error. Times are seconds or text such as `90s`, `1m30s`, `250ms`. Where the store is named is told
[among the settings](settings.md). These options stand before or after every command:"""
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


@functools.cache
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


def constants(module: ModuleType) -> Iterator[tuple[str, object, str]]:
    """Name, value and text of every public constant of a module, in the order of the source."""
    for node, below in itertools.pairwise(ast.parse(inspect.getsource(module)).body):
        match node, below:
            case (
                ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)),
                ast.Expr(ast.Constant(str(text))),
            ) if name[0].isupper():
                yield name, getattr(module, name), " ".join(text.split())
            case _:
                pass


def limits_page() -> str:
    """Every limit and default with its value and its reason."""
    rows = ((f"`{name}`", f"{value:,}".replace(",", "\u202f"), text) for name, value, text in constants(policy))
    return "\n\n".join(
        [
            "# Limits and defaults",
            LIMITS_INTRODUCTION,
            table("name|value|what it bounds, and why so", rows),
        ]
    )


def call(function: Callable[..., object], *, name: str, bound: bool) -> str:
    """A block that shows how a function is called: names and defaults, no types."""
    signature = inspect.signature(function)
    parameters = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()][bound:]
    text = f"{name}{signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)}"
    return f"```text\n{text}\n```"


def members(kind: type) -> dict[str, object]:
    """Public methods, properties and fields of a class and of its bases, in the order of the source."""
    found: dict[str, object] = {}
    for base in reversed([base for base in kind.__mro__ if base.__module__.startswith("leased")]):
        fields = getattr(base, "__dataclass_fields__", {})
        found |= {name: None for name in fields if not name.startswith("_")}
        shown = {name: member for name, member in vars(base).items() if not name.startswith("_") and name not in fields}
        found |= {name: member for name, member in shown.items() if callable(member) or isinstance(member, property)}
    return found


def class_section(kind: type) -> str:
    """What a class promises, then its members."""
    lines = [f"## {kind.__name__}", inspect.cleandoc(kind.__doc__ or "")]
    twin = getattr(aio, kind.__name__, None)
    fields = [name for name, member in members(kind).items() if member is None]
    if fields:
        lines.append(f"Fields: {', '.join(f'`{name}`' for name in fields)}.")
    for name, member in members(kind).items():
        if isinstance(member, property):
            lines.append(f"### {kind.__name__}.{name}\n\n{inspect.cleandoc(member.__doc__ or '')}")
        elif inspect.isfunction(member):
            awaited = inspect.iscoroutinefunction(getattr(twin, name, None))
            title = call(member, name=name, bound=True)
            note = "\n\nTo be awaited on asyncio." if awaited else ""
            text = inspect.cleandoc(member.__doc__ or "")
            lines.append(f"### {kind.__name__}.{name}\n\n{title}\n\n{text}{note}")
    return "\n\n".join(lines)


def api_page() -> str:
    """Every public name: functions, then classes, then constants. Errors have a page of their own."""
    public = {name: getattr(leased, name) for name in leased.__all__}
    functions = {name: one for name, one in public.items() if inspect.isfunction(one)}
    classes = [one for one in public.values() if isinstance(one, type) and not issubclass(one, errors.LeasedError)]
    others = public.keys() - functions.keys() - {kind.__name__ for kind in classes} - set(vars(errors))
    sections = [
        f"## {name}\n\n{call(one, name=f'leased.{name}', bound=False)}\n\n{inspect.cleandoc(one.__doc__ or '')}"
        for name, one in functions.items()
    ]
    texts = {name: text for module in (policy, observe) for name, _, text in constants(module)}
    sections += [class_section(kind) for kind in classes]
    sections += [f"## {name}\n\n{texts.get(name, '')}".strip() for name in sorted(others)]
    return "\n\n".join(["# Python names", API_INTRODUCTION, *sections])


def module_section(module: ModuleType) -> str:
    """The public functions, then the public classes, that are defined in a module."""
    own = {
        name: one
        for name, one in vars(module).items()
        if not name.startswith("_") and getattr(one, "__module__", "").startswith(module.__name__)
    }
    parts = [f"## {module.__name__}\n\n{inspect.cleandoc(module.__doc__ or '')}"]
    parts += [
        f"### {name}\n\n{call(one, name=name, bound=False)}\n\n{inspect.cleandoc(one.__doc__ or '')}"
        for name, one in own.items()
        if inspect.isfunction(one)
    ]
    parts += [
        class_section(one).replace("### ", "#### ").replace("## ", "### ", 1) for one in own.values() if is_kept(one)
    ]
    return "\n\n".join(parts)


def is_kept(one: object) -> bool:
    """Whether this is a class that users make, and no protocol that says what they pass."""
    return isinstance(one, type) and not getattr(one, "_is_protocol", False)


def package_page(package: ModuleType, title: str) -> str:
    """Every public module of a package with what can be called there."""
    names = [one.name for one in pkgutil.iter_modules(package.__path__) if not one.name.startswith("_")]
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    head = f"# {title}\n\n{inspect.cleandoc(package.__doc__ or '')}"
    return "\n\n".join([head, *(module_section(module) for module in modules)])


def options_table(actions: Iterable[argparse.Action]) -> str:
    """Options and arguments of a command with what they mean."""

    def spelled(action: argparse.Action) -> str:
        value = action.metavar or ("|".join(action.choices) if action.choices else "")
        names = ", ".join(action.option_strings) or str(value)
        return f"`{names} {value}`" if action.option_strings and value and action.nargs != 0 else f"`{names}`"

    rows = ((spelled(action).replace("|", "\\|"), (action.help or "").replace("|", "\\|")) for action in actions)
    return table("option|meaning", rows)


def cli_page() -> str:
    """Every subcommand with its options, from the parser itself."""
    parser = build()
    (commands,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    common = [action for action in parser._actions if action is not commands]
    known = {name for action in common for name in action.option_strings}
    sections = []
    for name, command in commands.choices.items():
        own = [action for action in command._actions if not known.intersection(action.option_strings)]
        parts = [f"## leased {name}", command.description, f"```text\n{command.usage}\n```"]
        parts += [options_table(own)] if own else []
        parts += [f"```text\n{command.epilog}\n```"] if command.epilog else []
        sections.append("\n\n".join(filter(None, parts)))
    statuses = table("status|meaning", iter(EXIT_STATUSES))
    return "\n\n".join(
        ["# Command line", CLI_INTRODUCTION, options_table(common), "## Exit statuses", statuses, *sections]
    )


def service_page(name: str) -> str:
    """A page about the lock service, by the function that makes it."""
    sys.path.insert(0, str(ROOT))  # as a script this file has only its own directory there
    from scripts import service_reference

    page: Callable[[], str] = getattr(service_reference, name)
    return page()


def metrics_page() -> str:
    """Every metric, as it comes out."""
    sys.path.insert(0, str(ROOT))
    from scripts import metrics_reference

    return metrics_reference.metrics_page()


PAGES: dict[str, Callable[[], str]] = {
    "api.md": api_page,
    "cli.md": cli_page,
    "errors.md": errors_page,
    "fences.md": functools.partial(package_page, fences, "Fences"),
    "integrations.md": functools.partial(package_page, contrib, "Integrations"),
    "limits.md": limits_page,
    "metrics.md": metrics_page,
    "service-api.md": functools.partial(service_page, "service_api_page"),
    "service-settings.md": functools.partial(service_page, "service_settings_page"),
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
