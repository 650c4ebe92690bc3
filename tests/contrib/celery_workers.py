"""A real Celery worker for tests: started, ended, killed, sent tasks and asked for what became of them."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.servers.process import Server

ROOT = Path(__file__).parents[2]


class Workers:
    """A worker of one pool, the application to send tasks by, and what the tasks wrote."""

    def __init__(self, server: Server, lines: Path, *, pool: str, store: str | None = None) -> None:
        self.url = f"redis://{server.host}:{server.port}"
        self._lines = lines
        lines.touch()
        command = [sys.executable, "-m", "celery", "-A", "tests.contrib.celery_app", "worker", "--pool", pool]
        command += ["--concurrency", "4", "--loglevel", "WARNING", "--without-gossip", "--without-mingle"]
        given = {"TEST_REDIS": self.url, "TEST_LINES": str(lines), "PYTHONWARNINGS": ""}
        given |= {} if store is None else {"TEST_STORE": store}
        self._start = functools.partial(subprocess.Popen, command, cwd=ROOT, env={**os.environ, **given})
        self.program = self._start()

    def start(self) -> None:
        """Start another worker in place of the one that has ended."""
        assert self.program.poll() is not None
        self.program = self._start()

    def deliver_again(self) -> None:
        """What Celery's client of the broker does by itself once a worker was silent for the `visibility_timeout`."""
        app = self._app()
        app.conf.broker_transport_options = {"visibility_timeout": 0}
        with app.connection_for_write() as connection:
            connection.default_channel.qos.restore_visible()

    def revoke(self, task_id: str, *, signal_name: str | None = None) -> None:
        """Cancel a task: before it has begun, or by a signal in the middle."""
        kill = {"terminate": True, "signal": signal_name} if signal_name else {}
        self._app().control.revoke(task_id, **kill)

    def send(self, task: str, *args: Any) -> str:
        """Send a task; its id."""
        return str(self._app().send_task(f"tests.contrib.celery_app.{task}", args).id)

    def result(self, task_id: str) -> Any:
        """What a task gave, or raised."""
        return self._app().AsyncResult(task_id).get(timeout=60)

    def lines(self) -> list[list[str]]:
        """What the tasks wrote."""
        return [line.split() for line in self._lines.read_text().splitlines()]

    def close(self) -> None:
        """End the worker and its children."""
        self.program.terminate()
        try:
            self.program.wait(20)
        except subprocess.TimeoutExpired:
            self.program.kill()
            self.program.wait()

    def _app(self) -> Any:
        from celery import Celery  # type: ignore[import-untyped]

        if not hasattr(self, "_made"):
            self._made = Celery("tests", broker=f"{self.url}/7", backend=f"{self.url}/8")
        return self._made
