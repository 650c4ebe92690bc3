"""What a request costs that is refused before it does anything: as much as one that is not."""

from typing import Any

import pytest

from leased.server.gate import Budgets
from leased.server.limits import Budget
from tests.server.access.gates import PLENTY, World
from tests.server.access.test_whole import TTL, guarded, send

FEW = Budget(10, 3600.0)


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("locks/acquire", b"{", {}, 400),
        ("locks/acquire", {"key": "k"}, {}, 400),
        ("locks/acquire", {"key": "k", **TTL, "more": 1}, {}, 400),
        ("locks/acquire", {"key": "k", **TTL}, {"Content-Type": "text/plain"}, 415),
        ("locks/acquire", b" " * 100_000, {}, 413),
        ("locks/batch", {"operations": []}, {}, 400),
        ("locks/batch", {"operations": [{"operation": "dance", "key": "k"}]}, {}, 400),
        ("credentials", {"kind": "member"}, {}, 400),
        ("locks/status?kee=k", None, {}, 400),
        ("locks/status?key=k&key=k", None, {}, 400),
    ],
)
def test_a_malformed_request_is_charged_to_its_project(
    path: str, body: Any, headers: dict[str, str], status: int
) -> None:
    """A2, C172: nobody keeps the service busy for nothing; another project does not pay for it."""
    world = World(budgets=Budgets(requests=FEW))
    ada, bob = world.key(), world.key(name="bob", project="q")
    with guarded(world) as service:
        for _ in range(FEW.uses):
            assert send(service.port, f"/v1/{path}", body, key=ada.text, **headers).status == status
        assert send(service.port, "/v1/locks/status?key=k", key=ada.text).status == 429
        assert send(service.port, "/v1/locks/status?key=k", key=bob.text).status == 200


def test_a_request_that_is_admitted_is_charged_once() -> None:
    """A2: what is refused later than at the gate, such as a ttl that is too long, has been counted there."""
    world = World(budgets=Budgets(requests=FEW))
    ada = world.key()
    with guarded(world) as service:
        for _ in range(FEW.uses):
            answer = send(service.port, "/v1/locks/acquire", {"key": "k", "ttlMs": 10**8}, key=ada.text)
            assert answer.status == 400
        assert send(service.port, "/v1/locks/status?key=k", key=ada.text).status == 429


@pytest.mark.parametrize("wrong", [{"key": "no such key!", **TTL}, {"key": "k", "ttlMs": 10**8}])
def test_each_member_of_a_batch_is_charged_as_alone(wrong: dict[str, Any]) -> None:
    """A2, C172: also one that the policies refuse; it counts as an attempt of its member."""
    world = World(budgets=Budgets(attempts=FEW, requests=PLENTY.requests))
    ada = world.key()
    batch = {"operations": [{"operation": "acquire", **wrong}] * (FEW.uses + 2)}
    with guarded(world) as service:
        outcomes = send(service.port, "/v1/locks/batch", batch, key=ada.text).json["outcomes"]
        assert [one["status"] for one in outcomes] == [400] * FEW.uses + [429] * 2
        assert send(service.port, "/v1/locks/acquire", wrong, key=ada.text).status == 429
