"""The store of etcd: each operation is one transaction of its JSON gateway on the revision of one key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leased.stores._cas_clock import ClientClock
from leased.stores._cas_store import CasStore
from leased.stores._drivers import driver
from leased.stores._etcd_feed import connect_feed
from leased.stores._etcd_link import Link
from leased.stores._etcd_shelf import EtcdShelf
from leased.stores._etcd_url import place_of, read_address
from leased.stores._push import listener
from leased.stores._standing import Standing

if TYPE_CHECKING:
    from leased.targets import Face, Options

__all__ = ["open", "place_of"]


def open(url: str, *, face: Face, options: Options) -> CasStore:  # noqa: A001 (as every store module)
    """The store on the cluster that the URL names; nothing is opened yet. Raises `InvalidRequest` for a wrong URL."""
    driver("httptools", extra="etcd")
    address = read_address(url, options)
    wall = ClientClock(options.clock, options, shown=address.shown)
    standing = Standing(options, shown=address.shown)
    shelf = EtcdShelf(
        Link(address, face=face, options=options, wall=wall, standing=standing),
        address,
        namespace=options.namespace,
        clock=options.clock,
        listener=listener(address.listening, lambda: connect_feed(address), name=address.shown),
    )
    return CasStore(shelf, mode=face, wall=wall, options=options, standing=standing, old=shelf.old)
