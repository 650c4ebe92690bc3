"""The rows: one module each, by the name that `make bench ROW=…` takes."""

from collections.abc import Callable

from bench.measure import Result
from bench.plan import Plan
from bench.rows import (
    cli_start,
    dynamodb_pair,
    etcd_pair,
    hand_off,
    herd,
    idle_wait,
    importing,
    memory_pair,
    mysql_pair,
    nats_pair,
    postgres_many,
    postgres_pair,
    redis_many,
    redis_pair,
    renewal,
    service,
    service_client,
    sqlite_many,
    sqlite_pair,
)

ROWS: dict[str, Callable[[Plan], Result]] = {
    "memory-pair": memory_pair.run,
    "sqlite-pair": sqlite_pair.run,
    "sqlite-many": sqlite_many.run,
    "redis-pair": redis_pair.run,
    "redis-many": redis_many.run,
    "postgres-pair": postgres_pair.run,
    "postgres-many": postgres_many.run,
    "mysql-pair": mysql_pair.run,
    "etcd-pair": etcd_pair.run,
    "nats-pair": nats_pair.run,
    "dynamodb-pair": dynamodb_pair.run,
    "hand-off": hand_off.run,
    "herd": herd.run,
    "idle-wait": idle_wait.run,
    "renewal": renewal.run,
    "service": service.run,
    "service-client": service_client.run,
    "cli-start": cli_start.run,
    "import": importing.run,
}
