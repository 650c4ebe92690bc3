"""Runs the tests of the faces: an `async def` test is stepped on the blocking face and awaited on the asyncio face."""

import asyncio
import faulthandler
import inspect
from collections.abc import Iterator

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

from tests.faces.world import Async, Blocking, Face, World

FACES: tuple[Face, ...] = (Blocking(), Async())


@pytest.fixture(params=FACES, ids=lambda face: face.name)
def face(request: pytest.FixtureRequest) -> Face:
    """Each of the two faces."""
    found: Face = request.param
    return found


@pytest.fixture
def world(face: Face) -> World:
    """A store, a clock that flows and can be moved, and locks, on each of the two faces."""
    return World(face)


@pytest.fixture
def still_world(face: Face) -> World:
    """As `world`, but time passes only when it is moved."""
    return World(face, flowing=False)


@pytest.fixture(autouse=True)
def _never_hang(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that hangs shows where, and ends."""
    faulthandler.dump_traceback_later(150, exit=True, file=request.config.stash[fault_handler_stderr_fd_key])
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test in the face of its world (without one: in a loop), and close the world behind it."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    values = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    worlds = [value for value in values.values() if isinstance(value, World)]

    async def test() -> None:
        await pyfuncitem.obj(**values)

    if worlds:
        worlds[0].run(test)
    else:
        asyncio.run(test())
    return True
