"""The whole described interface of a real service with credentials, under all phases of schemathesis."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.proof.credentials import Credentials
from tests.servers import lock_service
from tests.servers.fixtures import started
from tests.servers.process import Server

SOAK = bool(os.environ.get("LEASED_SOAK"))
EXAMPLES = 200 if SOAK else 2
PATIENCE = 3600 if SOAK else 300
ENDLESS = "/v1/events"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
# Whoever may do everything goes through all of it; of the others each operation is tried.
CALLERS = {
    "owner": "examples,coverage,fuzzing,stateful",
    "member": "fuzzing",
    "service": "fuzzing",
    "stranger": "fuzzing",
}


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    return Credentials(tmp_path_factory.mktemp("registry"))


@pytest.fixture(scope="module")
def service(credentials: Credentials) -> Iterator[Server]:
    settings = {**credentials.settings(plenty=True), "max_wait_slice": "0.05"}  # a wait may be of any length
    with started(lock_service.start, settings=settings) as server:
        yield server


@pytest.mark.parametrize("who", CALLERS)
def test_no_request_is_a_fault_or_answered_in_another_way(
    service: Server, credentials: Credentials, who: str, tmp_path: Path
) -> None:
    """SEC12, V2: good and bad requests to every operation, from callers with and without rights: no 5xx, and no status,
    type, header or body that the description does not have."""
    options = ["--phases", "examples,coverage,fuzzing,stateful" if SOAK else CALLERS[who]]
    options += ["--max-examples", str(EXAMPLES), "--exclude-path", ENDLESS, "--checks", ",".join(CHECKS)]
    options += ["--generation-deterministic", "--request-timeout", "20", "--no-color"]
    for name, value in credentials.headers(who).items():
        if name == "Authorization":
            options += ["--header", f"{name}: {value}"]
    done = subprocess.run(
        [str(Path(sys.executable).with_name("schemathesis")), "run", f"{service.url}/openapi.json", *options],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "0 generated" not in done.stdout
    assert "generated" in done.stdout
    assert service.running
    assert "Traceback" not in service.log, service.log[-4000:]
