"""The page of metrics names what a lock service really counts."""

import json
import re
import time
import urllib.request
from typing import Any

from tests.docs.pages import ROOT
from tests.server.running import Running, running
from tests.until import until

PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text()
COUNTED = re.compile(r'^leased_operations_total\{operation="([^"]+)",outcome="([^"]+)"\} \d+$', re.MULTILINE)


def ask(service: Running, operation: str, **body: Any) -> dict[str, Any]:
    """What the service answers to an operation on the key `k`."""
    request = urllib.request.Request(
        f"{service.url}/v1/locks/{operation}",
        json.dumps({"key": "k", **body}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def counted(service: Running) -> set[tuple[str, str]]:
    """The operations that are counted so far, each with what came of it."""
    with urllib.request.urlopen(f"{service.url}/metrics", timeout=20) as answer:
        return set(COUNTED.findall(answer.read().decode()))


def documented() -> set[tuple[str, str]]:
    """The pairs on the page."""
    rows = re.findall(r"^\| `([a-z-]+)` \| ((?:`[a-z_]+`(?:, )?)+) \|$", PAGE, re.MULTILINE)
    return {(operation, word) for operation, words in rows for word in re.findall(r"`([a-z_]+)`", words)}


def test_each_outcome_is_documented_and_can_be_had() -> None:
    """P3: a service that has seen everything counts the pairs of operation and outcome on the page, and no others."""
    with running() as service:
        token = ask(service, "acquire", ttlMs=60_000)["token"]
        assert ask(service, "acquire", ttlMs=60_000)["acquired"] is False
        for secret in (token, "0" * 32):
            ask(service, "renew", token=secret, ttlMs=60_000)
            ask(service, "look", token=secret)
        ask(service, "release", token="0" * 32)
        ask(service, "release", token=token)
        ask(service, "abandon", token="1" * 32)
        ask(service, "force-release")
        ask(service, "acquire", ttlMs=60_000)
        ask(service, "force-release")
        brief = ask(service, "acquire", ttlMs=150)
        gone = time.monotonic() + brief["leftMs"] / 1000
        until(lambda: time.monotonic() > gone)
        ask(service, "release", token=brief["token"])
        expected = documented()
        assert ("release", "expired") in expected
        until(lambda: counted(service) >= expected, what=f"{sorted(expected)}")
        assert counted(service) == expected
