"""One Valkey, whole or broken, that keeps every answer: nothing may be lost, and nothing is excused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from nemesis.history import Recorder
from nemesis.stage import Scenario, Stage, broken
from tests.servers import valkey
from tests.servers.process import Server
from tests.servers.valkey import client_of


@contextmanager
def _whole() -> Iterator[Stage]:
    with valkey.start(settings=valkey.append_only("always")) as server:
        yield Stage(server.url)


@contextmanager
def _broken() -> Iterator[Stage]:
    with valkey.start(settings=valkey.append_only("always")) as server:

        def stall(recorder: Recorder, chance: Random) -> None:
            pause(server, recorder, seconds=chance.uniform(0.1, 3.0))

        def crash(recorder: Recorder, chance: Random) -> None:
            kill_and_restart(server, recorder, down=chance.uniform(0.0, 2.0))

        def forget_scripts(recorder: Recorder, chance: Random) -> None:
            with broken(recorder, "scripts flushed", hurts=False), client_of(server.place) as client:
                client.script_flush()

        def cut(recorder: Recorder, chance: Random) -> None:
            with broken(recorder, "connections killed"), client_of(server.place) as client:
                client.execute_command("CLIENT", "KILL", "TYPE", chance.choice(("normal", "pubsub")))

        yield Stage(server.url, (stall, crash, forget_scripts, cut))


def pause(server: Server, recorder: Recorder, *, seconds: float) -> None:
    """Stop a server for so long."""
    with broken(recorder, f"paused for {seconds:.1f} s"):
        server.pause()
        time.sleep(seconds)
        server.resume()


def kill_and_restart(server: Server, recorder: Recorder, *, down: float) -> None:
    """Kill a server that keeps every answer, and start it again after so many seconds."""
    with broken(recorder, f"killed and restarted after {down:.1f} s"):
        server.kill()
        time.sleep(down)
        server.start()


SCENARIOS = (
    Scenario("redis-workers", "one Valkey, while workers are stopped and killed", _whole),
    Scenario(
        "redis-server",
        "one Valkey that keeps every answer, paused, killed, restarted and cut off",
        _broken,
        {"faults": 8, "unknown outcomes": 3},
    ),
)
