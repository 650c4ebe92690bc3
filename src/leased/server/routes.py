"""The table of routes of the service: what can be asked, of which action it is, and who answers it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from hmac import compare_digest
from importlib.metadata import PackageNotFoundError, version

from leased import wire
from leased.errors import AccessDenied, LeasedError
from leased.server import events, metrics
from leased.server.answers import (
    AbandonAnswer,
    AcquireAnswer,
    BatchAnswer,
    Capabilities,
    ForceReleaseAnswer,
    Health,
    LookAnswer,
    Page,
    ReleaseAnswer,
    RenewAnswer,
    Status,
)
from leased.server.calls import DATA, Call, Handler, Route, Send, until_gone
from leased.server.locks import Admit
from leased.server.principals import Action
from leased.server.registry_names import sharing_of
from leased.server.requests import (
    MAX_BODY,
    AbandonRequest,
    AcquireRequest,
    BatchRequest,
    ForceReleaseRequest,
    LookRequest,
    ReleaseRequest,
    RenewRequest,
)
from leased.server.rights import may
from leased.server.service import Service
from leased.server.troubles import ServiceUnavailable
from leased.wire import Body
from leased.wire_batch import MOST_OPERATIONS


def routes_of(service: Service, *, admit: Admit) -> tuple[Route, ...]:
    """All routes over one service; `admit` lets a principal do something with a key, or raises."""
    return (
        *_lock_routes(service, admit=admit),
        *_reading_routes(service),
        *_watching_routes(service),
        *_health_routes(service),
    )


def _lock_routes(service: Service, *, admit: Admit) -> tuple[Route, ...]:
    locks = service.locks

    async def batch(call: Call) -> Body:
        return await locks.batch(call, admit=admit)

    rows: tuple[tuple[Action | None, str, Handler, type, type], ...] = (
        ("acquire", "Take a key", locks.acquire, AcquireRequest, AcquireAnswer),
        ("renew", "Set the end of a lease", locks.renew, RenewRequest, RenewAnswer),
        ("release", "End a lease", locks.release, ReleaseRequest, ReleaseAnswer),
        ("abandon", "Take a claim back", locks.release, AbandonRequest, AbandonAnswer),
        ("look", "See whether a token holds", locks.look, LookRequest, LookAnswer),
        ("force-release", "End a lease by force", locks.force_release, ForceReleaseRequest, ForceReleaseAnswer),
        (None, "Several operations", batch, BatchRequest, BatchAnswer),  # each is asked of the gate by itself
    )
    return tuple(
        Route(
            "POST",
            f"/v1/locks/{action or 'batch'}",
            summary,
            handler,
            action=action,
            request=request,
            answer=answer,
            asks="looks" if action == "look" else "changes",
        )
        for action, summary, handler, request, answer in rows
    )


def _reading_routes(service: Service) -> tuple[Route, ...]:
    locks, settings = service.locks, service.settings

    async def capabilities(call: Call) -> Body:
        return {
            "version": version_of_program(),
            "store": service.shown if may(call.principal, "manage") else None,
            "assurance": wire.write_assurance(await service.assurance()),
            "policies": service.policies.shown(call.principal),
            "limits": {"maxBodyBytes": MAX_BODY, "maxOperations": MOST_OPERATIONS},
            "authentication": not settings.open,
            "sharing": sharing_of(settings.registry),
        }

    return (
        Route(
            "GET",
            "/v1/locks/status",
            "What anyone may see of a key",
            locks.status,
            action="status",
            query={"key": "what is locked"},
            required=frozenset({"key"}),
            answer=Status,
        ),
        Route(
            "GET",
            "/v1/locks",
            "A page of the keys that are held or closed",
            locks.list,
            action="list",
            query={
                "prefix": "only keys that begin exactly like this",
                "after": "the last key of the page before",
                "limit": "the most keys of this page, 1 to 1000",
            },
            answer=Page,
        ),
        Route(
            "GET",
            "/v1/capabilities",
            "What this service gives and allows",
            capabilities,
            action="capabilities",
            answer=Capabilities,
        ),
    )


def _watching_routes(service: Service) -> tuple[Route, ...]:
    settings = service.settings

    async def show_metrics(call: Call, send: Send) -> int:
        wanted, shown = f"Bearer {settings.metrics_token}".encode(), call.shown if isinstance(call.shown, str) else ""
        if not settings.open and not (
            settings.metrics_token and compare_digest(shown.encode("latin-1", "replace"), wanted)
        ):
            raise AccessDenied("metrics are shown to nobody else", hint="see metrics_token among the settings")
        await service.journal.read()
        text = service.metrics.text().encode()
        headers = [(b"content-type", metrics.CONTENT_TYPE), (b"content-length", b"%d" % len(text)), *DATA]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text})
        return 200

    async def stream_events(call: Call, send: Send) -> int:
        await _stream(service, call, send)
        return 200

    return (
        Route(
            "GET",
            "/v1/events",
            "What happens to locks, as it happens",
            raw=stream_events,
            action="events",
            media_type="text/event-stream",
            endless=True,
        ),
        Route(
            "GET",
            "/metrics",
            "Counts, as Prometheus reads them",
            raw=show_metrics,
            known=False,
            media_type="text/plain",
        ),
    )


def _health_routes(service: Service) -> tuple[Route, ...]:
    async def healthz(_: Call) -> Body:
        return {"status": "ok"}

    async def readyz(_: Call) -> Body:
        if service.draining:
            raise ServiceUnavailable("the service is shutting down", applied=False)
        problem = await service.problem()
        if problem is not None:
            service.troubles.note(problem)
            raise ServiceUnavailable("the store does not answer", applied=False) from problem
        return {"status": "ready"}

    return (
        Route("GET", "/healthz", "Whether the process runs", healthz, known=False, answer=Health),
        Route("GET", "/readyz", "Whether locks can be had", readyz, known=False, answer=Health),
    )


async def _stream(service: Service, call: Call, send: Send) -> None:
    """Send events until the reader has gone, may not read them any more, or the service ends."""
    reader = service.events.open(call.principal.project)
    loop = asyncio.get_running_loop()
    ends = [loop.create_task(until_gone(call.receive)), loop.create_task(_until_unwelcome(service, call))]
    for end in ends:
        end.add_done_callback(lambda _: reader.leave())
    headers = [(b"content-type", events.CONTENT_TYPE), *DATA, (b"x-accel-buffering", b"no")]
    try:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with aclosing(service.events.stream(reader)) as parts:
            async for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        for end in ends:
            end.cancel()
        service.events.close(reader)


async def _until_unwelcome(service: Service, call: Call) -> None:
    """Return once the credential that opened a stream is not what it was: asked as often as the stream shows life."""
    while True:
        await asyncio.sleep(service.settings.heartbeat)
        try:
            if await service.gate.identify(call.shown, peer=call.peer) != call.principal:
                return
        except LeasedError:  # it has ended, or nobody knows whether it has
            return
        try:
            await service.gate.admit(call.principal, "events")
        except AccessDenied:
            return
        except LeasedError:  # a budget that is used up, or not known, changes no right
            continue


def version_of_program() -> str:
    """The version of leased that runs."""
    try:
        return version("leased")
    except PackageNotFoundError:
        return "unknown"
