"""Shows what a crowd costs: many processes of many tasks each that wait for one key, first idle, then served.

    python scripts/crowd.py [--processes 5] [--waiters 1000] [--seconds 5]

It starts its own server, counts what comes to it while somebody else holds the key and while it goes from one waiter to
the next, and prints that with the load of the machine.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import leased
from bench import servers
from bench.contender import ROOT, clean_environment
from leased import aio

TTL = 600.0
PATIENCE = 3_600.0


async def wait_for_it(url: str, waiters: int) -> None:
    """A worker: so many tasks that want the key. It tells when all stand in line, and at the end how many had it."""
    locks = aio.connect(url)
    served = 0

    async def want() -> None:
        nonlocal served
        async with locks.lock("wanted", ttl=TTL, wait=PATIENCE):
            served += 1

    tasks = [asyncio.ensure_future(want()) for _ in range(waiters)]
    while locks._client().env.lines.waiting("wanted") < waiters:
        await asyncio.sleep(0.05)
    print("waiting", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(json.dumps({"served": served, "resident": resident()}), flush=True)
    os._exit(0 if len(tasks) == waiters else 1)  # nobody has to be told: the server goes as well


def resident() -> int:
    """The bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def counted(client: Any, seconds: float) -> dict[str, float]:
    """What comes to the server in so many seconds: calls of scripts, and connections that are open."""

    def calls() -> float:
        stats = client.info("commandstats")
        return float(sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval")))

    before, began = calls(), time.monotonic()
    time.sleep(seconds)
    return {
        "calls": (calls() - before) / (time.monotonic() - began),
        "connections": client.info("clients")["connected_clients"] - 1,
    }


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--waiters", type=int, default=1_000, help="in each process")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--worker", metavar="URL", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        asyncio.run(wait_for_it(given.worker, given.waiters))
        return
    print(f"{given.processes} processes of {given.waiters:,} waiters; load before: {os.getloadavg()[0]:.1f}")
    from redis import Redis

    with ExitStack() as stack:
        url = stack.enter_context(servers.redis())
        client = stack.enter_context(Redis.from_url(url))
        locks = stack.enter_context(leased.connect(url))
        held = locks.lock("wanted", ttl=TTL).acquire()
        command = [sys.executable, __file__, "--worker", url, "--waiters", str(given.waiters)]
        environment = {**clean_environment(), "PYTHONPATH": str(ROOT / "src")}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        workers: list[subprocess.Popen[str]] = [
            subprocess.Popen(command, env=environment, **pipes) for _ in range(given.processes)
        ]
        for worker in workers:
            stack.callback(worker.kill)
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "waiting\n"
        idle = counted(client, given.seconds)
        held.release()
        busy = counted(client, given.seconds)
        told = [json.loads(worker.communicate("\n")[0]) for worker in workers]
    served = sum(one["served"] for one in told)
    print(f"while the key is held: {idle['calls']:.1f} calls a second, {idle['connections']} connections")
    print(f"then: {served:,} were served, with {busy['calls'] * given.seconds / max(served, 1):.1f} calls each")
    print(f"memory: {max(one['resident'] for one in told) / 1e6:.0f} MB a process; load: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
