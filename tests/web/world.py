"""A real service, the browser that looks at its dashboard, and those who use its locks meanwhile. It judges nothing."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from leased.wire_batch import MOST_OPERATIONS
from tests.server.talking import JSON, Caller, ask, until

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
PATIENCE = 30.0

# Nothing of the browser asks anybody but the service.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--js-flags=--expose-gc",
)


def needed(path: str | Path | None, *, what: str, command: str) -> str:
    """The path; where there is none, the test is skipped with the command that brings it, or fails with CI=true."""
    if path is not None and Path(path).exists():
        return str(path)
    message = f"{what} is not installed; run: {command}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def module(name: str) -> str:
    """A file below `web/node_modules`."""
    return needed(WEB / "node_modules" / name, what=name.partition("/")[0], command="npm ci --prefix web")


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser with a fresh profile."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    found = needed(program, what="chromium", command="sudo sh scripts/servers.sh")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass(slots=True)
class Look:
    """A page of the dashboard, and all that its console complained of."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)

    def open(self, place: str = "locks") -> Page:
        """Go to a view, by what stands after the `#/`."""
        self.page.goto(f"{self.url}/ui/#/{place}")
        return self.page

    def hear(self, message: ConsoleMessage) -> None:
        """Keep what the console says, but for answers that are refusals: each is a line of it."""
        if message.type in {"error", "warning"} and "the server responded with a status of" not in message.text:
            self.complaints.append(message.text)


@contextmanager
def looking(browser: Browser, url: str, *, width: int = 1280, height: int = 800, **more: Any) -> Iterator[Look]:
    """A page with nothing of any other; at its end nothing may have gone wrong in it."""
    context = browser.new_context(viewport={"width": width, "height": height}, **more)
    context.set_default_timeout(PATIENCE * 1000)
    page = context.new_page()
    look = Look(page, url)
    page.on("console", lambda message: look.hear(message))
    page.on("pageerror", lambda error: look.complaints.append(str(error)))
    page.on("dialog", lambda dialog: look.complaints.append(f"a dialog: {dialog.message}"))
    try:
        yield look
    finally:
        context.close()
    assert not look.complaints


@dataclass(frozen=True, slots=True)
class Serving:
    """A service in a process of its own, at `url`; with the API key of an owner, where it asks for credentials."""

    url: str
    process: subprocess.Popen[str]
    owner: str

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    def headers(self, credential: str = "") -> dict[str, str]:
        """Those of a caller who is no browser."""
        return {**JSON, **({"authorization": f"Bearer {credential}"} if credential else {})}

    def ask(self, path: str, body: Any = None, *, credential: str = "") -> Any:
        """What the service answers to that."""
        answer = ask(self.port, path, body, headers=self.headers(credential))
        assert answer.status == 200, answer.body
        return answer.json

    def take(self, key: str, *, credential: str = "", **more: Any) -> Any:
        """Take a key, which must be free."""
        body = {"key": key, "ttlMs": 600_000, **more}
        granted = self.ask("/v1/locks/acquire", body, credential=credential)
        assert granted["acquired"], granted
        return granted

    def take_many(self, keys: Sequence[str], **more: Any) -> dict[str, str]:
        """Take all these keys; the token of each."""
        tokens: dict[str, str] = {}
        for first in range(0, len(keys), MOST_OPERATIONS):
            some = keys[first : first + MOST_OPERATIONS]
            members = [{"operation": "acquire", "key": key, "ttlMs": 600_000, **more} for key in some]
            outcomes = self.ask("/v1/locks/batch", {"operations": members})["outcomes"]
            tokens |= {key: outcome["token"] for key, outcome in zip(some, outcomes, strict=True)}
        return tokens

    def release(self, key: str, token: str, *, credential: str = "") -> None:
        """Give it back."""
        self.ask("/v1/locks/release", {"key": key, "token": token}, credential=credential)

    def release_many(self, tokens: Mapping[str, str]) -> None:
        """Give all these back, but for those that have ended meanwhile."""
        members = [{"operation": "release", "key": key, "token": token} for key, token in tokens.items()]
        for first in range(0, len(members), MOST_OPERATIONS):
            answer = self.ask("/v1/locks/batch", {"operations": members[first : first + MOST_OPERATIONS]})
            assert all("released" in outcome for outcome in answer["outcomes"]), answer

    def status(self, key: str, *, credential: str = "") -> Any:
        """What anyone may see of it."""
        return self.ask(f"/v1/locks/status?key={key}", credential=credential)

    @contextmanager
    def waiting(self, key: str, number: int, *, credential: str = "") -> Iterator[list[Caller]]:
        """So many callers who wait for a key, each in a connection of his own, in order."""
        before = self.status(key, credential=credential)["waiters"]
        with ExitStack() as closing:
            callers = []
            for place in range(number):
                metadata = {"host": f"app-{place % 4}", "pid": 100 + place, "program": "billing.py"}
                body = {"key": key, "ttlMs": 60_000, "waitMs": 600_000, "owner": f"waiter-{place:02}"}
                body["metadata"] = metadata
                caller = Caller(self.port, "/v1/locks/acquire", body, headers=self.headers(credential))
                closing.callback(caller.reset)
                callers.append(caller)
                wanted = before + place + 1
                until(lambda wanted=wanted: self.status(key, credential=credential)["waiters"] == wanted)  # type: ignore[misc]
            yield callers

    @contextmanager
    def changing(self, number: int, *, pause: float = 0.002) -> Iterator[None]:
        """So many keys that are taken and given back all the time."""
        over = threading.Event()
        chance = random.Random(7)
        held: dict[str, str] = {}

        def change() -> None:
            while not over.wait(pause):
                key = f"busy:{chance.randrange(number):04}"
                token = held.pop(key, None)
                if token is None:
                    held[key] = self.take(key, ttlMs=chance.choice((5_000, 30_000)), owner="batch")["token"]
                else:
                    self.release(key, token)

        held |= self.take_many([f"busy:{place:04}" for place in range(number)], ttlMs=30_000, owner="batch")
        thread = threading.Thread(target=change, name="traffic")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(PATIENCE)
            self.release_many(held)

    def credential(self, kind: str, name: str, **more: Any) -> str:
        """A new API key of the project `shop`."""
        made = self.ask("/v1/credentials", {"kind": kind, "name": name, **more}, credential=self.owner)
        key: str = made["key"]
        return key


