"""Two services over one Redis behind nginx: still exact while nginx retries and cuts, and while the services end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import leased
from tests.server.proof.workers import Worker, count_in, counting, keeping
from tests.server.talking import ask, until
from tests.servers import nginx
from tests.servers.process import Server

ROUNDS = 20 if os.environ.get("LEASED_SOAK") else 2
Start = Callable[..., Server]


def two_services(private_service: Start, store: Server, **settings: str) -> list[Server]:
    return [private_service(store=store.url, settings=settings) for _ in range(2)]


def counts_on(folder: Path, workers: list[Worker], *, by: int = 10) -> None:
    """Wait until the workers have counted further, or one has failed."""
    before = count_in(folder)
    until(
        lambda: count_in(folder) >= before + by or any(worker.process.poll() is not None for worker in workers),
        what="further counting",
    )
    assert all(worker.process.poll() is None for worker in workers), [
        worker.process.stderr.read() for worker in workers if worker.process.poll() and worker.process.stderr
    ]


def waiters(services: list[Server], key: str) -> int:
    return sum(int(ask(one.port, f"/v1/locks/status?key={key}").json["waiters"]) for one in services)


def test_a_rolling_restart_loses_no_lease_and_fails_no_waiter(
    private_valkey: Start, private_service: Start, private_nginx: Start, tmp_path: Path
) -> None:
    """V4, V6: both replicas end and come back under load, one after the other: who holds a key keeps it, who waits gets
    it in the end, and the count is exact."""
    services = two_services(private_service, private_valkey(), drain="5")
    url = private_nginx(*services).url
    with keeping(url) as holder, keeping(url) as waiter, counting(url, tmp_path, number=4) as workers:
        first, second = (holder, waiter) if _holds_first(holder, waiter) else (waiter, holder)
        until(lambda: waiters(services, "kept") == 1, what="the waiter")
        for _ in range(ROUNDS):
            for service in services:
                counts_on(tmp_path, workers)
                service.restart()
        counts_on(tmp_path, workers)
        assert second.process.poll() is None, second.process.communicate()
        first.end()
        assert second.line() == "holds"
        second.end()


def _holds_first(one: Worker, other: Worker) -> bool:
    """Whether it was the first of the two to say that it holds the key."""
    import select

    assert one.process.stdout is not None
    assert other.process.stdout is not None
    ready, _, _ = select.select([one.process.stdout, other.process.stdout], [], [], 30.0)
    assert len(ready) == 1, "both hold it, or none"
    assert ready[0].readline() == "holds\n"
    return ready[0] is one.process.stdout


@pytest.mark.parametrize("retries", [nginx.RETRIES, nginx.REPEATS], ids=["retries", "repeats"])
def test_killed_replicas_cost_no_exactness(
    private_valkey: Start, private_service: Start, private_nginx: Start, tmp_path: Path, retries: str
) -> None:
    """O6: a replica that is killed answers nobody: nginx and the clients ask the other one with the same token. Where
    nginx repeats what may have been done, a release is too, and looks like a loss to its caller; the count is right."""
    services = two_services(private_service, private_valkey())
    url = private_nginx(*services, retries=retries).url
    with counting(url, tmp_path, number=4, forgives=retries == nginx.REPEATS) as workers:
        for _ in range(ROUNDS):
            for service in services:
                counts_on(tmp_path, workers)
                service.kill()
                counts_on(tmp_path, workers, by=5)
                service.start()


def test_an_idle_limit_shorter_than_the_slices_costs_no_exactness(
    private_valkey: Start, private_service: Start, private_nginx: Start, tmp_path: Path
) -> None:
    """C165: nginx cuts every wait after a moment and sends it to the other service; the count stays exact."""
    services = two_services(private_service, private_valkey())
    url = private_nginx(*services, idle_limit=0.2, retries=nginx.REPEATS).url
    with counting(url, tmp_path, number=6, forgives=True) as workers:
        for _ in range(ROUNDS * 2):
            counts_on(tmp_path, workers)


@pytest.mark.real_clock
def test_a_wait_is_longer_than_the_idle_limit(
    private_valkey: Start, private_service: Start, private_nginx: Start
) -> None:
    """C165: the slices are shorter than the idle limit, so a wait far beyond it ends with the key, at its release."""
    services = two_services(private_service, private_valkey(), max_wait_slice="0.5")
    proxy = private_nginx(*services, idle_limit=1.0)
    with leased.connect(proxy.url) as locks, keeping(proxy.url) as waiter:
        held = locks.lock("kept", ttl=60).acquire()
        until(lambda: waiters(services, "kept") >= 1, what="the waiter")
        time.sleep(3.0)  # three times the idle limit
        assert waiters(services, "kept") >= 1
        assert waiter.process.poll() is None
        released_at = time.monotonic()
        assert held.release()
        assert waiter.line() == "holds"
        assert time.monotonic() - released_at < 5.0
        waiter.end()
    assert "timed out" not in proxy.log


def test_a_client_who_vanishes_behind_nginx_is_granted_nothing(
    private_valkey: Start, private_service: Start, private_nginx: Start
) -> None:
    """V3, C165: nginx closes its side when the client goes; the waiter leaves the line, and the key stays free."""
    services = two_services(private_service, private_valkey())
    url = private_nginx(*services).url
    with leased.connect(url) as locks, keeping(url) as waiter:
        held = locks.lock("kept", ttl=60).acquire()
        until(lambda: waiters(services, "kept") == 1, what="the waiter")
        waiter.process.kill()
        until(lambda: waiters(services, "kept") == 0, what="an empty line")
        assert held.release()
        with locks.lock("kept", ttl=60):
            pass
