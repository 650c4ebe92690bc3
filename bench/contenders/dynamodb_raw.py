"""DynamoDB driven raw, by the SDK with its settings as they are: a conditional put and a conditional delete."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.addresses import host_and_port
from bench.worker import Run

REGION = "eu-central-1"
_TABLE = "raw"


def endpoint(url: str) -> dict[str, str]:
    """What the SDK takes to ask the server of that URL."""
    host, port = host_and_port(url)
    return {"endpoint_url": f"http://{host}:{port}", "region_name": REGION}


def make_table(client: Any) -> None:
    """The table of the floor, unless it is there."""
    with suppress(client.exceptions.ResourceInUseException):
        client.create_table(
            TableName=_TABLE,
            KeySchema=[{"AttributeName": "name", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "name", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
    client.get_waiter("table_exists").wait(TableName=_TABLE, WaiterConfig={"Delay": 1})


def _put(name: str, token: str) -> dict[str, Any]:
    micros = time.time_ns() // 1000
    return {
        "TableName": _TABLE,
        "Item": {
            "name": {"S": name},
            "token": {"S": token},
            "owner": {"S": "bench"},
            "fencingToken": {"N": str(micros)},
            "expiresAt": {"N": str(micros + 30_000_000)},
        },
        "ConditionExpression": "attribute_not_exists(#n) OR expiresAt < :now",
        "ExpressionAttributeNames": {"#n": "name"},
        "ExpressionAttributeValues": {":now": {"N": str(micros)}},
    }


def _delete(name: str, token: str) -> dict[str, Any]:
    return {
        "TableName": _TABLE,
        "Key": {"name": {"S": name}},
        "ConditionExpression": "#t = :token",
        "ExpressionAttributeNames": {"#t": "token"},
        "ExpressionAttributeValues": {":token": {"S": token}},
    }


@contextmanager
def pair(directory: Path, *, url: str) -> Iterator[Run]:
    """The floor: boto3."""
    import boto3  # type: ignore[import-untyped,unused-ignore]

    client = boto3.client("dynamodb", **endpoint(url))
    make_table(client)
    numbers = itertools.count()
    own = os.urandom(4).hex()

    def run(count: int) -> None:
        for number in itertools.islice(numbers, count):
            name, token = f"{own}-{number}", os.urandom(16).hex()
            client.put_item(**_put(name, token))
            client.delete_item(**_delete(name, token))

    yield run
    client.close()


@contextmanager
def pair_async(directory: Path, *, url: str) -> Iterator[Run]:
    """The same calls of tasks, by aiobotocore. It needs the table that `pair` makes."""
    from aiobotocore.session import get_session  # type: ignore[import-not-found,import-untyped,unused-ignore]

    numbers = itertools.count()
    own = os.urandom(4).hex()
    with asyncio.Runner() as runner:
        opening = get_session().create_client("dynamodb", **endpoint(url))
        client = runner.run(_entered(opening))

        async def pairs(count: int) -> None:
            for number in itertools.islice(numbers, count):
                name, token = f"async-{own}-{number}", os.urandom(16).hex()
                await client.put_item(**_put(name, token))
                await client.delete_item(**_delete(name, token))

        yield lambda count: runner.run(pairs(count))
        runner.run(opening.__aexit__(None, None, None))


async def _entered(opening: Any) -> Any:
    return await opening.__aenter__()


@contextmanager
def python_dynamodb_lock(directory: Path, *, url: str) -> Iterator[Run]:
    """The peer: python-dynamodb-lock, as its documentation shows it."""
    import boto3  # type: ignore[import-untyped,unused-ignore]
    from botocore.exceptions import ClientError  # type: ignore[import-untyped,unused-ignore]
    from python_dynamodb_lock.python_dynamodb_lock import (  # type: ignore[import-not-found,unused-ignore]
        DynamoDBLockClient,
    )

    client = boto3.client("dynamodb", **endpoint(url))
    with suppress(ClientError):  # of its last step, the clean-up by time, of which the emulation knows nothing
        DynamoDBLockClient.create_dynamodb_table(client)
    locks = DynamoDBLockClient(boto3.resource("dynamodb", **endpoint(url)))
    numbers = itertools.count()
    own = os.urandom(4).hex()

    def run(count: int) -> None:
        for number in itertools.islice(numbers, count):
            locks.acquire_lock(f"{own}-{number}").release()

    yield run
    locks.close()
