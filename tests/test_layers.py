"""The rules about the shape of the source that a program can check: who imports whom, sizes, names and signatures.

Every rule reads the tree with `ast`; nothing of the package is imported. The tables below are the rules, as data.
A new module needs a row in `MAY_IMPORT`; a new driver a row in `DRIVERS`.
"""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "leased"

VALUES = {"errors", "policy", "model", "checks", "store"}
# These reach for time, chance and the outside world through `Env` only, so that a seed repeats a run.
WIRE = {"wire", "wire_batch", "wire_errors"}
CORE = {*VALUES, *WIRE, "hold", "observe", "queue", "env", "cleanup", "engine", "join", "timeline"}
# What both faces are made of: all but the thread or the loop.
SHARED = {*CORE, "clocks", "targets", "context", "recipe", "handle", "scope", "client", "keeper", "hooks"}
BLOCKING = {*SHARED, "threads", "interrupt", "sync_lock", "sync_handle", "sync"}
ASYNC = {*SHARED, "aio*"}
# What the command line is written against: the blocking face and the values that come out of it.
COMMAND = {"", "sync", "targets", "handle", "checks", "errors", "model", "policy", "observe", "clocks", *WIRE, "cli.*"}

# The service is the engine over a store, in an event loop: never the blocking face, never the command line.
SERVICE = {*CORE, "targets", "aio_clock", "server.*"}

# Module below `leased` ("" is the package itself; "x.*" is everything in package x) -> the modules it may import.
# The most exact row counts. Whatever is not listed fails: decide where a new module belongs, then add its row.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": {"model"},  # for type checkers only: at run time that would be a cycle
    "policy": set(),
    "timeline": set(),
    "model": {"errors", "policy"},
    "checks": {"errors", "policy"},
    "store": {"model", "errors"},
    "clocks": set(),
    "hold": VALUES,
    "queue": VALUES,
    "observe": VALUES,
    "env": VALUES | {"hold", "queue", "observe"},
    "cleanup": VALUES | {"env"},
    "engine": VALUES | {"hold", "queue", "env", "cleanup"},
    "join": VALUES,
    "wire": {"model", "errors"},
    "wire_errors": {"model", "errors", "wire"},
    "wire_batch": {"model", "errors", "store", "wire", "wire_errors"},
    "context": VALUES | {"hold"},
    "recipe": VALUES | {"context"},
    "handle": VALUES | {"hold", "observe", "recipe"},
    "targets": VALUES | {"observe", "queue", "join"},
    "stores": set(),
    "stores.*": VALUES | {"clocks", "observe", "targets", "wire*", "stores._*"},
    "client": SHARED - {"keeper"},
    "scope": SHARED - {"keeper", "client"},
    "keeper": CORE,
    "interrupt": set(),
    "threads": CORE | {"clocks", "keeper"},
    "hooks": {"hold", "observe"},
    "sync": BLOCKING,
    "sync_lock": BLOCKING,
    "sync_handle": BLOCKING,
    "default": BLOCKING,
    "aio*": ASYNC,
    "aio": ASYNC | {"default"},
    "": BLOCKING | {"default", "aio"},
    "__main__": {"cli"},
    "contrib": set(),
    "contrib.*": {"", "aio", "errors", "checks", "observe", "wire*", "contrib.*"},
    "fences": {"fences.*"},
    "fences.*": VALUES | {"context", "clocks", "wire*", "fences", "fences._*"},
    "server": set(),
    "server.*": SERVICE,
    "server.registry_postgres": SERVICE | {"stores._drivers"},
    "server.registry_postgres_pool": SERVICE | {"stores._drivers", "stores._postgres_failures"},
    "server.registry_redis": SERVICE | {"stores._drivers"},
    "cli": COMMAND,
    "cli.*": COMMAND,
    "cli.verify": COMMAND | {"testing"},
    "cli.serve": COMMAND | {"server.*"},
    "cli.keys": COMMAND | {"server.*"},
    "cli.config": COMMAND | {"server.*"},
    "cli.administration": COMMAND
    | {"server.*", "stores._http_url", "stores._http_connection", "stores._http_strangers"},
    "testing": {"testing.*"},
    "testing.*": {"*"},
}

OUTSIDE_WORLD = {
    "asyncio",
    "concurrent",
    "multiprocessing",
    "os",
    "random",
    "secrets",
    "select",
    "signal",
    "socket",
    "subprocess",
    "threading",
    "time",
    "uuid",
}
# What a core module may use of those after all, by module.
ALLOWED_USE: dict[str, set[str]] = {
    "hold": {"threading.Lock", "os.register_at_fork"},
    "queue": {"threading.Lock"},
    "join": {"threading.Lock"},
}

