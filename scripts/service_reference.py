"""The generated pages about the lock service: its settings, from their texts, and its API, from its description."""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import MISSING, fields
from types import SimpleNamespace
from typing import Any, cast

from leased.server import settings
from leased.server.app import App
from leased.server.openapi import describe
from leased.server.routes_manage import manage_routes
from leased.server.service import Service

SETTINGS_INTRODUCTION = """\
Each can be given in the environment of `leased serve`, as `LEASED_SERVE_` and its name in capitals; some have
[an option](cli.md#leased-serve) as well, which then counts. Times are seconds, or text such as `1m30s`; lists are
separated by commas."""
API_INTRODUCTION = """\
Bodies are JSON and say so (`Content-Type: application/json`); times are whole milliseconds. Where the service has
credentials each request carries one as `Authorization: Bearer …`. `GET /openapi.json` gives this page to programs.
Contention is an answer, not an error. An error is a problem document with a stable `code`: see [errors](errors.md)."""

_TITLES = {
    400: "cannot work",
    401: "no valid credential",
    403: "not allowed",
    409: "request id in use",
    413: "too long",
    415: "no JSON",
    421: "wrong host",
    429: "too many",
    503: "no answer from the store",
}


def service_settings_page() -> str:
    """Every setting with its default and its text."""
    (kind,) = [node for node in ast.parse(inspect.getsource(settings.Settings)).body if isinstance(node, ast.ClassDef)]
    texts = {
        node.target.id: " ".join(below.value.value.split())
        for node, below in zip(kind.body, kind.body[1:], strict=False)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }
    lines = ["| setting | default | meaning |", "| --- | --- | --- |"]
    for one in fields(settings.Settings):
        default = "" if one.default is MISSING else _shown(one.default)
        lines.append(f"| `{one.name}` | {default} | {texts[one.name]} |")
    return "\n\n".join(["# Settings of the lock service", SETTINGS_INTRODUCTION, "\n".join(lines)])


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return _shown(",".join(value))
    text = f"{value:g}" if isinstance(value, float) and value < 1e6 else f"{value}"
    return f"`{text}`" if text else "none"


def service_api_page() -> str:
    """Every route with its parameters, its body, and what it answers."""
    nothing: Any = SimpleNamespace(registry=None, hasher=None, wall=None)
    app = App(Service(settings.Settings(store="memory:described")), further=manage_routes(cast("Any", nothing)))
    document = describe(app.routes, version="", open_to_all=False)
    schemas = document["components"]["schemas"]
    sections = [
        "\n\n".join(_route(method.upper(), path, operation, schemas=schemas))
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return "\n\n".join(["# API of the lock service", API_INTRODUCTION, *sections])


def _route(method: str, path: str, operation: dict[str, Any], *, schemas: dict[str, Any]) -> Iterator[str]:
    yield f"## {method} {path}"
    if "requestBody" not in operation:
        yield f"{operation['summary']}."
    parameters = operation.get("parameters")
    if parameters:
        rows = [f"| `{one['name']}` | {one['description']} |" for one in parameters]
        yield "\n".join(["| parameter | meaning |", "| --- | --- |", *rows])
    body = operation.get("requestBody")
    if body:
        yield _members(body["content"]["application/json"]["schema"], title="body", schemas=schemas)
    (media, answer), *_ = operation["responses"]["200"]["content"].items()
    shown = _members(answer["schema"], title="answer", schemas=schemas)
    yield shown or f"The answer is `{media}`."
    others = [status for status in operation["responses"] if status != "200"]
    yield f"Otherwise: {', '.join(f'{status} {_TITLES[int(status)]}' for status in others)}."


def _members(schema: dict[str, Any], *, title: str, schemas: dict[str, Any]) -> str:
    named = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
    required = set(named.get("required", ()))
    rows = []
    for name, one in named.get("properties", {}).items():
        needed = "" if name in required else " (may be missing)"
        rows.append(f"| `{name}` | {_type(one)}{needed} | {one.get('description', '')} |")
    if not rows:
        return ""
    head = [f"| {title} | type | meaning |", "| --- | --- | --- |", *rows]
    text = named.get("description", "")
    return "\n".join([f"{text}\n", *head] if text else head)


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    bounds = [str(schema[name]) for name in ("minimum", "maximum") if name in schema]
    sizes = [str(schema[name]) for name in ("minLength", "maxLength") if name in schema]
    if len(bounds) == 2:
        return f"{kind}, {bounds[0]} to {bounds[1]}"
    return f"{kind}, {' to '.join(sizes)} characters" if len(sizes) == 2 else kind
