"""One browser and one service of each kind for each module of tests; every test has pages of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.web.world import PATIENCE, Look, Serving, browsing, looking, serving

expect.set_options(timeout=PATIENCE * 1000)

# Not for the whole session: a browser that is driven from here has an event loop that runs in this thread meanwhile.


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A service that asks nobody for credentials."""
    with serving(tmp_path_factory.mktemp("local")) as found:
        yield found


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A service with credentials, where any key may be taken."""
    with serving(tmp_path_factory.mktemp("guarded"), registry=True, KEYS="any") as found:
        yield found


@pytest.fixture
def look(browser: Browser) -> Iterator[Callable[..., Look]]:
    """Opens pages of a service; at the end of the test nothing may have gone wrong in any."""
    with ExitStack() as closing:

        def begin(service: Serving, **more: Any) -> Look:
            return closing.enter_context(looking(browser, service.url, **more))

        yield begin


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Where pictures go."""
    return tmp_path