def environment(directory: Path, **more: str) -> dict[str, str]:
    """Of a command that finds this checkout, and nothing of the user's."""
    path = os.environ.get("PYTHONPATH", str(ROOT / "src"))
    return {"PATH": os.environ["PATH"], "HOME": str(directory), "PYTHONPATH": path, "PYTHONWARNINGS": "error", **more}


def first_key(registry: Path) -> str:
    """An owner's, made by the command, with the registry."""
    given = ("--project", "shop", "--kind", "member", "--name", "first", "--role", "owner", "--json")
    made = subprocess.run(
        [sys.executable, "-m", "leased", "keys", "create", "--registry", str(registry), *given],
        env=environment(registry.parent),
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    key: str = json.loads(made.stdout)["key"]
    return key


@contextmanager
def serving(
    directory: Path, *, ui: str = "act", registry: bool = False, store: str = "memory:", **settings: str
) -> Iterator[Serving]:
    """`leased serve` on a free port. `settings`: of the service, by their names in capitals."""
    options = ["--store", store, "--port", "0", "--ui", ui]
    owner = ""
    if registry:
        owner = first_key(directory / "registry.db")
        options += ["--registry", str(directory / "registry.db")]
        settings = {"PROJECT_REQUESTS": "1000000", "MEMBER_ATTEMPTS": "1000000", **settings}
    chosen = {f"LEASED_SERVE_{name}": value for name, value in {"MAX_WAIT_SLICE": "600", **settings}.items()}
    process = subprocess.Popen(
        [sys.executable, "-m", "leased", "serve", *options],
        stderr=subprocess.PIPE,
        env=environment(directory, **chosen),
        cwd=directory,
        text=True,
    )
    assert process.stderr is not None
    said: list[str] = [process.stderr.readline()]
    found = re.search(r"serves (\S+)", said[0])
    reading = threading.Thread(target=lambda: said.extend(process.stderr or ()), name="said", daemon=True)
    reading.start()
    try:
        assert found is not None, said
        until(lambda: ask(int(found[1].rpartition(":")[2]), "/readyz").status == 200, what="a ready service")
        yield Serving(found[1], process, owner)
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()
            reading.join(PATIENCE)
            process.stderr.close()
    assert not [line for line in said if "fault" in line or "Traceback" in line], said
