"""The two faces are equal: the same names, parameters and words; only what has to be awaited differs."""

import inspect
import re
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

import leased
import leased.aio

CLASSES = ("Locks", "Lock", "Handle", "Scope")
FUNCTIONS = ("connect", "lock", "get_default", "set_default", "using_default")
SAME = ("FOREVER", "RunResult", "current", "current_fencing_token", "owner_scope")
AWAITED = {
    "Locks": {"status", "list", "force_release", "abandon", "restore", "close"},
    "Lock": {"acquire", "try_acquire", "run", "try_run", "locked"},
    "Handle": {"renew", "extend", "release"},
    "Scope": set(),
}
DUNDERS = {"__enter__": "__aenter__", "__exit__": "__aexit__"}

# Sentences in which the faces say different things because they do different things, blocking and asyncio.
DIFFERENT_WORDS: dict[str, tuple[str, str]] = {
    "Lock.__call__": ("around a function or a generator function", "around an async one"),
    "Lock.run": ("calls in this thread", "awaits, or runs in a worker thread"),
    "Handle.on_lost": ("in a thread", "async hooks in their loop"),
    "Handle.on_at_risk": ("in a thread", "async hooks in their loop"),
}


def public(owner: Any) -> dict[str, Any]:
    """The public members of a class, and the special ones that it defines itself."""
    members = {}
    for name in dir(owner):
        member = inspect.getattr_static(owner, name)
        own = name in {**DUNDERS, **{a: b for b, a in DUNDERS.items()}, "__call__": ""}
        if not name.startswith("_") or own:
            members[DUNDERS.get(name, name)] = member
    return members


def words(text: str | None) -> str:
    """A docstring with what always differs written alike."""
    text = " ".join((text or "").split())
    for pattern, alike in (
        (r"async with", "with"),
        (r"async function or async generator function", "function or a generator function"),
        (r"await (lock|handle|locks)", r"\1"),
        (r"leased\.aio\.", "leased."),
        (r"\btasks?\b", "thread"),
        (r"\bthreads\b", "thread"),
        (r"in different thread", "on different thread"),
        (r"thread, loop or thread", "thread"),
        (r"any thread may read", "any thread may read"),
        (r"thread of any loop", "thread"),
        (r"cancellation", "interrupt"),
        (r"A interrupt", "An interrupt"),
    ):
        text = re.sub(pattern, alike, text)
    return text


@pytest.mark.parametrize("name", CLASSES)
def test_classes_have_the_same_members(name: str) -> None:
    """L: every public member of one face is there in the other, as the same kind of thing."""
    blocking, asynchronous = public(getattr(leased, name)), public(getattr(leased.aio, name))
    assert set(blocking) == set(asynchronous)
    for member in blocking:
        kinds = {type(members[member]).__name__ for members in (blocking, asynchronous)}
        assert len(kinds) == 1, member


@pytest.mark.parametrize("name", CLASSES)
def test_methods_take_the_same_parameters(name: str) -> None:
    """L: names, kinds, defaults and annotations of parameters are equal, and so are results but for the await."""
    blocking, asynchronous = public(getattr(leased, name)), public(getattr(leased.aio, name))
    for member, method in blocking.items():
        if not isinstance(method, FunctionType) or member == "__call__":
            continue
        ours = inspect.signature(method)
        theirs = inspect.signature(asynchronous[member])
        assert list(ours.parameters) == list(theirs.parameters), member
        for ours_, theirs_ in zip(ours.parameters.values(), theirs.parameters.values(), strict=True):
            assert (ours_.name, ours_.kind, ours_.default) == (theirs_.name, theirs_.kind, theirs_.default), member
            if ours_.name not in ("fn", "callback", "args", "kwargs", "client", "hold"):
                assert ours_.annotation == theirs_.annotation, member


@pytest.mark.parametrize("name", CLASSES)
def test_exactly_what_asks_the_store_is_awaited(name: str) -> None:
    """L: on the asyncio face a method is a coroutine function exactly if it may wait; none is on the blocking face."""
    for member, method in public(getattr(leased.aio, name)).items():
        is_async = inspect.iscoroutinefunction(method)
        assert is_async == (member in AWAITED[name] or member in DUNDERS.values()), member
    for member, method in public(getattr(leased, name)).items():
        assert not inspect.iscoroutinefunction(method), member


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_the_same_parameters(name: str) -> None:
    """L0, L8: `connect`, `lock` and the process default have the same parameters, and neither is awaited."""
    ours, theirs = getattr(leased, name), getattr(leased.aio, name)
    assert not inspect.iscoroutinefunction(theirs)
    assert list(inspect.signature(ours).parameters.values()) == list(inspect.signature(theirs).parameters.values())
    assert words(ours.__doc__) == words(theirs.__doc__)


def test_modules_offer_the_same_names() -> None:
    """L: the asyncio face has what it needs of its own; errors and values are the package's."""
    own = {*CLASSES, *FUNCTIONS, *SAME}
    assert set(leased.aio.__all__) == own
    assert own <= set(leased.__all__)
    for name in SAME:
        assert getattr(leased, name) is getattr(leased.aio, name)


@pytest.mark.parametrize("name", CLASSES)
def test_the_faces_use_the_same_words(name: str) -> None:
    """L: docstrings of classes and members are equal but for threads and tasks, `with` and `async with`."""
    ours, theirs = getattr(leased, name), getattr(leased.aio, name)
    assert words(ours.__doc__) == words(theirs.__doc__)
    for member, method in public(ours).items():
        if f"{name}.{member}" not in DIFFERENT_WORDS and getattr(method, "__doc__", None):
            assert words(method.__doc__) == words(public(theirs)[member].__doc__), member


@pytest.mark.parametrize("entry", sorted(DIFFERENT_WORDS))
def test_what_the_faces_say_differently_is_written_down_on_both(entry: str) -> None:
    """L: where the faces do different things each says what it does."""
    name, member = entry.split(".")
    ours = inspect.getdoc(public(getattr(leased, name))[member])
    theirs = inspect.getdoc(public(getattr(leased.aio, name))[member])
    assert ours
    assert theirs
    assert ours != theirs


def test_recipes_and_module_locks_take_the_same_options() -> None:
    """L1: `Locks.lock`, `leased.lock` and both faces have the options of the recipe, with the same defaults."""
    makers: list[Callable[..., Any]] = [leased.Locks.lock, leased.aio.Locks.lock, leased.lock, leased.aio.lock]
    seen = []
    for maker in makers:
        parameters = dict(inspect.signature(maker).parameters)
        parameters.pop("self", None)
        seen.append([(p.name, p.kind, p.default) for p in parameters.values()])
    assert seen[0] == seen[1] == seen[2] == seen[3]
    assert [name for name, _, _ in seen[0]] == [
        "key",
        "ttl",
        "wait",
        "owner",
        "renew",
        "enforce",
        "if_lost",
        "max_hold",
        "hold_at_least",
        "lock_delay",
        "metadata",
        "retry_delay",
        "name",
    ]
