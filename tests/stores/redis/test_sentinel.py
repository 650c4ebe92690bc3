"""The store behind sentinels: the contract, and a fail-over from the primary to its replica."""

import time
from collections.abc import Callable, Iterator

import pytest

from leased.errors import StoreUnavailable
from leased.model import Claim, Held, Lost
from leased.testing.contract import CHECKS, Check
from leased.testing.runner import run_check
from leased.testing.worlds import Async, Blocking, Face
from tests.contract.redis_places import redis
from tests.servers import valkey_groups
from tests.servers.fixtures import started
from tests.servers.valkey_groups import Group, master_of
from tests.stores.redis.conftest import TIMEOUT, Caller

WITHIN = 30.0


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    """A primary, a replica and three sentinels."""
    with started(valkey_groups.start_sentinels) as found:
        yield found


@pytest.fixture
def own_group() -> Iterator[Group]:
    """Another one, of this test alone."""
    with started(valkey_groups.start_sentinels) as found:
        yield found


@pytest.mark.parametrize("face", [Blocking(), Async()], ids=lambda face: face.name)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract(check: Check, face: Face, group: Group) -> None:
    """The store keeps this promise of the contract behind sentinels."""
    result = run_check(check, redis(face, lambda: group.url, name="redis-sentinel"))
    if result.error:
        raise result.error
    assert result.ok


def test_a_service_that_no_sentinel_knows_is_named(caller: Caller, group: Group) -> None:
    """A wrong service name is told as such, and nothing was applied."""
    store = caller.open(group.url.rpartition("/")[0] + "/nightly")
    with pytest.raises(StoreUnavailable, match="nightly") as caught:
        caller(store.status("key", timeout=TIMEOUT))
    assert caught.value.applied is False


def test_sentinels_that_are_away_are_passed_over(caller: Caller, group: Group) -> None:
    """One sentinel that can be reached is enough, in whatever place it stands."""
    places = group.url.partition("://")[2]
    store = caller.open(f"redis+sentinel://127.0.0.1:1,{places}")
    assert not caller(store.status("nobody's", timeout=TIMEOUT)).held


def test_the_assurance_says_that_fail_overs_lose(caller: Caller, group: Group) -> None:
    """S10: behind sentinels exclusion is promised until a fail-over."""
    store = caller.open(group.url)
    caller(store.status("key", timeout=TIMEOUT))
    assert store.assurance().exclusive == "until-failover"


def test_a_fail_over_is_followed_and_fencing_tokens_rise(caller: Caller, own_group: Group) -> None:
    """C103: after the primary died the store goes on with the promoted replica; the next fencing token is higher."""
    store = caller.open(own_group.url)
    before = caller.take(store, "key")
    primary = own_group.nodes[0]
    primary.kill()

    def granted() -> bool:
        try:
            found = caller(store.acquire(Claim("other", "token", 30.0), timeout=1.0))
        except StoreUnavailable:
            return False
        return isinstance(found, Held)

    _until(granted)
    assert master_of(own_group) == (own_group.nodes[1].host, own_group.nodes[1].port)
    caller(store.force_release("key", timeout=TIMEOUT))
    assert caller.take(store, "key", "next") > before
    renewed = caller(store.renew("key", "token", ttl=30.0, number=1, timeout=TIMEOUT))
    assert isinstance(renewed, Lost)


def _until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < give_up_at, "the sentinels promoted nobody"
        time.sleep(0.02)
