"""A browser for tests, as far as the service sees one: its headers, and the cookie it keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.cookies import SimpleCookie
from typing import Any

from leased.server.keys import ApiKey
from leased.server.routes_manage import manage_routes
from tests.server.access.gates import World
from tests.server.running import Running, running
from tests.server.talking import JSON, Answer, ask


@contextmanager
def guarded(world: World, **settings: Any) -> Iterator[Running]:
    """A service behind the gate of a world, whose dashboard may act."""
    chosen = {"ui": "act", **settings}
    with running(gate=world.gate, further=manage_routes(world.gate), registry="in memory", **chosen) as service:
        yield service


class Browser:
    """Shows its cookie and says from which page a request comes, as browsers do; `name` is what it calls the host."""

    def __init__(self, service: Running, *, name: str = "127.0.0.1") -> None:
        self.port = service.port
        self.host = f"{name}:{service.port}"
        self.origin = f"http://{self.host}"
        self.cookie = ""
        self.token = ""

    def send(self, path: str, body: Any = None, *, method: str | None = None, **changed: str | None) -> Answer:
        """One request of a page of the service. `changed`: headers that are others, or missing (`None`)."""
        sent: dict[str, str | None] = {**JSON, "host": self.host, "sec-fetch-site": "same-origin"}
        sent["cookie"] = self.cookie or None
        sent["leased-csrf"] = self.token or None
        sent["origin"] = None if method in {None, "GET"} and body is None else self.origin
        sent |= {name.replace("_", "-"): value for name, value in changed.items()}
        headers = {name: value for name, value in sent.items() if value is not None}
        answer = ask(self.port, path, body, method=method, headers=headers)
        self._keep(answer.headers)
        return answer

    def _keep(self, headers: Mapping[str, str]) -> None:
        for name, morsel in SimpleCookie(headers.get("set-cookie", "")).items():
            self.cookie = f"{name}={morsel.value}" if morsel.value else ""

    def sign_in(self, key: ApiKey) -> Answer:
        """Sign in, and keep cookie and token."""
        answer = self.send("/ui/session", {"credential": key.text})
        self.token = answer.json["csrfToken"]
        return answer

    def load(self) -> Any:
        """The session as a page finds it when it begins."""
        found = self.send("/ui/session").json
        self.token = found["csrfToken"] or ""
        return found
