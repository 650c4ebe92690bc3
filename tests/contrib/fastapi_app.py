"""`python -m tests.contrib.fastapi_app STORE PORT`: an application with orders, and one request at a time for each."""

# Without `from __future__ import annotations`: FastAPI reads annotations where they are made.

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI

import leased
from leased import aio
from leased.contrib.fastapi import answer_errors, locked


def make(store: str) -> FastAPI:
    """The application."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with aio.connect(store) as locks:
            app.state.locks = locks
            yield

    app = FastAPI(lifespan=lifespan)
    answer_errors(app)
    order = locked("order:{order_id}", ttl=1.0, name="order")
    patient = locked("order:{order_id}", ttl=1.0, wait=0.2)

    @app.post("/orders/{order_id}")
    async def charge(order_id: str, seconds: float, lock: Annotated[aio.Handle, Depends(order)]) -> dict[str, Any]:
        await asyncio.sleep(seconds)
        return {"order": order_id, "fencingToken": lock.fencing_token, "current": leased.current_fencing_token()}

    @app.post("/patient/{order_id}")
    async def wait_for_it(order_id: str, lock: Annotated[aio.Handle, Depends(patient)]) -> int:
        return lock.fencing_token

    @app.post("/wrong/{other}")
    async def wrong(other: str, lock: Annotated[aio.Handle, Depends(order)]) -> None:
        raise AssertionError(other, lock)

    @app.post("/limited")
    async def limited() -> None:
        raise leased.RateLimited("too much", retry_after=1.2)

    @app.post("/stale")
    async def stale() -> None:
        raise leased.StaleFencingToken("over", fencing_token=1, seen=2)

    @app.post("/lose/{order_id}")
    async def lose(order_id: str, lock: Annotated[aio.Handle, Depends(order)]) -> None:
        await app.state.locks.force_release(lock.key)
        await asyncio.sleep(60)
        raise AssertionError(order_id)

    @app.post("/threaded/{order_id}")
    def threaded(order_id: str, lock: Annotated[aio.Handle, Depends(order)]) -> None:
        app.state.begun.set()
        assert app.state.cut_off.wait(30), order_id
        try:
            lock.ensure_held()
            app.state.told.append("held")
        except leased.LeasedError as error:
            app.state.told.append(error.code)

    @app.post("/plain/{order_id}")
    def plain(order_id: str, told: str, lock: Annotated[aio.Handle, Depends(order)]) -> dict[str, Any]:
        ends = Path(told)
        while not ends.with_suffix(".go").exists():  # in a thread: the loop serves others meanwhile, and renews
            time.sleep(0.01)
        try:
            lock.ensure_held()
        except leased.LeasedError as error:
            ends.write_text(error.code)
            raise
        ends.write_text("held")
        return {"order": order_id, "fencingToken": lock.fencing_token, "current": leased.current_fencing_token()}

    return app


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(make(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
