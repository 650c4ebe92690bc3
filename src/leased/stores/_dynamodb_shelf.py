"""Keys in a table of DynamoDB: an item each, written under the condition that its version is still the one seen."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from leased.clocks import step
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.store import Clock, unwatched
from leased.stores._cas_shelf import NOTHING, Beaten, Changed, Found, Put, Version, Written
from leased.stores._dynamodb_link import Link, Refused, reading
from leased.stores._dynamodb_table import Tables
from leased.targets import Face

_MOST_READ = 100
"""Items of one batch read, as DynamoDB allows."""
_SIDE_BY_SIDE = 8
_LONGEST_PAGE = 1000


class DynamoShelf:
    """See `leased.stores._cas_shelf`. All keys of a namespace share a partition key, so that they can be listed in
    order; the sort key is the key itself. DynamoDB forgets by itself what is over, and tells nobody of changes."""

    def __init__(self, link: Link, tables: Tables, *, namespace: str, face: Face, clock: Clock) -> None:
        self._link = link
        self._tables = tables
        self._space = f"leased:{namespace}"
        self._face = face
        self._clock = clock

    async def get(self, keys: Sequence[str], *, timeout: float) -> Sequence[Found]:
        """See `Shelf`."""
        until = self._clock.now() + timeout
        if len(keys) == 1:
            answer = await self._ask("GetItem", {"Key": self._name(keys[0]), "ConsistentRead": True}, until, reads=True)
            with reading(self._tables):
                return [_found(answer.get("Item"))]
        found: dict[str, Found] = {}
        asked = list(dict.fromkeys(keys))
        while asked:
            part, asked = asked[:_MOST_READ], asked[_MOST_READ:]
            wanted = {"Keys": [self._name(key) for key in part], "ConsistentRead": True}
            answer = await self._ask_all({"RequestItems": {self._tables.name: wanted}}, until)
            with reading(self._tables):
                for item in answer.get("Responses", {}).get(self._tables.name, []):
                    found[item["name"]["S"]] = _found(item)
                left = answer.get("UnprocessedKeys", {}).get(self._tables.name, {}).get("Keys", [])
                asked += [name["name"]["S"] for name in left]
        return [found.get(key, NOTHING) for key in keys]

    async def put(self, puts: Sequence[Put], *, timeout: float) -> Sequence[Written | Beaten | StoreUnavailable]:
        """See `Shelf`. DynamoDB has no batch of conditional writes, so they go side by side."""
        until = self._clock.now() + timeout
        if len(puts) == 1:
            return [await self._put(puts[0], until)]
        if self._face == "async":
            return await self._gather(puts, until)
        with ThreadPoolExecutor(min(_SIDE_BY_SIDE, len(puts)), "leased-dynamodb") as threads:
            return list(threads.map(lambda put: step(self._safely(put, until)), puts))

    async def page(self, prefix: str, *, after: str, limit: int, timeout: float) -> list[tuple[str, Found]]:
        """See `Shelf`: sort keys are in the order of their UTF-8 bytes."""
        until = self._clock.now() + timeout
        names, values = {"#s": "namespace"}, {":s": {"S": self._space}}
        condition = "#s = :s"
        if prefix or after:
            names["#n"] = "name"
            beyond = after.encode() >= prefix.encode()
            condition += " AND #n > :n" if beyond else " AND begins_with(#n, :n)"
            values[":n"] = {"S": after if beyond else prefix}
        given: dict[str, Any] = {
            "ConsistentRead": True,
            "KeyConditionExpression": condition,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
        }
        found: list[tuple[str, Found]] = []
        while len(found) < limit:
            given["Limit"] = min(limit - len(found), _LONGEST_PAGE)
            answer = await self._ask("Query", given, until, reads=True)
            with reading(self._tables):
                page = [(item["name"]["S"], _found(item)) for item in answer.get("Items", [])]
                mine = [row for row in page if row[0].startswith(prefix)]
            found += mine
            if "LastEvaluatedKey" not in answer or len(mine) < len(page):  # or beyond what begins with the prefix
                break
            given["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
        return found

    async def remove(self, keys: Sequence[tuple[str, Version]], *, timeout: float) -> None:
        """See `Shelf`. One after the other."""
        until = self._clock.now() + timeout
        for key, version in keys:
            given = {"Key": self._name(key), **_as_seen(version)}
            try:
                await self._ask("DeleteItem", given, until)
            except Refused as refused:
                if refused.kind != "ConditionalCheckFailedException":
                    raise _not_usable(refused) from refused

    async def watch(self, key: str, changed: Changed) -> Callable[[], None]:
        """See `Shelf`: nobody is told, whoever waits asks now and then."""
        self._link.check_open()
        return unwatched

    def close(self) -> None:
        """See `Shelf`."""
        self._link.close()

    async def _gather(self, puts: Sequence[Put], until: float) -> Sequence[Written | Beaten | StoreUnavailable]:
        import asyncio  # for callers that have it loaded

        return await asyncio.gather(*(self._safely(put, until) for put in puts))

    async def _safely(self, put: Put, until: float) -> Written | Beaten | StoreUnavailable:
        try:
            return await self._put(put, until)
        except StoreUnavailable as error:
            return error

    async def _put(self, put: Put, until: float) -> Written | Beaten:
        version = secrets.token_hex(8)  # drawn, not counted: an item that was gone in between may begin anew
        item = {
            **self._name(put.key),
            "version": {"S": version},
            "value": {"S": put.value.decode()},
            "forgetAt": {"N": str(int(put.forget_at) + 1)},
        }
        given = {"Item": item, "ReturnValuesOnConditionCheckFailure": "ALL_OLD", **_as_seen(put.version)}
        try:
            await self._ask("PutItem", given, until)
        except Refused as refused:
            if refused.kind == "ConditionalCheckFailedException":
                with reading(self._tables):
                    return Beaten(_found(refused.body["Item"]) if refused.body.get("Item") else None)
            raise _not_usable(refused) from refused
        return Written(version)

    async def _ask(self, operation: str, given: dict[str, Any], until: float, *, reads: bool = False) -> dict[str, Any]:
        named = {"TableName": self._tables.name, **given}
        await self._tables.prepare(until)
        for _ in range(2):
            try:
                return await self._link.call(operation, named, timeout=self._left(until), reads=reads)
            except Refused as refused:
                if refused.kind != "ResourceNotFoundException":
                    if reads:
                        raise _not_usable(refused) from refused
                    raise
                await self._tables.create(until)
        raise StoreNotUsable(f"the table of {self._tables} vanishes again and again", hint="see who deletes it")

    async def _ask_all(self, given: dict[str, Any], until: float) -> dict[str, Any]:
        """A batch read: it names its table in its own way."""
        await self._tables.prepare(until)
        try:
            return await self._link.call("BatchGetItem", given, timeout=self._left(until), reads=True)
        except Refused as refused:
            if refused.kind != "ResourceNotFoundException":
                raise _not_usable(refused) from refused
            await self._tables.create(until)
            return {}

    def _name(self, key: str) -> dict[str, Any]:
        return {"namespace": {"S": self._space}, "name": {"S": key}}

    def _left(self, until: float) -> float:
        return max(until - self._clock.now(), 0.0)


def _as_seen(version: Version | None) -> dict[str, Any]:
    """The condition that an item is still as it was seen."""
    if version is None:
        return {"ConditionExpression": "attribute_not_exists(#n)", "ExpressionAttributeNames": {"#n": "name"}}
    return {
        "ConditionExpression": "#v = :v",
        "ExpressionAttributeNames": {"#v": "version"},
        "ExpressionAttributeValues": {":v": {"S": str(version)}},
    }


def _found(item: dict[str, Any] | None) -> Found:
    if not item:
        return NOTHING
    version, value = item.get("version", {}).get("S"), item.get("value", {}).get("S")
    return Found(str(version or "?"), json.dumps(item).encode() if value is None else str(value).encode())


def _not_usable(refused: Refused) -> StoreNotUsable:
    message = str(refused.body.get("message") or refused.body.get("Message") or "")
    return StoreNotUsable(f"DynamoDB refuses: {refused.kind} {message}".rstrip(), hint="see `leased schema URL`")
