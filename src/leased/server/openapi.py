"""The description of the interface (OpenAPI 3.1), made from the table of routes and its types. It serves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.json import schema_components

from leased.errors import AccessDenied, InvalidRequest, RateLimited, StoreUnavailable, Unauthenticated
from leased.server.answers import Problem
from leased.server.calls import Route

_REFERENCE = "#/components/schemas/{name}"
_PROBLEM = {"application/problem+json": {"schema": {"$ref": _REFERENCE.format(name="Problem")}}}

_INTRODUCTION = """\
Exclusive, expiring, fenced claims on named keys. Names are in camelCase, times whole milliseconds. Contention is an
answer (200 with `acquired: false`), not an error; errors are problem documents with a stable `code`. A token proves the
hold and is a secret; the fencing token is public, and rises with every grant of its key."""

_REFUSALS = {
    400: "It cannot work: the problem names what is wrong.",
    401: "No credential, or not a valid one.",
    403: "This caller may not.",
    409: "The request id belongs to another request.",
    413: "The body is too long.",
    415: "The body is no JSON, or does not say so.",
    421: "The service does not know the name it was called by.",
    429: "Too many requests, waiters or streams: `Retry-After` says when to come back.",
    503: "The store gave no answer, or the service is about to end: `applied` says what is known of the effect.",
}


def describe(routes: Sequence[Route], *, version: str, open_to_all: bool) -> dict[str, Any]:
    """The document for these routes."""
    kinds = {kind for route in routes for kind in (route.request, route.answer) if kind is not None}
    named = sorted(kinds | {Problem}, key=lambda kind: kind.__name__)
    _, components = schema_components(named, ref_template=_REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, open_to_all=open_to_all)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "leased",
            "version": version,
            "description": _INTRODUCTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": components},
    }
    if not open_to_all:
        document["components"]["securitySchemes"] = {"credential": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"credential": []}]
    return document


def _operation(route: Route, *, open_to_all: bool) -> dict[str, Any]:
    name = route.path.strip("/").replace("/", "-").replace("{", "").replace("}", "") or "root"
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}-{name}",
        "summary": route.summary,
        "responses": _responses(route, open_to_all=open_to_all),
    }
    if route.query:
        operation["parameters"] = [
            {
                "name": parameter,
                "in": "query",
                "description": meaning,
                "required": parameter in route.required,
                "schema": {"type": "string", **({"minLength": 1} if parameter in route.required else {})},
            }
            for parameter, meaning in route.query.items()
        ]
    if route.request is not None:
        schema = {"$ref": _REFERENCE.format(name=route.request.__name__)}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if not route.known:
        operation["security"] = []
    return operation


def _responses(route: Route, *, open_to_all: bool) -> dict[str, Any]:
    if route.answer is not None:
        schema = {"$ref": _REFERENCE.format(name=route.answer.__name__)}
        content: dict[str, Any] = {"application/json": {"schema": schema}}
    else:
        kind = "object" if route.media_type == "application/json" else "string"
        content = {route.media_type: {"schema": {"type": kind}}}
    responses: dict[str, Any] = {"200": {"description": "Answered.", "content": content}}
    for status in _refusals_of(route, open_to_all=open_to_all):
        responses[str(status)] = {"description": _REFUSALS[status], "content": _PROBLEM}
    return responses


def _refusals_of(route: Route, *, open_to_all: bool) -> list[int]:
    statuses = {InvalidRequest.http_status, StoreUnavailable.http_status, 421}
    if route.request is not None:
        statuses |= {409, 413, 415}
    if route.method != "GET":
        statuses.add(AccessDenied.http_status)  # to browsers that another place has sent
    if route.known or route.page:
        statuses.add(RateLimited.http_status)
    if not open_to_all or route.page:
        statuses |= {Unauthenticated.http_status, AccessDenied.http_status}
    return sorted(statuses)
