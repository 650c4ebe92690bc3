"""The page about other libraries promises that a change-over in three releases leaves no gap: tried with redis-py."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import redis

import leased
from tests.docs.pages import ROOT, blocks
from tests.servers.process import Server

PAGE = ROOT / "docs" / "how-to" / "migrate.md"
Section = Callable[[], AbstractContextManager[object]]


@pytest.fixture
def releases(valkey_server: Server) -> Iterator[dict[str, Section]]:
    """How each of the three releases guards the same section, on one server, with the `both` that the page shows."""
    shown = next(block.body for block in blocks(PAGE) if "def both(" in block.body)
    names: dict[str, Any] = {"leased": leased}
    exec(shown, names)
    url = f"redis://{valkey_server.host}:{valkey_server.port}"
    with redis.Redis.from_url(url) as client, leased.connect(url, namespace="rollout") as locks:
        client.delete("rollout:section")
        new = locks.lock("section", ttl="30s")

        @contextmanager
        def old() -> Iterator[None]:
            lock = client.lock("rollout:section", timeout=30, blocking=False)
            if not lock.acquire():
                raise leased.LockNotAcquired("the old lock is held", key="rollout:section")
            try:
                yield
            finally:
                lock.release()

        yield {"before": old, "both": lambda: names["both"](old(), new), "after": new.hold}


@pytest.mark.parametrize(
    ("inside", "comes"),
    [(one, other) for one in ("before", "both") for other in ("before", "both")]
    + [(one, other) for one in ("both", "after") for other in ("both", "after")],
)
def test_releases_that_meet_keep_each_other_out(releases: dict[str, Section], inside: str, comes: str) -> None:
    """While a process of one release is in the section, one of the same or the next is refused, and then let in."""
    with releases[inside](), pytest.raises(leased.LockNotAcquired), releases[comes]():
        pass
    with releases[comes]():
        pass


def test_a_skipped_step_is_a_gap(releases: dict[str, Section]) -> None:
    """Without the middle release two are at work at once: what the page warns of, and why the test above can fail."""
    with releases["before"](), releases["after"]():
        pass
