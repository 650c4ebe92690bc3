"""Something before a DynamoDB that answers some operations itself: what no emulation can be made to answer."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

from tests.servers.dynamodb import REGION
from tests.servers.process import Server

Answer: TypeAlias = "tuple[int, dict[str, Any]] | None"
"""A status and a body; `None` passes the request on."""

Decide: TypeAlias = Callable[[str, dict[str, Any]], Answer]
"""What to answer to an operation, given its name and what was asked."""


def error(kind: str, message: str = "as told") -> tuple[int, dict[str, Any]]:
    """An error as DynamoDB answers it."""
    return 400, {"__type": f"com.amazonaws.dynamodb.v20120810#{kind}", "message": message}


@contextmanager
def between(server: Server, decide: Decide) -> Iterator[str]:
    """The URL of a store whose requests are decided upon, and passed on to that server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            operation = self.headers["X-Amz-Target"].rpartition(".")[2]
            answer = decide(operation, json.loads(body))
            status, found = answer or self._pass_on(body)
            text = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def _pass_on(self, body: bytes) -> tuple[int, dict[str, Any]]:
            connection = http.client.HTTPConnection(server.host, server.port, timeout=5.0)
            try:
                connection.request("POST", "/", body, dict(self.headers))
                answered = connection.getresponse()
                return answered.status, json.loads(answered.read())
            finally:
                connection.close()

        def log_message(self, format: str, *args: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"dynamodb://127.0.0.1:{listening.server_port}/leased?leased_region={REGION}"
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()
