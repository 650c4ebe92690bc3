"""What a server must be to keep a registry, and what is said where it is not."""

from collections.abc import Callable

import psycopg
import pytest

from leased.errors import StoreNotUsable, StoreUnavailable
from tests.server.access.registries import emptied, shared_registry
from tests.server.access.test_registry import credential, line
from tests.servers.process import Server


async def test_a_server_that_evicts_is_refused(private_valkey: Callable[..., Server]) -> None:
    """S6: a rule set that is evicted would let everybody in, and a key that was revoked could come back."""
    server = private_valkey(settings={"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"})
    registry = shared_registry(f"redis://{server.host}:{server.port}/0")
    with pytest.raises(StoreNotUsable, match="evicted"):
        await registry.add_credential(credential(), line())
    await registry.close()


async def test_a_server_without_memory_changes_nothing(private_valkey: Callable[..., Server]) -> None:
    """SEC14, S2: neither the change nor its line happens, and that is known."""
    server = private_valkey(settings={"maxmemory": "1mb", "maxmemory-policy": "noeviction"})
    registry = shared_registry(f"redis://{server.host}:{server.port}/0")
    with pytest.raises(StoreUnavailable) as caught:
        await registry.add_credential(credential(), line())
    assert (caught.value.applied, caught.value.retryable) == (False, True)
    assert await registry.credential("0" * 12) is None
    assert list(await registry.audit("p")) == []
    await registry.close()


async def test_a_server_that_forgets_is_warned_of(
    private_valkey: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    """S6: once, by name, and with what to set."""
    registry = shared_registry(emptied(private_valkey(), "valkey"))
    for _ in range(3):
        await registry.audit("p")
    await registry.close()
    assert caplog.text.count("appendfsync always") == 1


async def test_the_audit_log_only_grows(postgres_server: Server) -> None:
    """A5, SEC14: not even the owner of the table changes a line by a slip; what cannot be told is not changed."""
    url = emptied(postgres_server, "postgres")
    registry = shared_registry(url)
    await registry.add_credential(credential(), line("create"))
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in ("DELETE FROM {}", "UPDATE {} SET line = ''", "TRUNCATE {}"):
            with pytest.raises(psycopg.errors.RaiseException, match="only grows"):
                connection.execute(statement.format("leased_registry_audit").encode())
        connection.execute("ALTER TABLE leased_registry_audit ADD CHECK (line NOT LIKE '%revoke%')")
    with pytest.raises(StoreNotUsable):
        await registry.revoke(credential(), line("revoke"))
    found = await registry.credential("0" * 12)
    assert found is not None
    assert found.revoked_at is None
    await registry.close()


async def test_only_the_command_line_begins_a_registry(postgres_server: Server, valkey_server: Server) -> None:
    """S2: a service finds no registry on an empty server, and makes none."""
    for server, kind in ((postgres_server, "postgres"), (valkey_server, "valkey")):
        url = emptied(server, kind)
        service = shared_registry(url, begin=False)
        for _ in range(2):
            with pytest.raises(StoreNotUsable, match="there is no registry"):
                await service.credential("0" * 12)
        maker = shared_registry(url)
        await maker.add_credential(credential(), line())
        assert await service.credential("0" * 12) == credential()
        await maker.close()
        await service.close()


async def test_who_may_not_log_in_is_told_without_the_password(private_valkey: Callable[..., Server]) -> None:
    """SEC3: an error names the server and the next step, and no secret."""
    server = private_valkey(password="open-sesame")
    for login in ("", ":wrong-word@"):
        registry = shared_registry(f"redis://{login}{server.host}:{server.port}/0")
        with pytest.raises(StoreNotUsable) as caught:
            await registry.audit("p")
        assert "wrong-word" not in f"{caught.value} {caught.value.hint}"
        await registry.close()
