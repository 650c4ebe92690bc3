"""Values in etcd, DynamoDB and NATS, written by whoever can write there: a record, or none, and never another error."""

from leased.errors import StoreNotUsable
from leased.stores import _cas_record as values
from leased.stores import _sql_rules as rules
from leased.stores._sql_record import Seen


def check(data: bytes) -> None:
    """Only `StoreNotUsable` is raised; what was read is written and read again as it was, and can be judged."""
    values.needed(data, 1.0)
    try:
        kept = values.read("k", data)
    except StoreNotUsable:
        return
    assert values.read("k", values.write(kept)) == kept
    assert kept.forget_at >= 0
    for now in (0, 2**53):
        status = rules.status(Seen(kept.record, None, now), key="k")
        assert status.key == "k"
