"""One etcd from Debian, or several that are a cluster, asked over their JSON gateway."""

from __future__ import annotations

import email.utils
import http.client
import json
import ssl
import time
from base64 import b64encode
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tests.servers import certificates
from tests.servers.found import etcd_program
from tests.servers.process import Place, Recipe, Server, ServerFailed, prepare_nothing

READY_WITHIN = 60.0
ROOT_PASSWORD = "root/secret"


def start(*, tls: bool = False, client_certificates: bool = False, users: Sequence[str] = ()) -> Server:
    """A running etcd of one member.

    `users` are lines `NAME PASSWORD PREFIX`: who may read and write keys that begin so; then nobody else may, but root
    with `ROOT_PASSWORD`. With `client_certificates` it serves only whom the authority of its own certificate knows.
    """
    server = Server(_recipe(tls=tls, client_certificates=client_certificates))
    try:
        if users:
            _enable_users(server.place, users, tls=tls)
    except BaseException:
        server.close()
        raise
    return server


@dataclass(frozen=True, slots=True)
class Members:
    """Servers that are one cluster. `url` names all of them."""

    servers: tuple[Server, ...]
    _closing: ExitStack

    @property
    def url(self) -> str:
        """What `leased.connect` takes."""
        return f"etcd://{','.join(f'{server.host}:{server.port}' for server in self.servers)}"

    def leader(self) -> Server:
        """The one that leads now; asks until one does."""
        deadline = time.monotonic() + READY_WITHIN
        while time.monotonic() < deadline:
            for server in self.servers:
                found = _status(server.place) if server.running else None
                if found is not None and found.get("leader") == found["header"]["member_id"]:
                    return server
            time.sleep(0.01)  # between two questions
        raise ServerFailed(f"no etcd leads within {READY_WITHIN} s")

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
    """So many members, each of which joins those that are there."""
    with ExitStack() as stack:
        servers: list[Server] = []
        for _ in range(count):
            servers.append(stack.enter_context(Server(_recipe(first=servers[0].place if servers else None))))
        return Members(tuple(servers), stack.pop_all())


def ask(place: Place, path: str, body: dict[str, Any], *, tls: bool = False, token: str | None = None) -> Any:
    """What it answers to a request; `OSError` where it does not, `ServerFailed` where it refuses."""
    status, found, _ = _exchange(place, path, json.dumps(body), tls=tls, token=token)
    if status != 200:
        raise ServerFailed(f"etcd answered {path} with {status}: {found!r}")
    return json.loads(found)


def put(place: Place, key: str, value: bytes) -> None:
    """Write a key from outside."""
    ask(place, "/v3/kv/put", {"key": _text(key.encode()), "value": _text(value)})


def keys(place: Place, prefix: str) -> int:
    """How many keys begin so."""
    asked = {"key": _text(prefix.encode()), "range_end": _text(prefix[:-1].encode() + bytes([ord(prefix[-1]) + 1]))}
    return int(ask(place, "/v3/kv/range", {**asked, "count_only": True}).get("count", 0))


def compact(place: Place) -> int:
    """Forget all history up to now; the revision."""
    revision = int(ask(place, "/v3/kv/range", {"key": _text(b"\0")})["header"]["revision"])
    ask(place, "/v3/kv/compaction", {"revision": str(revision), "physical": True})
    return revision