# Modules that are not in the standard library, and who may import them. Only inside functions: importing any module
# of leased must work with nothing else installed.
DRIVERS: dict[str, set[str]] = {
    "cli.top_columns": {"rich"},
    "cli.top_screen": {"rich"},
    "contrib.celery": {"celery"},
    "contrib.dramatiq": {"dramatiq"},
    "contrib.django._settings": {"django"},
    "contrib.fastapi": {"starlette"},
    "contrib.opentelemetry": {"opentelemetry"},
    "contrib.prometheus": {"prometheus_client"},
    "fences.redis": {"redis"},
    "fences.sqlalchemy": {"sqlalchemy"},
    "server.rules": {"cel_expr_python"},
    "server.tokens": {"jwt"},
    "stores._redis_wire": {"hiredis"},
    "stores._sqlite_driver": {"apsw"},
}
# Modules that only ever run inside a framework, and may import it at the top.
FRAMEWORKS: dict[str, set[str]] = {
    "contrib.django.admin": {"django"},
    "contrib.django.apps": {"django"},
    "contrib.django.models": {"django"},
    "contrib.django.management.commands.locked": {"django"},
    "testing.agreement": {"hypothesis"},
    "testing.plugin": {"pytest"},
    "server.answers": {"msgspec"},
    "server.app": {"msgspec"},
    "server.connections": {"uvicorn"},
    "server.events": {"msgspec"},
    "server.locks": {"msgspec"},
    "server.terms": {"msgspec"},
    "server.manage_requests": {"msgspec"},
    "server.openapi": {"msgspec"},
    "server.requests": {"msgspec"},
    "server.mismatches": {"msgspec"},
    "server.routes_manage": {"msgspec"},
    "server.serve": {"uvicorn"},
    "server.sessions": {"msgspec"},
    "server.ui": {"msgspec"},
}

LINES_PER_FILE = 400
LINES_PER_FUNCTION = 50
FREE_PARAMETERS = 2
# Leading parameters of functions and constructors that say where, as `self` does; they do not count.
LIKE_SELF = {"client", "store", "env", "lines", "observer"}
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "manager", "base", "impl"}
# Public functions with more than two positional parameters after all, because somebody else fixed their shape.
POSITIONAL: dict[str, str] = {
    "testing.model.step": "(state, now, wall, command) is how a transition is written",
    "testing.model.outcomes": "as step",
}


@dataclass(frozen=True, slots=True)
class Module:
    """One source file: its dotted name below `leased`, its text and its tree."""

    name: str
    path: Path
    text: str = field(repr=False)
    tree: ast.Module = field(repr=False)


@functools.cache
def modules() -> tuple[Module, ...]:
    """All source files of the package."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text()
        found.append(Module(name, path, text, ast.parse(text)))
    return tuple(found)


def every_module() -> pytest.MarkDecorator:
    """Run a test once per source file."""
    return pytest.mark.parametrize("module", modules(), ids=lambda module: module.name or "leased")


def matches(name: str, pattern: str) -> bool:
    """Whether a dotted name is the one the pattern names; a trailing star stands for any ending."""
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def row_of(name: str) -> set[str] | None:
    """The most exact row of the table for a module."""
    patterns = [pattern for pattern in MAY_IMPORT if matches(name, pattern)]
    return MAY_IMPORT[max(patterns, key=lambda pattern: (pattern == name, len(pattern)))] if patterns else None


def is_package(name: str) -> bool:
    """Whether the dotted name below `leased` is a package."""
    return (PACKAGE / name.replace(".", "/") / "__init__.py").exists()


def is_module(name: str) -> bool:
    """Whether the dotted name below `leased` is a module or package."""
    return is_package(name) or (PACKAGE / (name.replace(".", "/") + ".py")).exists()


def absolute(module: Module, node: ast.ImportFrom) -> str:
    """The full dotted name that `from X import …` names."""
    if not node.level:
        return node.module or ""
    parts = ["leased", *filter(None, module.name.split("."))]
    drop = node.level - (module.path.name == "__init__.py")
    return ".".join([*parts[: len(parts) - drop], *filter(None, [node.module])])


def imports(module: Module, within: ast.AST | None = None) -> Iterator[str]:
    """Full dotted names of all imports: `from a import b` is `a.b` where that is a module of leased, else `a`."""
    for node in ast.walk(within or module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = absolute(module, node)
            for alias in node.names:
                inner = f"{source}.{alias.name}".removeprefix("leased.")
                yield f"leased.{inner}" if source.startswith("leased") and is_module(inner) else source


def inside(module: Module) -> set[str]:
    """Modules below `leased` that this one imports ("" for the package itself)."""
    return {name.removeprefix("leased").removeprefix(".") for name in imports(module) if name.split(".")[0] == "leased"}


def foreign(names: Iterator[str]) -> set[str]:
    """Top names that neither the standard library nor leased provides."""
    return {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"leased"}


@every_module()
def test_imports_follow_the_table(module: Module) -> None:
    """A module imports only what its row allows, and every module has a row."""
    allowed = row_of(module.name)
    assert allowed is not None, (
        f"{module.path.relative_to(ROOT)} has no row in MAY_IMPORT of tests/test_layers.py: decide what it may import"
    )
    beyond = {name for name in inside(module) if not any(matches(name, pattern) for pattern in allowed)}
    beyond.discard(module.name)
    assert not beyond, f"leased.{module.name} may not import {sorted(beyond)}; see MAY_IMPORT in tests/test_layers.py"


@every_module()
def test_core_is_cut_off_from_the_world(module: Module) -> None:
    """Core modules have no time, chance, thread or socket of their own, except the mutex that guards a queue's data."""
    if module.name not in CORE:
        return
    allowed = ALLOWED_USE.get(module.name, set())
    for name in imports(module):
        top = name.split(".")[0]
        assert top not in OUTSIDE_WORLD or any(use.startswith(f"{top}.") for use in allowed), (
            f"leased.{module.name} imports {name}; it must come through Env"
        )
    used = {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in OUTSIDE_WORLD
    }
    named = {
        f"{node.module}.{alias.name}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and node.module in OUTSIDE_WORLD and not node.level
        for alias in node.names
    }
    assert used | named <= allowed


