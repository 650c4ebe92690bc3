"""DynamoDB for tests: dynalite from npm, which decides races as the real one, and moto, which knows more of its API."""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Literal

from tests.servers.found import dynalite_program, moto_found, node_program
from tests.servers.process import Place, Recipe, Server

Program = Literal["dynalite", "moto"]

REGION = "eu-central-1"
_GOES_ON = Path(__file__).with_name("dynalite_goes_on.cjs")
PATIENCE = 5.0
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIATESTS",
    "AWS_SECRET_ACCESS_KEY": "a secret of tests",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
"""What a program needs in its environment to ask these servers, and nothing else."""

# One request at a time: with threads it grants a condition twice.
_MOTO = """
import sys
from werkzeug.serving import run_simple
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
run_simple(sys.argv[1], int(sys.argv[2]), DomainDispatcherApplication(create_backend_app), threaded=False)
"""


def start(program: Program = "dynalite") -> Server:
    """A running server without tables."""
    return Server(recipe(program))


def recipe(program: Program) -> Recipe:
    """How to run one."""
    if program == "dynalite":
        node, script = str(node_program()), str(dynalite_program())
    else:
        moto_found()

    def command(place: Place) -> list[str]:
        if program == "moto":
            return [sys.executable, "-c", _MOTO, place.host, str(place.port)]
        quick = ["--createTableMs", "0", "--deleteTableMs", "0", "--updateTableMs", "0"]
        return [node, "--require", str(_GOES_ON), script, "--host", place.host, "--port", str(place.port), *quick]

    return Recipe(
        kind=program,
        command=command,
        url=lambda place: f"dynamodb://{place.host}:{place.port}/leased?leased_region={REGION}",
        wall_clock=_time_of,
        answers=_answers,
        environment=lambda _: {"PATH": os.environ.get("PATH", "")},
    )


@contextmanager
def credentials() -> Iterator[None]:
    """What asks these servers needs, in the environment of this process."""
    before: Mapping[str, str | None] = {name: os.environ.get(name) for name in CREDENTIALS}
    os.environ.update(CREDENTIALS)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def ask(server: Server | Place, operation: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the server answers to one operation, whoever asks."""
    answer, _ = _exchange(server, operation, given)
    return answer


def _exchange(server: Server | Place, operation: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    fields = {
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": f"DynamoDB_20120810.{operation}",
        "X-Amz-Date": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()),
        "Authorization": "AWS4-HMAC-SHA256 Credential=AKIATESTS/20260101/eu-central-1/dynamodb/aws4_request, "
        "SignedHeaders=host;x-amz-date, Signature=0",
    }
    connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE)
    try:
        connection.request("POST", "/", json.dumps(given), fields)
        answer = connection.getresponse()
        return json.loads(answer.read()), answer.headers.get("Date", "")
    finally:
        connection.close()


def _time_of(place: Place) -> float:
    return parsedate_to_datetime(_exchange(place, "ListTables", {})[1]).timestamp()


def _answers(place: Place, _pid: int) -> bool:
    try:
        return "TableNames" in ask(place, "ListTables", {})
    except (OSError, ValueError):
        return False


def rows(server: Server, table: str = "leased") -> list[dict[str, Any]]:
    """All items of a table."""
    return list(ask(server, "Scan", {"TableName": table, "ConsistentRead": True}).get("Items", []))
