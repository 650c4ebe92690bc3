"""DynamoDB that throttles, refuses, is another table or goes away; and the cases that users of it met."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import leased
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.model import Claim, Contended, Held, Released
from leased.testing.worlds import Driver
from tests.servers import dynamodb as servers
from tests.servers.process import Server
from tests.servers.proxy import Proxy
from tests.stores.dynamodb.between import between, error

TIMEOUT = 5.0
Make = Callable[..., Any]


def claim(key: str, *, ttl: float = 30.0) -> Claim:
    """A claim with a token of its own."""
    return Claim(key, secrets.token_hex(16), ttl)


@pytest.fixture
def key() -> str:
    """A key that nobody else uses."""
    return secrets.token_hex(8)


def test_what_was_throttled_is_asked_again(dynalite_server: Server, make: Make, driver: Driver, key: str) -> None:
    """C121: throttled requests were not done: with pauses they are sent again, within the time of the call."""
    left = 3

    def throttle(operation: str, _: dict[str, Any]) -> Any:
        nonlocal left
        if operation == "PutItem" and left:
            left -= 1
            return error("ProvisionedThroughputExceededException")
        return None

    with between(dynalite_server, throttle) as url:
        store = make(url)
        assert isinstance(driver.run(store.acquire(claim(key), timeout=TIMEOUT)), Held)
    assert not left


def test_throttling_that_does_not_end_says_that_nothing_was_done(
    dynalite_server: Server, make: Make, driver: Driver, key: str
) -> None:
    """C121, S2: the caller is back at its time, and knows that it holds nothing; nobody is said to hold the key."""

    def throttle(operation: str, _: dict[str, Any]) -> Any:
        return error("ThrottlingException", "slow down") if operation == "PutItem" else None

    with between(dynalite_server, throttle) as url:
        store = make(url)
        driver.run(store.status(key, timeout=TIMEOUT))
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="throttled: slow down") as caught:
            driver.run(store.acquire(claim(key), timeout=0.4))
        assert time.monotonic() - began < 3.0
        assert caught.value.applied is False


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("AccessDeniedException", "allow dynamodb:PutItem"),
        ("UnrecognizedClientException", "aws sts get-caller-identity"),
        ("InvalidSignatureException", "this machine's clock"),
        ("ValidationException", "leased schema URL"),
    ],
)
def test_what_will_not_change_is_not_usable(
    dynalite_server: Server, make: Make, driver: Driver, key: str, *, kind: str, hint: str
) -> None:
    """C121: refused credentials and rights are no contention and no outage, and what to do is said."""

    def refuse(operation: str, _: dict[str, Any]) -> Any:
        return error(kind) if operation == "PutItem" else None

    with between(dynalite_server, refuse) as url, pytest.raises(StoreNotUsable, match=hint):
        driver.run(make(url).acquire(claim(key), timeout=TIMEOUT))


def test_a_global_table_with_eventual_consistency_is_refused(
    dynalite_server: Server, make: Make, driver: Driver, key: str
) -> None:
    """Two regions could grant the same key there."""
    table = {"TableStatus": "ACTIVE", "Replicas": [{"RegionName": "eu-west-1"}]}

    def describe(operation: str, _: dict[str, Any]) -> Any:
        return (200, {"Table": table}) if operation == "DescribeTable" else None

    with between(dynalite_server, describe) as url:
        with pytest.raises(StoreNotUsable, match="eventual consistency"):
            driver.run(make(url).acquire(claim(key), timeout=TIMEOUT))
        table["MultiRegionConsistency"] = "STRONG"
        store = make(url)
        assert isinstance(driver.run(store.acquire(claim(key), timeout=TIMEOUT)), Held)
        assert "strong consistency" in " ".join(store.assurance().notes)


def test_who_may_not_ask_about_the_table_may_use_it(
    dynalite_server: Server, make: Make, driver: Driver, key: str
) -> None:
    """Without the right to `DescribeTable` locks work, and what they give is unknown."""

    def refuse(operation: str, _: dict[str, Any]) -> Any:
        return error("AccessDeniedException") if operation == "DescribeTable" else None

    with between(dynalite_server, refuse) as url:
        store = make(url)
        driver.run(make(dynalite_server.url).status(key, timeout=TIMEOUT))  # the table is there
        assert isinstance(driver.run(store.acquire(claim(key), timeout=TIMEOUT)), Held)
        assert not store.assurance().known


def test_another_table_is_refused(moto_server: Server, make: Make, driver: Driver, key: str) -> None:
    """A table with other keys is somebody else's: nothing is written there."""
    name = f"other-{key}"
    servers.ask(
        moto_server,
        "CreateTable",
        {
            "TableName": name,
            "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
            "BillingMode": "PAY_PER_REQUEST",
        },
    )
    with pytest.raises(StoreNotUsable, match="has the keys id"):
        driver.run(make(moto_server.url.replace("/leased?", f"/{name}?")).acquire(claim(key), timeout=TIMEOUT))
    assert servers.rows(moto_server, name) == []


