"""One Valkey, whole or broken: what it keeps may not be lost, and what it says that it may lose is excused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from nemesis.checks.liveness import LONGEST_TTL
from nemesis.hand import LONGEST_HOLD
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


@contextmanager
def _forgetful() -> Iterator[Stage]:
    with valkey.start() as server:

        def crash(recorder: Recorder, chance: Random) -> None:
            with broken(recorder, "killed and restarted with nothing", loses=True) as fault:
                server.kill()
                fault.gone()
                time.sleep(chance.uniform(0.0, 1.0))
                server.start()

        yield Stage(server.url, (crash,))


@contextmanager
def _worsened() -> Iterator[Stage]:
    with valkey.start(settings=valkey.append_only("always")) as server:

        def worsen(recorder: Recorder, chance: Random) -> None:
            """An operator turns the file off; clients connect again, as they do now and then; then the server dies."""
            with broken(recorder, "settings made worse"), client_of(server.place) as client:
                client.config_set("appendonly", "no")
                client.execute_command("CLIENT", "KILL", "TYPE", "normal")
            time.sleep(
                LONGEST_HOLD + LONGEST_TTL
            )  # leases from before end, or were granted under a promise since broken
            with broken(recorder, "killed and restarted with what it had long ago", loses=True) as fault:
                server.kill()
                fault.gone()
                server.start()

        yield Stage(server.url, (worsen,))


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
    Scenario(
        "redis-memory",
        "one Valkey that keeps nothing, killed and restarted empty: fencing tokens rise all the same",
        _forgetful,
        {"fail-overs": 8, "grants lost to fail-over": 3, "unknown outcomes": 3},
    ),
    Scenario(
        "redis-settings",
        "one Valkey whose file is turned off while it runs, and which then dies",
        _worsened,
        {"fail-overs": 2, "grants lost to fail-over": 1},
    ),
)
