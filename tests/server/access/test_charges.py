"""What a request costs that is refused before it does anything: as much as one that is not."""

from typing import Any

import pytest

from leased.errors import RateLimited, Unauthenticated
from leased.server.gate import Budgets
from leased.server.keys import new_key
from leased.server.limits import Budget, Meter
from leased.server.usage import OwnUsage
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


async def test_a_flood_of_forged_names_costs_no_memory_and_nobody_a_use() -> None:
    """SEC6, C180, R1: keys, tokens and headers that were made up, from any number of addresses, are remembered as
    addresses that fail, and no more of them than there is room for; a member who was there keeps exactly his budget."""
    failures = Budget(1, 3600.0)
    world = World(budgets=Budgets(attempts=FEW, requests=PLENTY.requests, failures=failures))
    gate = world.gate
    gate._failures = Meter(failures, now=world.watch, most_names=1_000)
    ada = world.key()
    for number in range(20_000):
        forged = ("Bearer " + new_key().text, f"Bearer e30.{number}.x", f"Basic {number}", f"{number}")[number % 4]
        with pytest.raises((Unauthenticated, RateLimited)):
            await gate.identify(forged, peer=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
        assert len(gate._failures) <= 1_001
    usage = gate._usage
    assert isinstance(usage, OwnUsage)
    assert (len(usage._attempts), len(usage._requests), len(gate._principals._known)) == (0, 0, 0)
    member = await world.who(ada, peer="10.0.0.1")
    for _ in range(FEW.uses):
        await gate.admit(member, "acquire", key="k")
    with pytest.raises(RateLimited) as late:
        await gate.admit(member, "acquire", key="k")
    assert late.value.retry_after == pytest.approx(FEW.seconds / FEW.uses, abs=1e-3)
    world.watch.time += FEW.seconds / FEW.uses
    await gate.admit(member, "acquire", key="k")
