"""A program that is the floor of the service: uvicorn with an application that reads a body and answers, and no more.

`python -m bench.plain_asgi` prints the URL that it serves.
"""

from __future__ import annotations

import socket
from typing import Any

import uvicorn

_BODY = b'{"acquired":true}'
_HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_BODY))]


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer the same to everything."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _BODY})


def config() -> uvicorn.Config:
    """How uvicorn runs it."""
    return uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", server_header=False, timeout_keep_alive=600
    )


def main() -> None:
    """Serve until a signal."""
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listening:
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        uvicorn.Server(config()).run(sockets=[listening])


if __name__ == "__main__":
    main()
