"""Locks in a bucket of NATS JetStream: each operation is one message, accepted if its key has not changed since."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from leased.stores._cas_clock import ClientClock
from leased.stores._cas_store import CasStore
from leased.stores._drivers import driver
from leased.stores._nats_bucket import settings
from leased.stores._nats_feed import connect_feed
from leased.stores._nats_link import Link
from leased.stores._nats_shelf import NatsShelf
from leased.stores._nats_url import place_of, read_address
from leased.stores._push import listener
from leased.stores._standing import Standing

if TYPE_CHECKING:
    from leased.targets import Face, Options

__all__ = ["open", "place_of", "schema"]


def open(url: str, *, face: Face, options: Options) -> CasStore:  # noqa: A001 (as every store module)
    """The store in the bucket that the URL names; nothing is opened yet. Raises `InvalidRequest` for a wrong URL."""
    address = read_address(url, options)
    driver("nats.aio.client", extra="nats")
    wall = ClientClock(options.clock, options, shown=address.shown)
    standing = Standing(options, shown=address.shown)
    shelf = NatsShelf(
        Link(address, face=face, options=options, wall=wall, standing=standing),
        namespace=options.namespace,
        clock=options.clock,
        listener=listener(address.listening, lambda: connect_feed(address), name=address.shown),
    )
    return CasStore(shelf, mode=face, wall=wall, options=options, standing=standing, old=shelf.old)


def schema(url: str, *, options: Options) -> str:
    """The settings of the stream below the bucket, as the command `nats stream add NAME --config FILE` reads them."""
    address = read_address(url, options)
    return json.dumps(settings(address, first=int(options.clock.wall() * 1e6)), indent=2) + "\n"
