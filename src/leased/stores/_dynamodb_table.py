"""The table itself: whether it is there and fit to keep locks, what it gives, and how it is made. It keeps no locks."""

from __future__ import annotations

import json
from typing import Any

from leased.checks import shown
from leased.errors import LeasedError, StoreNotUsable, StoreUnavailable
from leased.model import Assurance
from leased.policy import SKEW_MARGIN
from leased.store import Clock
from leased.stores._dynamodb_link import Link, Refused, reading
from leased.stores._dynamodb_url import Table
from leased.stores._standing import Standing
from leased.targets import Options

_KEYS = [{"AttributeName": "namespace", "KeyType": "HASH"}, {"AttributeName": "name", "KeyType": "RANGE"}]
_ATTRIBUTES = [{"AttributeName": name, "AttributeType": "S"} for name in ("namespace", "name")]
_FORGETS = {"Enabled": True, "AttributeName": "forgetAt"}
_LOOK_AGAIN = 0.2
_BEING_MADE = frozenset({"ResourceInUseException"})


class Tables:
    """One table, asked about once and made if it is not there."""

    def __init__(self, table: Table, link: Link, *, options: Options, standing: Standing) -> None:
        self.name = table.name
        self._table = table
        self._link = link
        self._clock: Clock = options.clock
        self._options = options
        self._standing = standing
        self._asked = False

    def __str__(self) -> str:
        """As it may stand in a message."""
        return str(self._table)

    async def prepare(self, until: float) -> None:
        """Ask once what the table is, and refuse one in which a key can have two holders."""
        if self._asked:
            return
        try:
            described = await self._describe(until)
        except StoreNotUsable as error:
            if "DescribeTable" not in error.message:
                raise
            self._asked = True  # it may be used, but nobody may ask what it is: then it gives what is unknown
            return
        if described is None:
            await self.create(until)
            described = await self._describe(until) or {}
        with reading(self):
            self._check(described)
            self._standing.read(assurance_of(described, self._options))
        self._standing.check()
        self._asked = True

    async def create(self, until: float) -> None:
        """Make the table, and wait until it can be used."""
        try:
            await self._call("CreateTable", _creation(self.name), until)
        except Refused as refused:
            if refused.kind not in _BEING_MADE:  # somebody else makes it as well
                raise StoreNotUsable(
                    f"the table of {self} cannot be made: {refused.body.get('message', refused.kind)}",
                    hint="make it yourself: `leased schema URL` prints how",
                ) from refused
        while ((await self._describe(until)) or {}).get("TableStatus") != "ACTIVE":
            if self._clock.now() + _LOOK_AGAIN >= until:
                raise StoreUnavailable(f"the table of {self} is still being made", applied=False)
            await self._clock.sleep(_LOOK_AGAIN)
        try:
            given = {"TableName": self.name, "TimeToLiveSpecification": _FORGETS}
            await self._call("UpdateTimeToLive", given, until)
        except (LeasedError, Refused):
            return  # it only cleans up

    async def _describe(self, until: float) -> dict[str, Any] | None:
        """What the table is; `None`: there is none."""
        try:
            answer = await self._call("DescribeTable", {"TableName": self.name}, until, reads=True)
        except Refused as refused:
            if refused.kind == "ResourceNotFoundException":
                return None
            raise StoreNotUsable(
                f"the table of {self} cannot be asked about: {refused.body.get('message', refused.kind)}"
            ) from refused
        described = answer.get("Table", {})
        return described if isinstance(described, dict) else {}

    async def _call(
        self, operation: str, given: dict[str, Any], until: float, *, reads: bool = False
    ) -> dict[str, Any]:
        left = max(until - self._clock.now(), 0.0)
        return await self._link.call(operation, given, timeout=left, reads=reads)

    def _check(self, described: dict[str, Any]) -> None:
        keys = {key["AttributeName"]: key["KeyType"] for key in described.get("KeySchema", [])}
        if keys and keys != {key["AttributeName"]: key["KeyType"] for key in _KEYS}:
            has = shown(", ".join(map(str, keys)))
            raise StoreNotUsable(
                f"the table of {self} has the keys {has}, and locks need namespace and name",
                hint="name another table: `leased schema URL` prints how to make it",
            )
        if described.get("Replicas") and described.get("MultiRegionConsistency", "EVENTUAL") != "STRONG":
            raise StoreNotUsable(
                f"the table of {self} is a global one with eventual consistency: two regions could grant the same key",
                hint="use a table of one region, or a global one with strong consistency",
            )


def assurance_of(described: dict[str, Any], options: Options) -> Assurance:
    """What such a table gives."""
    observing = options.takeover == "observe"
    margin = f"clients whose clocks differ by less than {options.skew_margin or SKEW_MARGIN:g} s cannot overlap"
    notes = [
        "a taker watches a whole lease before it takes over a dead holder's" if observing else margin,
        "DynamoDB tells nobody of a release: whoever waits asks again within a second",
    ]
    if options.skew_margin == 0 and not observing:
        notes[0] = "with a skew margin of 0 every clock is believed"
    if described.get("Replicas"):
        notes.append("a global table with strong consistency: all its regions see one order of writes")
    return Assurance(
        exclusive="region",
        early_loss=False,
        durable="what was answered survives the loss of a zone",
        takeover="observe" if observing else "margin",
        fence="rises; after a loss of data as soon as the clients' clocks are past the last grant",
        notes=tuple(notes),
    )


def schema_of(table: Table) -> str:
    """The commands that make the table."""
    region = f" --region {table.region}" if table.region else ""
    creation = json.dumps(_creation(table.name))
    forgets = json.dumps(_FORGETS)
    return (
        f"aws dynamodb create-table{region} --cli-input-json '{creation}'\n"
        f"aws dynamodb wait table-exists{region} --table-name {table.name}\n"
        f"aws dynamodb update-time-to-live{region} --table-name {table.name} --time-to-live-specification '{forgets}'\n"
    )


def _creation(name: str) -> dict[str, Any]:
    return {
        "TableName": name,
        "KeySchema": _KEYS,
        "AttributeDefinitions": _ATTRIBUTES,
        "BillingMode": "PAY_PER_REQUEST",
    }
