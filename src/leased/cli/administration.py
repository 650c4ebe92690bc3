"""Where a rule set is installed: in a registry, or at a service, asked over HTTP. It decides nothing."""

from __future__ import annotations

import http.client
import json
from typing import Any, Protocol
from urllib.parse import quote

from leased import wire
from leased.checks import seconds
from leased.cli.keys import REGISTRY, operator, registry_of, with_registry
from leased.cli.session import Session
from leased.clocks import BlockingClock
from leased.errors import InvalidRequest, StoreUnavailable
from leased.policy import OPERATION_TIMEOUT
from leased.server.credentials import RuleSet
from leased.server.registries import Place
from leased.server.rule_files import MAX_FILE, read_rule_set, write_rule_set
from leased.stores._http_connection import trust_of
from leased.stores._http_strangers import NO_SERVICE, hint_of
from leased.stores._http_url import Address, read_address
from leased.targets import Options, read_url
from leased.wire_errors import read_error

_MOST_ANSWER = 4 * MAX_FILE
_NO_RULES = "rules need members: `leased keys create --registry FILE`, then `leased serve --registry FILE`"


class RulePlace(Protocol):
    """Where one project's rule set is."""

    def get(self) -> RuleSet | None:
        """The rule set that is installed."""
        ...

    def put(self, rule_set: RuleSet) -> None:
        """Install it, or raise `InvalidRequest`."""
        ...

    def delete(self, name: str) -> None:
        """Delete it, or raise `InvalidRequest`."""
        ...


def rule_place(session: Session) -> RulePlace:
    """The registry that was named, else the service that the URL names. Raises `InvalidRequest` for other URLs."""
    if session.arguments.registry or (session.arguments.url is None and session.environment.get(REGISTRY)):
        return InRegistry(registry_of(session), project=session.arguments.project)
    place = session.place()
    if place.url.partition(":")[0].lower() not in {"http", "https"}:
        raise InvalidRequest(
            f"rule sets belong to a lock service, and {place.named_by} names none",
            hint="pass --url https://HOST with LEASED_API_KEY set, or --registry PATH",
        )
    target = read_url(place.url, Options(BlockingClock()))
    timeout = session.arguments.timeout
    return AtService(
        read_address(target.url, target.options),
        timeout=seconds(timeout, what="--timeout") if timeout else OPERATION_TIMEOUT,
    )


class InRegistry:
    """See `RulePlace`: the registry of a service that may run meanwhile, and follows within two seconds."""

    def __init__(self, place: Place, *, project: str) -> None:
        self._place = place
        self._by = operator(project)

    def get(self) -> RuleSet | None:
        """See `RulePlace`."""
        return with_registry(self._place, lambda place: place.registry.rule_set(self._by.project))

    def put(self, rule_set: RuleSet) -> None:
        """See `RulePlace`."""
        with_registry(self._place, lambda place: place.install(self._by, rule_set))

    def delete(self, name: str) -> None:
        """See `RulePlace`."""
        with_registry(self._place, lambda place: place.remove(self._by, name))


class AtService:
    """See `RulePlace`: a service, which is shown a credential of the project. Each call is one request."""

    def __init__(self, address: Address, *, timeout: float) -> None:
        self._address = address
        self._timeout = timeout

    def get(self) -> RuleSet | None:
        """See `RulePlace`."""
        body = self._ask("GET", "/v1/rule-set")
        shape = {name: body[name] for name in ("ruleSet", "rules") if name in body}
        return read_rule_set(shape) if body.get("installed") is True else None

    def put(self, rule_set: RuleSet) -> None:
        """See `RulePlace`."""
        self._ask("PUT", "/v1/rule-set", write_rule_set(rule_set))

    def delete(self, name: str) -> None:
        """See `RulePlace`."""
        self._ask("DELETE", f"/v1/rule-set?name={quote(name, safe='')}")

    def _ask(self, method: str, path: str, body: wire.Body | None = None) -> wire.Body:
        """The body of the answer, or the error that it stands for. What was sent may have worked if none came."""
        address = self._address
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if address.credential is not None:
            headers["Authorization"] = f"Bearer {address.credential}"
        connection = _connection(address, timeout=self._timeout)
        sent = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, address.path + path, body=sent, headers=headers)
            answer = connection.getresponse()
            text = answer.read(_MOST_ANSWER)
        except (OSError, http.client.HTTPException) as error:
            raise StoreUnavailable(
                f"{address} gave no answer: {str(error) or type(error).__name__}", hint=hint_of(error)
            ) from error
        finally:
            connection.close()
        found = _object(text)
        if found is None or (answer.status != 200 and "code" not in found):
            raise StoreUnavailable(
                f"{address} answered with HTTP status {answer.status}, and not as a lock service does",
                hint=NO_SERVICE,
            )
        if answer.status == 404 and not address.path:
            raise InvalidRequest(f"{address} asks nobody for credentials, and so has no access rules", hint=_NO_RULES)
        if answer.status != 200:
            raise read_error(found, status=answer.status)
        return found


def _connection(address: Address, *, timeout: float) -> http.client.HTTPConnection:
    if address.tls:
        trust: Any = trust_of(address)
        return http.client.HTTPSConnection(address.host, address.port, timeout=timeout, context=trust())
    return http.client.HTTPConnection(address.host, address.port, timeout=timeout)


def _object(text: bytes) -> wire.Body | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