@every_module()
def test_no_mutex_is_held_while_waiting(module: Module) -> None:
    """Between taking and giving back a mutex nothing is awaited, or one waiter would stop the whole process."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.With) and any("mutex" in ast.unparse(item.context_expr) for item in node.items):
            waits = [inner.lineno for inner in ast.walk(node) if isinstance(inner, ast.Await | ast.Yield)]
            assert not waits, f"line {waits[0]}: awaits under the mutex taken at line {node.lineno}"


@every_module()
def test_foreign_modules_are_imported_late_and_by_few(module: Module) -> None:
    """Nothing outside the standard library is imported at import time, nor anywhere but where the table says."""
    framework = FRAMEWORKS.get(module.name, set())
    late = DRIVERS.get(module.name, set())
    assert foreign(imports(module)) <= late | framework
    functions = [node for node in ast.walk(module.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    typing_only = [
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    ]
    sheltered = {id(inner) for outer in [*functions, *typing_only] for inner in ast.walk(outer)}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in sheltered:
            at_import_time = foreign(imports(module, node))
            assert at_import_time <= framework, f"line {node.lineno}: import {at_import_time} inside the function"


@every_module()
def test_files_and_functions_are_short(module: Module) -> None:
    """A file has at most 400 lines, a function at most 50."""
    assert len(module.text.splitlines()) <= LINES_PER_FILE
    long = {
        node.name: lines
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > LINES_PER_FUNCTION
    }
    assert not long


@every_module()
def test_names_say_what_a_thing_is(module: Module) -> None:
    """No module and no class is called utils, helpers, manager, base or impl, alone or as a part of the name."""
    names = [module.name.split(".")[-1]]
    names += [node.name for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
    for name in names:
        words = {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)}
        assert not words & VAGUE_NAMES, f"{name}: say what it is"


@every_module()
def test_modules_open_with_what_they_are(module: Module) -> None:
    """Every source file begins with a docstring."""
    assert ast.get_docstring(module.tree)


def public_functions(module: Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, bool]]:
    """Public functions and methods of public classes: dotted name, node, and whether the first parameter is bound."""

    def visit(
        body: list[ast.stmt], prefix: str, in_class: bool
    ) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, bool]]:
        for node in body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield from visit(node.body, f"{prefix}{node.name}.", True)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
                not node.name.startswith("_") or node.name == "__init__"
            ):
                static = any(isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in node.decorator_list)
                yield f"{prefix}{node.name}", node, in_class and not static

    yield from visit(module.tree.body, f"{module.name}." if module.name else "", False)


@every_module()
def test_parameters_after_two_are_named(module: Module) -> None:
    """At a call site, at most two values stand without a name, and never a boolean."""
    for name, node, bound in public_functions(module):
        free = [*node.args.posonlyargs, *node.args.args][bound:]
        while (not bound or node.name == "__init__") and free and free[0].arg in LIKE_SELF:
            free = free[1:]
        assert len(free) <= FREE_PARAMETERS or name in POSITIONAL, f"{name}: make the third parameter keyword-only"
        flags = [arg.arg for arg in free if arg.annotation and "bool" in ast.unparse(arg.annotation).split(" | ")]
        assert not flags, f"{name}: {flags} must be keyword-only"


# Spelled in halves, so that this file passes its own test.
UNMENTIONABLE = [
    first + second
    for first, second in [
        ("pypi", ".org"),
        ("pythonhosted", ".org"),
        ("npmjs", ".org"),
        ("npmjs", ".com"),
        ("yarnpkg", ".com"),
        ("crates", ".io"),
        ("deb.debian", ".org"),
        ("proxy.golang", ".org"),
        ("/work/", "main"),
        ("/work/", "shared"),
        ("/work/", ".library"),
        ("/opt/", "wheels"),
        ("/opt/", "pypi"),
        ("/tmp/", "brief"),
    ]
]


def test_no_tracked_file_names_a_registry_or_a_workplace() -> None:
    """A checkout installs from whatever registry its user has set up, and works wherever it lies."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    named = [
        f"{name}: {word}"
        for name in listing.stdout.split("\0")
        if name and (ROOT / name).is_file()
        for text in [(ROOT / name).read_bytes().decode(errors="ignore")]
        for word in UNMENTIONABLE
        if word in text
    ]
    assert not named
