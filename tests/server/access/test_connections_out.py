"""Whom a service connects to: its store, its registry and the place of its token keys, whatever callers send."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import jwt
import pytest

from tests.cli.driving import Cli
from tests.server.access.registries import emptied
from tests.server.access.test_tokens import private, public
from tests.server.access.test_whole import send
from tests.server.test_serve import port_of, ready, serving
from tests.servers.process import Server

NOTE_CONNECTIONS = """
import json, sys

def note(event, arguments):
    if event in {"socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.posix_spawn", "os.exec", "os.system"}:
        place = arguments[1] if event == "socket.connect" else arguments[:2]
        with open(%r, "a") as file:
            file.write(json.dumps([event, repr(place)]) + "\\n")

sys.addaudithook(note)
"""


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """The command, in a directory of its own."""
    found = Cli(tmp_path)
    yield found
    found.close()


@contextmanager
def key_place() -> Iterator[int]:
    """The port where the keys of the token issuer are."""

    class Keys(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"keys": [public("ec")]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Keys) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def send_everything(port: int, lure: str, *, owner: str) -> None:
    """Requests of all kinds with the URL of a lure wherever something can be sent."""
    claims = {"iss": "https://id.example", "aud": "leased", "exp": 4e9, "sub": "ada"}
    pointing = {"jku": lure, "x5u": lure, "jwk": {"kty": "EC", "url": lure}}
    for key_id in ("ec", lure):
        token = jwt.encode(claims, private("ec"), "ES256", headers={"kid": key_id, **pointing})
        send(port, "/v1/locks/status?key=k", key=token)
    headers = {"Referer": lure, "Origin": lure, "X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": lure}
    more = {"owner": lure, "requestId": lure[:255], "client": lure, "metadata": {"webhook": lure, "callbackUrl": lure}}
    for key in (lure, "k"):
        send(port, "/v1/locks/acquire", {"key": key, "ttlMs": 30_000, **more}, key=owner, **headers)
    send(port, "/v1/locks/acquire", {"key": "k", "ttlMs": 30_000, "waitMs": 50, "owner": lure}, key=owner)
    send(port, "/v1/locks/force-release", {"key": "k", "reason": lure}, key=owner)
    send(port, f"/v1/locks?prefix={lure}", key=owner)
    send(
        port, "/v1/credentials", {"kind": "member", "name": "eve", "groups": [{"name": lure, "kind": lure}]}, key=owner
    )
    rules = {"acquire": f"record.key == '{lure}' || isMemberOf('{lure}', 'team')", "renew": "true"}
    rule_set = {"ruleSet": {"name": "own", "resourceType": "lock"}, "rules": {"lock": rules}}
    send(port, "/v1/rule-set/check", {"userId": "ada", "key": lure, "document": rule_set}, key=owner)
    place = urlsplit(lure).netloc
    for line in (f"GET {lure}/ HTTP/1.1", f"CONNECT {place} HTTP/1.1", f"GET /@{place}/ HTTP/1.1"):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(f"{line}\r\nHost: {place}\r\nConnection: close\r\n\r\n".encode())
            assert connection.recv(100).startswith(b"HTTP/1.1 4")


def test_nothing_that_callers_send_makes_it_connect_anywhere(cli: Cli, valkey_server: Server) -> None:
    """SEC9: only the store, the registry and the place of the token keys that are configured are ever connected to."""
    url = emptied(valkey_server, "valkey")
    named = ("--registry", url, "--registry-key", str(cli.path("registry.key")))
    owner = cli.data("keys", "create", *named, "--name", "olga", "--role", "owner")["key"]
    noted = cli.path("noted")
    cli.path("sitecustomize.py").write_text(NOTE_CONNECTIONS % str(noted))
    settings = {
        "PYTHONPATH": str(cli.directory),
        "LEASED_SERVE_JWT_ISSUER": "https://id.example",
        "LEASED_SERVE_JWT_AUDIENCE": "leased",
        "LEASED_SERVE_JWT_PROJECT": "default",
    }
    with key_place() as keys, socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        lure = f"http://127.0.0.1:{listening.getsockname()[1]}"
        settings["LEASED_SERVE_JWT_KEYS"] = f"http://127.0.0.1:{keys}/jwks.json"
        with serving(cli.directory, *named, "--store", url, **settings) as (process, address):
            ready(address)
            send_everything(port_of(address), lure, owner=owner)
            process.terminate()
            process.communicate(timeout=30)
            assert process.returncode == 0
        with pytest.raises(BlockingIOError):
            listening.accept()
    found = [json.loads(line) for line in noted.read_text().splitlines()]
    assert {event for event, _ in found} <= {"socket.connect", "socket.getaddrinfo"}
    ports = {urlsplit(url).port, keys}
    assert {place for event, place in found if event == "socket.connect"} == {f"('127.0.0.1', {one})" for one in ports}
