"""Streams of events and those who read them: how many a project has, and how long a credential lets one go on."""

import dataclasses
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

import pytest

from leased.server.credentials import Credential
from leased.server.gate import Budgets
from leased.server.gate_memory import GRACE, REMEMBERED_FOR
from leased.server.keys import ApiKey
from leased.server.limits import Budget
from tests.server.access.gates import World
from tests.server.access.test_whole import guarded, send
from tests.server.running import Running, running
from tests.server.talking import ask
from tests.server.test_watching import Stream

pytestmark = pytest.mark.real_clock

OFTEN = {"heartbeat": 0.05}
ALIVE = b"9\r\n: alive\n\n\r\n"
"""A sign of life, as a chunk."""


def watching(service: Running, key: ApiKey) -> closing[Stream]:
    """A stream that has begun."""
    stream = Stream(service.port, headers=f"Authorization: Bearer {key.text}\r\n")
    stream.until(b": leased\n\n")
    return closing(stream)


def refusal(service: Running, key: ApiKey) -> bytes:
    """What comes instead of a stream; bounded in time, as a stream would have no end."""
    with closing(Stream(service.port, headers=f"Authorization: Bearer {key.text}\r\n")) as stream:
        return stream.until(b"}")


def owner(world: World, *, project: str = "p", **more: float) -> ApiKey:
    """Somebody who may watch."""
    return world.key("member", "olga", project=project, role="owner", **more)


def test_no_project_takes_all_streams() -> None:
    """A2, C180: a project has a quarter; who wants more is told what to do, and the others have theirs."""
    world = World()
    mine, other = owner(world), owner(world, project="q")
    with guarded(world, max_event_streams=8) as service, ExitStack() as streams:
        for _ in range(2):
            streams.enter_context(watching(service, mine))
        refused = refusal(service, mine)
        assert refused.startswith(b"HTTP/1.1 429 ")
        assert b"retry-after: 5\r\n" in refused
        assert b"raise max_event_streams" in refused
        streams.enter_context(watching(service, other))


def test_a_project_has_at_least_one_stream_and_a_service_without_projects_has_all() -> None:
    """A2: the share of few is one; where nobody is asked who he is, there is nobody to share with."""
    world = World()
    with guarded(world, max_event_streams=2) as service, watching(service, owner(world)):
        assert refusal(service, owner(world)).startswith(b"HTTP/1.1 429 ")
    with running(max_event_streams=2) as service, closing(Stream(service.port)) as one:
        one.until(b": leased\n\n")
        with closing(Stream(service.port)) as two:
            two.until(b": leased\n\n")


def revoked(world: World, key: ApiKey) -> None:
    world.registry.kept[key.id] = _with(world, key, revoked_at=1000.0)


def demoted(world: World, key: ApiKey) -> None:
    world.registry.kept[key.id] = _with(world, key, role="member")


def changed(world: World, key: ApiKey) -> None:
    world.registry.kept[key.id] = _with(world, key, role="admin")


def forgotten(world: World, key: ApiKey) -> None:
    world.registry.broken = True
    world.watch.time += GRACE


def expired(world: World, key: ApiKey) -> None:
    world.watch.time += 500.0


def _with(world: World, key: ApiKey, **change: Any) -> Credential:
    return dataclasses.replace(world.registry.kept[key.id], **change)


@pytest.mark.parametrize("event", [revoked, demoted, changed, forgotten, expired])
def test_a_stream_ends_with_the_credential_that_opened_it(event: Callable[[World, ApiKey], None]) -> None:
    """A4, V5: also where the credential now gives other rights, or nobody knows; the stream of another goes on."""
    world = World()
    key = owner(world, expires_at=world.watch.time + 400.0)
    other = owner(world, project="q")
    with guarded(world, **OFTEN) as service, watching(service, key) as stream, watching(service, other) as going_on:
        going_on.until(ALIVE * 3)
        stream.until(ALIVE * 3)

        def happen() -> None:
            event(world, key)
            world.watch.time += REMEMBERED_FOR

        service.call(happen)
        assert stream.until(b"0\r\n\r\n")
        if not world.registry.broken:
            going_on.until(ALIVE * (going_on.until(b"").count(ALIVE) + 3))
            assert len(service.service.events) == 1


def test_a_stream_that_has_much_to_tell_ends_as_well() -> None:
    """A4: it is looked at by time, not only when nothing happens."""
    world = World()
    key = owner(world)
    with guarded(world, heartbeat=0.5) as service, watching(service, key) as stream:

        def talk() -> None:
            service.service.events.publish("p", "acquired", key="k")
            if len(service.service.events):
                service.loop.call_later(0.02, talk)

        service.call(talk)
        service.call(lambda: revoked(world, key))
        world.watch.time += REMEMBERED_FOR
        assert b": alive" not in stream.until(b"0\r\n\r\n")


def test_a_budget_that_is_used_up_ends_no_stream() -> None:
    """A2: it is no change of rights; the stream goes on."""
    world = World(budgets=Budgets(requests=Budget(2, 3600.0)))
    with guarded(world, **OFTEN) as service, watching(service, owner(world)) as stream:
        stream.until(ALIVE * 6)
        assert send(service.port, "/v1/locks/status?key=k", key=owner(world).text).status == 429


def test_the_head_of_a_stream_cannot_be_asked_for() -> None:
    """9: HEAD of what has no end takes no stream; the answer names what can be asked."""
    with running(max_event_streams=1) as service:
        for _ in range(2):
            answer = ask(service.port, "/v1/events", method="HEAD")
            assert (answer.status, answer.headers["allow"]) == (405, "GET")
        assert len(service.service.events) == 0
        assert ask(service.port, "/healthz", method="HEAD").status == 200
