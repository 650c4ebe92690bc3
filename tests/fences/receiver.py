"""`python -m tests.fences.receiver FILE PORT`: a web application that keeps a report, and lets nobody write without a
fencing token."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from leased.fences.http import FencingTokenMiddleware, fencing_token_of
from leased.fences.sql import guarded_update

if TYPE_CHECKING:
    from starlette.requests import Request


def make(path: str) -> Starlette:
    """The application, on a file that `places.prepare` has made."""

    async def write(request: Request) -> JSONResponse:
        total = int(await request.body())
        with closing(sqlite3.connect(path, timeout=30)) as database, database:
            found = guarded_update(
                database.cursor(),
                "report",
                values={"total": total},
                where={"day": "monday"},
                fencing_token=fencing_token_of(request.scope),
            )
        return JSONResponse({"written": found})

    async def look(request: Request) -> JSONResponse:
        with closing(sqlite3.connect(path, timeout=30)) as database, database:
            token, where = fencing_token_of(request.scope), {"day": "monday"}
            guarded_update(database.cursor(), "report", values={}, where=where, fencing_token=token)
            ((total,),) = database.execute("SELECT total FROM report")
        return JSONResponse({"total": total})

    async def read(request: Request) -> JSONResponse:
        with closing(sqlite3.connect(path, timeout=30)) as database:
            ((total,),) = database.execute("SELECT total FROM report")
        return JSONResponse({"total": total})

    routes = [
        Route("/report", write, methods=["PUT"]),
        Route("/report", look, methods=["POST"]),
        Route("/report", read),
    ]
    app = Starlette(routes=routes)
    app.add_middleware(FencingTokenMiddleware)
    return app


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(make(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
