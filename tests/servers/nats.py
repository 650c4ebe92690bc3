"""One NATS server with JetStream, from its wheel, or several that are a cluster; and questions to them by hand."""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tests.servers import certificates
from tests.servers.found import nats_program
from tests.servers.ports import Port
from tests.servers.process import Place, Recipe, Server, ServerFailed, prepare_nothing

READY_WITHIN = 60.0


def start(*, tls: bool = False, client_certificates: bool = False, configuration: str = "") -> Server:
    """A running server. `configuration` is added to its own, such as users; then none may be asked by hand."""
    return Server(_recipe(tls=tls, client_certificates=client_certificates, configuration=configuration))


@dataclass(frozen=True, slots=True)
class Members:
    """Servers that are one cluster. `url` names all of them, and a bucket with a replica on each."""

    servers: tuple[Server, ...]
    _closing: ExitStack

    @property
    def url(self) -> str:
        """What `leased.connect` takes."""
        places = ",".join(f"{server.host}:{server.port}" for server in self.servers)
        return f"nats://{places}/leased?leased_replicas={len(self.servers)}"

    def leader(self, stream: str = "KV_leased") -> Server:
        """The one that leads the stream now; asks until one does."""
        deadline = time.monotonic() + READY_WITHIN
        while time.monotonic() < deadline:
            for server in self.servers:
                if server.running:
                    try:
                        found = ask(server.place, f"$JS.API.STREAM.INFO.{stream}", seconds=1.0)
                    except OSError:
                        continue
                    name = found.get("cluster", {}).get("leader")
                    for one in self.servers:
                        if name == _name(one.place):
                            return one
            time.sleep(0.05)  # between two questions
        raise ServerFailed(f"nobody leads {stream} within {READY_WITHIN} s")

    def close(self) -> None:
        """End all of them."""
        self._closing.close()

    def __enter__(self) -> Members:
        """The cluster itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def start_members(count: int = 3) -> Members:
    """So many members of one cluster, which keep buckets together."""
    with ExitStack() as stack:
        routes = [Port() for _ in range(count)]
        for port in routes:
            stack.callback(port.release)
        urls = ",".join(f"nats://127.0.0.1:{port.number}" for port in routes)
        servers = []
        for port in routes:
            configuration = f'cluster {{ name: leased, listen: "127.0.0.1:{port.number}", routes: [{urls}] }}'
            servers.append(stack.enter_context(Server(_recipe(configuration=configuration))))
        members = Members(tuple(servers), stack.pop_all())
    try:
        _wait_until_it_keeps_buckets(members)
    except BaseException:
        members.close()
        raise
    return members


def ask(place: Place, subject: str, body: dict[str, Any] | None = None, *, seconds: float = 5.0) -> Any:
    """What JetStream answers; `OSError` where it does not."""
    payload = b"" if body is None else json.dumps(body).encode()
    return json.loads(request(place, subject, payload, seconds=seconds))


def request(place: Place, subject: str, payload: bytes = b"", *, headers: str = "", seconds: float = 5.0) -> bytes:
    """The answer to a message; `headers` are lines. `OSError` where nobody answers."""
    with socket.create_connection((place.host, place.port), timeout=seconds) as connection:
        stream = connection.makefile("rwb")
        stream.readline()
        stream.write(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB _INBOX.by.hand 1\r\n')
        if headers:
            head = f"NATS/1.0\r\n{headers}\r\n\r\n".encode()
            stream.write(b"HPUB %s _INBOX.by.hand %d %d\r\n" % (subject.encode(), len(head), len(head) + len(payload)))
            stream.write(head + payload + b"\r\n")
        else:
            stream.write(b"PUB %s _INBOX.by.hand %d\r\n%s\r\n" % (subject.encode(), len(payload), payload))
        stream.flush()
        while line := stream.readline():
            words = line.split()
            if words[0] == b"MSG":
                return stream.read(int(words[-1]) + 2)[:-2]
            if words[0] == b"HMSG":
                raise ConnectionRefusedError(f"nobody answers {subject}")
            if words[0] == b"PING":
                stream.write(b"PONG\r\n")
                stream.flush()
    raise ConnectionResetError("it hung up")


def messages(place: Place, bucket: str = "leased") -> int:
    """How many keys the bucket has."""
    return int(ask(place, f"$JS.API.STREAM.INFO.KV_{bucket}")["state"]["messages"])


def _recipe(*, tls: bool = False, client_certificates: bool = False, configuration: str = "") -> Recipe:
    def prepare(place: Place) -> None:
        if tls:
            certificates.write(place)

    def command(place: Place) -> list[str]:
        lines = [
            f'listen: "{place.host}:{place.port}"',
            f'http: "{place.host}:{place.second_port}"',
            f"server_name: {_name(place)}",
            f'jetstream {{ store_dir: "{place.data}" }}',
            configuration,
        ]
        if tls:
            files = (
                f'cert_file: "{certificates.certificate_file(place)}"',
                f'key_file: "{certificates.key_file(place)}"',
                f'ca_file: "{certificates.authority_file(place)}"',
                f"verify: {'true' if client_certificates else 'false'}",
            )
            lines.append(f"tls {{ {', '.join(files)} }}")
        file = place.directory / "nats.conf"
        file.write_text("\n".join(lines))
        return [str(nats_program()), "-c", str(file)]

    def url(place: Place) -> str:
        where = f"{place.host}:{place.port}"
        if not tls:
            return f"nats://{where}"
        return f"nats+tls://{where}?leased_ca={quote(str(certificates.authority_file(place)), safe='')}"

    def answers(place: Place, _: int) -> bool:
        try:
            with socket.create_connection((place.host, place.port), timeout=5) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False

    def wall_clock(place: Place) -> float:
        from leased.stores._nats_bucket import read_time

        return read_time(ask(place, "$JS.API.STREAM.INFO.KV_leased")["ts"])

    return Recipe(
        "nats",
        command=command,
        url=url,
        answers=answers,
        wall_clock=wall_clock,
        prepare=prepare if tls else prepare_nothing,
    )


def _name(place: Place) -> str:
    return f"m{place.port}"


def _wait_until_it_keeps_buckets(members: Members) -> None:
    deadline = time.monotonic() + READY_WITHIN
    config = {"name": "KV_ready", "subjects": ["$KV.ready.>"], "num_replicas": len(members.servers)}
    while time.monotonic() < deadline:
        try:
            if "error" not in ask(members.servers[0].place, "$JS.API.STREAM.CREATE.KV_ready", config, seconds=2.0):
                return
        except OSError:
            pass
        time.sleep(0.05)  # between two questions
    raise ServerFailed(f"the members do not keep buckets within {READY_WITHIN} s")
