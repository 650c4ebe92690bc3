"""When the service says that locks can be had."""

from __future__ import annotations

from typing import Any

import pytest

from leased.aio_clock import LoopClock
from leased.errors import LeasedError, StoreNotUsable, StoreUnavailable
from leased.model import Claim
from leased.stores.memory import MemoryStore
from tests.server.running import running
from tests.server.talking import ask


class Unwritable(MemoryStore):
    """A store that is read as ever; what writes fails while there is a failure."""

    failure: LeasedError | None = None
    writes = 0

    async def acquire(self, claim: Claim, *, timeout: float) -> Any:
        self._write()
        return await super().acquire(claim, timeout=timeout)

    async def abandon(self, key: str, token: str, *, heard: int | None = None, timeout: float) -> None:
        self._write()
        await super().abandon(key, token, heard=heard, timeout=timeout)

    def _write(self) -> None:
        self.writes += 1
        if self.failure is not None:
            raise self.failure


@pytest.mark.parametrize("kind", [StoreUnavailable, StoreNotUsable])
def test_a_service_whose_store_cannot_write_is_not_ready(
    kind: type[StoreUnavailable], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a write failed the store has to write before the service counts as ready: again and again until it can, with
    no help of callers. One whose failure was that call's alone stays ready, and while none fail nothing is written."""
    monkeypatch.setattr("leased.server.service._PROBE_EVERY", 0.0)
    store = Unwritable(LoopClock())
    with running(store) as service:

        def ready() -> int:
            return ask(service.port, "/readyz").status

        assert (ready(), store.writes) == (200, 0)
        store.failure = kind("the disk is full", applied=False)
        assert ready() == 200  # nobody has met it yet
        assert ask(service.port, "/v1/locks/acquire", {"key": "k", "ttlMs": 60_000}).status == 503
        assert [ready(), ready()] == [503, 503]
        store.failure = None
        assert [ready(), ready()] == [200, 200]
        written = store.writes
        assert (ready(), store.writes) == (200, written)
        store.failure = kind("this call took too long", applied=None)
        assert ask(service.port, "/v1/locks/acquire", {"key": "k", "ttlMs": 60_000}).status == 503
        store.failure = None
        assert ready() == 200
        assert ask(service.port, "/v1/locks").json["locks"] == []