@pytest.mark.parametrize("program", ["dynalite", "moto"])
def test_a_table_that_vanishes_is_made_again(
    request: pytest.FixtureRequest, make: Make, driver: Driver, key: str, *, program: str
) -> None:
    """What was in it is lost, and the next claim finds a new table; the clean-up by DynamoDB is asked for."""
    server: Server = request.getfixturevalue(f"{program}_server")
    name = f"mine-{key}"
    store = make(server.url.replace("/leased?", f"/{name}?"))
    first = driver.run(store.acquire(claim(key), timeout=TIMEOUT))
    servers.ask(server, "DeleteTable", {"TableName": name})
    second = driver.run(store.acquire(claim(key), timeout=TIMEOUT))
    assert isinstance(first, Held)
    assert isinstance(second, Held)
    assert second.lease.fencing_token > first.lease.fencing_token
    if program == "moto":
        described = servers.ask(server, "DescribeTimeToLive", {"TableName": name})
        assert described["TimeToLiveDescription"]["AttributeName"] == "forgetAt"


def test_an_expired_lease_is_taken_by_a_single_attempt(dynalite_server: Server, make: Make, driver: Driver) -> None:
    """C136: a fresh process makes one attempt, the margin (here 10 s) after the end of a dead holder's lease, and wins;
    before that the lease is not taken."""
    key = secrets.token_hex(8)
    crashed, fresh = make(dynalite_server.url), make(dynalite_server.url, skew_margin=10.0)
    driver.run(fresh.status(key, timeout=TIMEOUT))
    driver.run(crashed.acquire(claim(key, ttl=10.0), timeout=TIMEOUT))
    fresh.offset = 11.0
    assert isinstance(driver.run(fresh.acquire(claim(key), timeout=TIMEOUT)), Contended)
    fresh.offset = 22.0
    assert isinstance(driver.run(fresh.acquire(claim(key), timeout=TIMEOUT)), Held)


def test_a_record_is_kept_for_a_day_and_its_number_is_passed_without_it(
    dynalite_server: Server, make: Make, driver: Driver, key: str
) -> None:
    """C179, M4: DynamoDB is told to remove an item a day after its key opened, never before; once it has, the next
    grant is higher all the same."""
    store = make(dynalite_server.url)
    first = driver.run(store.acquire(claim(key, ttl=1_000.0), timeout=TIMEOUT))
    (item,) = [row for row in servers.rows(dynalite_server) if row["name"]["S"] == key]
    assert float(item["forgetAt"]["N"]) == pytest.approx(time.time() + 1_000.0 + 86_400.0, abs=60.0)
    name = {part: item[part] for part in ("namespace", "name")}
    servers.ask(dynalite_server, "DeleteItem", {"TableName": "leased", "Key": name})
    second = driver.run(store.acquire(claim(key), timeout=TIMEOUT))
    assert second.lease.fencing_token > first.lease.fencing_token


def test_losing_the_race_is_no_error(dynalite_server: Server) -> None:
    """C137: of twenty who wait for a key one after the other wins; no error of the driver comes through."""
    key = secrets.token_hex(8)
    errors: list[BaseException] = []
    tokens: list[int] = []

    def work() -> None:
        try:
            with leased.connect(dynalite_server.url) as locks, locks.lock(key, wait=60) as held:
                tokens.append(held.fencing_token)
        except BaseException as error:  # noqa: BLE001 (told below)
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 20


def test_a_renewal_that_succeeded_unnoticed_lets_the_next_one_succeed(
    dynalite_server: Server, make: Make, driver: Driver, proxy_to: Callable[[Server], Proxy], key: str
) -> None:
    """C045: our own lost write is no loss: the condition is the token, and the number goes on from the store's."""
    proxy = proxy_to(dynalite_server)
    store = make(proxy.url)
    asked = claim(key)
    driver.run(store.acquire(asked, timeout=TIMEOUT))
    proxy.lose_reply(containing=b"PutItem")
    with pytest.raises(StoreUnavailable) as caught:
        driver.run(store.renew(key, asked.token, ttl=30.0, number=1, timeout=0.5))
    assert caught.value.applied is None
    answer = driver.run(store.renew(key, asked.token, ttl=30.0, number=2, timeout=TIMEOUT))
    assert isinstance(answer, Held)
    assert answer.lease.renewal == 2
    assert driver.run(store.release(key, asked.token, timeout=TIMEOUT)) == Released()


def test_a_server_that_comes_back_is_used_again(
    private_dynamodb: Callable[..., Server], make: Make, driver: Driver
) -> None:
    """S4: killed and started again, without its data: a grant is refused meanwhile, then made, with a higher number."""
    server = private_dynamodb()
    store = make(server.url)
    first = driver.run(store.acquire(claim("k"), timeout=TIMEOUT))
    server.kill()
    with pytest.raises(StoreUnavailable) as caught:
        driver.run(store.acquire(claim("k2"), timeout=0.5))
    assert caught.value.applied is False
    server.start()
    second = driver.run(store.acquire(claim("k"), timeout=TIMEOUT))
    assert second.lease.fencing_token > first.lease.fencing_token


def test_no_credentials_are_said_at_once(
    dynalite_server: Server, make: Make, driver: Driver, monkeypatch: pytest.MonkeyPatch, *, key: str
) -> None:
    """Nothing is sent without them, and where they come from is said."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(StoreNotUsable, match="no AWS credentials were found.*AWS_PROFILE"):
        driver.run(make(dynalite_server.url).acquire(claim(key), timeout=TIMEOUT))
