"""The description of the interface is complete, and true."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from leased.server import answers
from leased.server.app import App
from leased.server.service import Service
from leased.server.settings import Settings
from tests.server.running import Running, running
from tests.server.talking import PATIENCE, ask

EXAMPLES = int(os.environ.get("SCHEMA_EXAMPLES", "8"))


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with running() as one:
        yield one


def test_every_route_is_described(service: Running) -> None:
    """Each route stands in the document with its body and its answer, and nothing else does."""
    document = ask(service.port, "/openapi.json").json
    app = App(Service(Settings(store="memory:described")))
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(route.method, route.path) for route in app.routes}
    schemas = document["components"]["schemas"]
    for route in app.routes:
        operation = document["paths"][route.path][route.method.lower()]
        assert ("requestBody" in operation) == (route.request is not None)
        assert {parameter["name"] for parameter in operation.get("parameters", ())} == set(route.query)
        if route.answer is not None:
            assert route.answer.__name__ in schemas
            assert schemas[route.answer.__name__].get("description"), route.answer
    assert document["openapi"] == "3.1.0"


def fits(kind: type[Any], body: Any) -> None:
    """The body has just the members of its type; those that may be missing may be."""
    msgspec.convert(body, kind)


def test_answers_are_what_is_described(service: Running) -> None:
    """What really comes back has the described members and no others, in each of its outcomes."""

    def post(name: str, **body: Any) -> Any:
        return ask(service.port, f"/v1/locks/{name}", {"key": "described", **body}).json

    token = "t" * 32
    fits(answers.AcquireAnswer, post("acquire", ttlMs=60_000, token=token, owner="me", requestId="r"))
    fits(answers.AcquireAnswer, post("acquire", ttlMs=60_000))
    fits(answers.AcquireAnswer, post("acquire", ttlMs=60_000, waitMs=1))
    fits(answers.RenewAnswer, post("renew", ttlMs=60_000, token=token))
    fits(answers.RenewAnswer, post("renew", ttlMs=60_000, token="x"))
    fits(answers.LookAnswer, post("look", token=token))
    fits(answers.LookAnswer, post("look", token="x"))
    fits(answers.Status, ask(service.port, "/v1/locks/status?key=described").json)
    fits(answers.Page, ask(service.port, "/v1/locks").json)
    fits(answers.ForceReleaseAnswer, post("force-release", fencingToken=1, requestId="r"))
    fits(answers.ReleaseAnswer, post("release", token="x"))
    fits(answers.ReleaseAnswer, post("release", token=token, requestId="r"))
    fits(answers.AcquireAnswer, post("acquire", ttlMs=60_000, token=token))
    fits(answers.AbandonAnswer, post("abandon", token=token))
    fits(answers.Status, ask(service.port, "/v1/locks/status?key=described").json)
    batch = {"operations": [{"operation": "look", "key": "k", "token": "t"}], "requestId": "r"}
    fits(answers.BatchAnswer, ask(service.port, "/v1/locks/batch", batch).json)
    fits(answers.Capabilities, ask(service.port, "/v1/capabilities").json)
    fits(answers.WaitersAnswer, ask(service.port, "/v1/locks/waiters?key=described").json)
    fits(answers.HistoryAnswer, ask(service.port, "/v1/locks/history?key=described").json)
    fits(answers.OverviewAnswer, ask(service.port, "/v1/overview").json)
    fits(answers.SessionAnswer, ask(service.port, "/ui/session").json)
    fits(answers.Health, ask(service.port, "/healthz").json)
    fits(answers.Health, ask(service.port, "/readyz").json)
    fits(answers.Problem, post("acquire"))


def test_whatever_is_sent_is_answered_as_described(service: Running) -> None:
    """Generated requests, good and bad: none is a fault of the service, each answer is one of those described."""
    schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    tried = set()
    for result in schema.get_all_operations():
        operation: Any = result.ok()  # type: ignore[union-attr]  # a description that is none fails right here
        if operation.path == "/v1/events":  # it never ends
            continue
        tried.add(operation.path)
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            if mode == GenerationMode.POSITIVE or operation.body or operation.query:
                _send_all(operation.as_strategy(generation_mode=mode))
    assert "/v1/locks/acquire" in tried


def _send_all(strategy: st.SearchStrategy[Any]) -> None:
    @settings(
        max_examples=EXAMPLES,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    @given(case=strategy)
    def send(case: Any) -> None:
        wait = case.body.get("waitMs") if isinstance(case.body, dict) else None
        if type(wait) is int and 0 < wait < 2**53:  # as good as any other, but it does not wait
            case.body["waitMs"] = 0
        # A schema cannot say all that a key may not hold.
        case.call_and_validate(timeout=PATIENCE, excluded_checks=[positive_data_acceptance])

    send()
