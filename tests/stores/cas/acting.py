"""What tests of compare-and-set ask of a client, in one line each."""

from __future__ import annotations

from leased.clocks import step
from leased.model import Claim, Contended, Held, Lease, Lost, Released, Status, Terms
from leased.stores._cas_shelf import Found
from tests.stores.cas.shelves import Client

TTL = 10.0
LIMIT = 5.0


def ask(
    client: Client, token: str, *, ttl: float = TTL, owner: str | None = None, delay: float = 0.0
) -> Held | Contended:
    """One attempt for the key."""
    claim = Claim("k", token, ttl, owner=owner, terms=Terms(lock_delay=delay))
    return step(client.store.acquire(claim, timeout=LIMIT))


def granted(client: Client, token: str, *, ttl: float = TTL, delay: float = 0.0) -> Lease:
    """One attempt, which must be granted."""
    answer = ask(client, token, ttl=ttl, delay=delay)
    assert isinstance(answer, Held), answer
    return answer.lease


def refused(client: Client, token: str, *, owner: str | None = None) -> None:
    """One attempt, which must not be granted."""
    assert isinstance(ask(client, token, owner=owner), Contended)


def renew(client: Client, token: str, *, number: int, ttl: float = TTL) -> Held | Lost:
    """One renewal."""
    return step(client.store.renew("k", token, ttl=ttl, number=number, timeout=LIMIT))


def look(client: Client, token: str) -> Held | Lost:
    """Whether the token holds the key."""
    return step(client.store.look("k", token, timeout=LIMIT))


def release(client: Client, token: str) -> Released:
    """One release."""
    return step(client.store.release("k", token, timeout=LIMIT))


def status(client: Client) -> Status:
    """What anyone may see of the key."""
    return step(client.store.status("k", timeout=LIMIT))


def crew(*ahead: float, takeover: str = "margin", skew_margin: float = 1.0) -> list[Client]:
    """Clients of the same keys, whose wall clocks are so many seconds ahead of the right time."""
    data: dict[str, Found] = {}
    clients = [Client(data, takeover=takeover, skew_margin=skew_margin) for _ in ahead]  # type: ignore[arg-type]
    for client, seconds in zip(clients, ahead, strict=True):
        set_wall(client, seconds)
    return clients


def set_wall(client: Client, seconds: float) -> None:
    """Set the wall clock of a client so far ahead of where it is."""
    client.clock.set_wall(client.clock.wall() + seconds)


def move(clients: list[Client], seconds: float) -> None:
    """Let time pass for all of them."""
    for client in clients:
        client.clock.move(seconds)
