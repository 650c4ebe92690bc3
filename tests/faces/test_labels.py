"""What metrics are labelled by: the declared name of a lock, never one of its keys."""

from tests.faces.world import World, block


async def test_labels_do_not_grow_with_keys(world: World) -> None:
    """C182, P3: events of a thousand keys carry one label, the lock's name; the key stands beside it, for logs."""
    for number in range(1_000):
        async with block(world.locks.lock(f"import:{number}", name="import")):
            pass
    assert {event.lock for event in world.events} == {"import"}
    assert len({event.key for event in world.events}) == 1_000
    assert all("token" not in event.data for event in world.events)
