"""Locks in a table of Amazon DynamoDB: an item a key, conditional writes, the clients' clocks with a margin."""

from __future__ import annotations

from leased.stores._cas_clock import ClientClock
from leased.stores._cas_store import CasStore
from leased.stores._drivers import driver
from leased.stores._dynamodb_link import Link
from leased.stores._dynamodb_shelf import DynamoShelf
from leased.stores._dynamodb_table import Tables, schema_of
from leased.stores._dynamodb_url import place_of, read_table
from leased.stores._standing import Standing
from leased.targets import Face, Options

__all__ = ["open", "place_of", "schema"]


def open(url: str, *, face: Face, options: Options) -> CasStore:  # noqa: A001 (what every store module offers)
    """The store for this URL. Nothing is asked before its first use."""
    table = read_table(url, options)
    for name in ("botocore.session", "botocore.auth", "botocore.awsrequest", "httptools"):
        driver(name, extra="dynamodb")  # now, or the first call would have to do it within its time-out
    wall = ClientClock(options.clock, options, shown=table.shown)
    standing = Standing(options, shown=table.shown)
    link = Link(table, face=face, options=options, wall=wall)
    tables = Tables(table, link, options=options, standing=standing)
    shelf = DynamoShelf(link, tables, namespace=options.namespace, face=face, clock=options.clock)
    return CasStore(shelf, mode=face, wall=wall, options=options, standing=standing)


def schema(url: str, *, options: Options) -> str:
    """The commands that make the table."""
    return schema_of(read_table(url, options))
