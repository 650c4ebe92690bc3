"""Locks in FastAPI and Starlette applications: errors as answers, and a dependency that holds a key for a request.

It opens no store: the application does that, in its lifespan.
"""

# Without `from __future__ import annotations`: FastAPI reads the annotations of the dependency that is made here.

import json
import logging
import math
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from leased import aio
from leased.checks import Duration
from leased.contrib._calls import filled_in
from leased.errors import LeasedError, StoreUnavailable
from leased.wire_errors import write_error

_log = logging.getLogger("leased")

if TYPE_CHECKING:
    from starlette.applications import Starlette


def answer_errors(app: "Starlette") -> None:
    """Answer the errors of leased that handlers and dependencies raise: 409 for a key that somebody else has, 503 for a
    store that does not answer, 429 for too many requests, and so on, as problem documents.

    They name the key and the public part of its holder, and say in `Retry-After` when to come back where that is
    known. Of a store that does not answer they say nothing else; the log of `leased` has the words.
    """
    from starlette.requests import Request
    from starlette.responses import Response

    async def answer(_: Request, error: LeasedError) -> Response:
        headers = {} if error.retry_after is None else {"Retry-After": str(math.ceil(error.retry_after))}
        problem = write_error(error, request_id=None)
        if isinstance(error, StoreUnavailable):  # its words may say where the store is
            _log.error("a request could not be handled under its lock: %s", error)
            problem["detail"] = "the locks cannot be had now"
            problem.pop("hint", None)
        body = json.dumps(problem)
        status = error.http_status or 500
        return Response(body, status_code=status, headers=headers, media_type="application/problem+json")

    app.add_exception_handler(LeasedError, answer)  # type: ignore[arg-type]  # it is given that class only


def locked(
    key: str,
    *,
    ttl: Duration = 30.0,
    wait: Duration = 0.0,
    name: str | None = None,
    locks: Callable[[Any], aio.Locks] | None = None,
) -> Callable[..., AsyncIterator[aio.Handle]]:
    """A FastAPI dependency: the request is handled under a lease on `key`, in which `{names}` are filled in from the
    path, or it raises `LockNotAcquired` (`LockTimeout` when the wait ran out) and the handler does not run.

    `locks` finds the asyncio locks for a request, by default `app.state.locks`. The handler gets the handle, whose
    `fencing_token` it passes on with what it writes. A lease that is lost cancels an async handler.

    Nobody can stop the thread of a `def` handler: when its lease is lost, and also when the task of its request is
    cancelled, which frees the key, it works on. It calls `ensure_held()` before it writes, which raises then.
    """
    from starlette.requests import Request

    async def under_the_lease(request: Request) -> AsyncIterator[aio.Handle]:
        found: aio.Locks = request.app.state.locks if locks is None else locks(request)
        name_of_key = filled_in(key, request.path_params, hint="name path parameters, and write literal braces twice")
        lock = found.lock(name_of_key, ttl=ttl, wait=wait, name=name)
        async with lock as handle:
            yield handle

    return under_the_lease