def _recipe(*, tls: bool = False, client_certificates: bool = False, first: Place | None = None) -> Recipe:
    scheme = "https" if tls else "http"

    def prepare(place: Place) -> None:
        if tls:
            certificates.write(place)
        if first is not None:
            found = ask(first, "/v3/cluster/member/add", {"peerURLs": [_peer(place)]})
            others = [f"{one['name'] or 'first'}={one['peerURLs'][0]}" for one in found["members"] if one.get("name")]
            (place.directory / "cluster").write_text(",".join([*others, f"{_name(place)}={_peer(place)}"]))

    def command(place: Place) -> list[str]:
        url = f"{scheme}://{place.host}:{place.port}"
        peers = (place.directory / "cluster").read_text() if first is not None else f"{_name(place)}={_peer(place)}"
        options = {
            "name": _name(place),
            "data-dir": str(place.data),
            "listen-client-urls": url,
            "advertise-client-urls": url,
            "listen-peer-urls": _peer(place),
            "initial-advertise-peer-urls": _peer(place),
            "initial-cluster": peers,
            "initial-cluster-state": "existing" if first is not None else "new",
            "strict-reconfig-check": "false",
            "logger": "zap",
            "log-outputs": "stderr",
        }
        if tls:
            options |= {
                "cert-file": str(certificates.certificate_file(place)),
                "key-file": str(certificates.key_file(place)),
            }
        if client_certificates:
            options |= {"client-cert-auth": "true", "trusted-ca-file": str(certificates.authority_file(place))}
        return [str(etcd_program()), *(f"--{name}={value}" for name, value in options.items())]

    def url(place: Place) -> str:
        where = f"{place.host}:{place.port}"
        if not tls:
            return f"etcd://{where}"
        return f"etcds://{where}?leased_ca={quote(str(certificates.authority_file(place)), safe='')}"

    def answers(place: Place, _: int) -> bool:
        try:
            return bool(json.loads(_exchange(place, "/health", None, tls=tls)[1])["health"] == "true")
        except (OSError, LookupError, ValueError, http.client.HTTPException):
            return False

    def wall_clock(place: Place) -> float:
        return email.utils.parsedate_to_datetime(_exchange(place, "/version", None, tls=tls)[2]).timestamp()

    return Recipe(
        "etcd",
        command=command,
        url=url,
        answers=answers,
        wall_clock=wall_clock,
        prepare=prepare if tls or first is not None else prepare_nothing,
    )


def _name(place: Place) -> str:
    return f"m{place.port}"


def _peer(place: Place) -> str:
    return f"http://{place.host}:{place.second_port}"


def _exchange(
    place: Place, path: str, body: str | None, *, tls: bool = False, token: str | None = None
) -> tuple[int, bytes, str]:
    context = ssl.create_default_context(cafile=str(certificates.authority_file(place))) if tls else None
    if context is not None:
        context.load_cert_chain(certificates.certificate_file(place), certificates.key_file(place))
    where = (place.host, place.port)
    connection = (
        http.client.HTTPSConnection(*where, timeout=5, context=context)
        if context is not None
        else http.client.HTTPConnection(*where, timeout=5)
    )
    try:
        headers = {"Content-Type": "application/json", **({"Authorization": token} if token else {})}
        connection.request("GET" if body is None else "POST", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers["Date"]
    finally:
        connection.close()


def _status(place: Place) -> Any:
    try:
        return ask(place, "/v3/maintenance/status", {})
    except (OSError, ServerFailed, http.client.HTTPException):
        return None


def _enable_users(place: Place, users: Sequence[str], *, tls: bool) -> None:
    ask(place, "/v3/auth/user/add", {"name": "root", "password": ROOT_PASSWORD}, tls=tls)
    ask(place, "/v3/auth/user/grant", {"user": "root", "role": "root"}, tls=tls)
    for line in users:
        name, password, prefix = line.split()
        until = prefix[:-1].encode() + bytes([ord(prefix[-1]) + 1])
        permission = {"permType": "READWRITE", "key": _text(prefix.encode()), "range_end": _text(until)}
        ask(place, "/v3/auth/role/add", {"name": name}, tls=tls)
        ask(place, "/v3/auth/role/grant", {"name": name, "perm": permission}, tls=tls)
        ask(place, "/v3/auth/user/add", {"name": name, "password": password}, tls=tls)
        ask(place, "/v3/auth/user/grant", {"user": name, "role": name}, tls=tls)
    ask(place, "/v3/auth/enable", {}, tls=tls)


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")
