"""The bucket: how it is made, what its settings mean for locks, and which time its server has. It knows no keys."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from leased.checks import shown
from leased.errors import LeasedError, StoreNotUsable, StoreUnavailable
from leased.model import Assurance
from leased.stores._cas_clock import clocks_note
from leased.stores._nats_connection import Answer, Question
from leased.stores._nats_url import Address
from leased.stores._senseless import SENSELESS
from leased.targets import Options

EXPECTED = (10059, 10058)
"""Errors that a question after it may mend: there is no such stream, and there is one with other settings."""

_DISABLED = (10039, 10076)
_FENCE = "rises with each grant while the record of the key is kept (a day after it opened), then by clients' clocks"
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,6})?\d*(Z|[+-]\d\d:\d\d)")


@dataclass(frozen=True, slots=True)
class Bucket:
    """What is known of it: when it was made, whether single messages may be deleted, and whether markers may end."""

    created: str
    erasable: bool
    marker_ttl: bool


def settings(address: Address, *, first: int) -> dict[str, Any]:
    """Those of a new bucket. Its numbers begin at `first`, so that no number ever comes again if it is made anew."""
    return {
        "name": address.stream,
        "description": "locks of leased",
        "subjects": [f"$KV.{address.bucket}.>"],
        "retention": "limits",
        "storage": "file",
        "num_replicas": address.replicas or 1,
        "max_msgs_per_subject": 1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "discard": "new",
        "allow_direct": True,
        "allow_rollup_hdrs": True,
        "deny_delete": False,
        "first_seq": first,
    }


def ask_info(address: Address) -> Question:
    """The question for its settings and the time."""
    return Question(f"$JS.API.STREAM.INFO.{address.stream}", harmless=True)


def ask_create(address: Address, *, first: int) -> Question:
    """The request that makes it; where it is there already, with other settings, it is refused."""
    payload = json.dumps(settings(address, first=first)).encode()
    return Question(f"$JS.API.STREAM.CREATE.{address.stream}", payload, harmless=True)


def read_answer(answer: Answer | LeasedError, address: Address) -> dict[str, Any]:
    """What JetStream says, `error` among it for what it refuses; raises what kept it from answering."""
    if isinstance(answer, LeasedError):
        raise answer
    if answer.nobody:
        raise StoreUnavailable(
            f"{address}: JetStream does not answer",
            applied=False,
            hint="start the server with -js, and look at its cluster",
        )
    try:
        found = json.loads(answer.data)
        if error_code(found) in _DISABLED:
            why = shown(found["error"]["description"])
            raise StoreNotUsable(f"{address}: {why}", hint="enable JetStream for this account")
    except SENSELESS as problem:
        raise senseless(address) from problem
    return dict(found)


def refused(error: Mapping[str, Any], address: Address, *, applied: bool | None = False) -> StoreUnavailable:
    """What JetStream refused, and why."""
    return StoreUnavailable(f"{address}: {shown(error.get('description', 'refused'))}", applied=applied)


def senseless(address: Address) -> StoreUnavailable:
    """What came is no answer."""
    return StoreUnavailable(f"{address}: what answers is no JetStream", applied=None)


def error_code(found: Mapping[str, Any]) -> int:
    """JetStream's number of the error, 0 for none."""
    error = found.get("error")
    return int(error.get("err_code", 0) or 1) if error else 0


def read_time(text: str) -> float:
    """Seconds since the epoch."""
    parts = _TIME.fullmatch(text)
    if parts is None:
        raise ValueError(text)
    day, fraction, zone = parts.groups()
    return datetime.fromisoformat(f"{day}{'+00:00' if zone == 'Z' else zone}").timestamp() + float(fraction or 0)


def read_bucket(found: Mapping[str, Any], address: Address) -> Bucket:
    """What its settings allow; `StoreNotUsable` for those under which leases would vanish."""
    config = found["config"]
    wrong = _wrong(config, address)
    if wrong:
        raise StoreNotUsable(
            f"the bucket of {address} {wrong}", hint="give leased a bucket of its own, made as `leased schema` shows"
        )
    return Bucket(
        created=str(found["created"]),
        erasable=not config.get("deny_delete"),
        marker_ttl=bool(config.get("allow_msg_ttl")),
    )


def _wrong(config: Mapping[str, Any], address: Address) -> str:
    limited = any(config.get(name, -1) not in (-1, 0) for name in ("max_bytes", "max_msgs"))
    if config.get("max_age"):
        return f"forgets what is older than {config['max_age'] / 1e9:g} s (max_age)"
    if config.get("retention", "limits") != "limits":
        return f"forgets what was read (retention {shown(config['retention'])})"
    if limited and config.get("discard") != "new":
        return "forgets old keys when it is full (max_bytes or max_msgs with discard old)"
    if config.get("sealed"):
        return "is sealed"
    if config.get("mirror"):
        return "is a mirror of another, in which nothing can be written"
    if config.get("persist_mode") == "async":
        return "answers before it has kept what was written (persist_mode async)"
    if f"$KV.{address.bucket}.>" not in config.get("subjects", ()):
        return f"does not keep what is said on $KV.{address.bucket}.>"
    return ""


def read_assurance(found: Mapping[str, Any], address: Address, *, options: Options) -> Assurance:
    """What its settings, as they are now, mean for locks."""
    config = found["config"]
    replicas = int(config.get("num_replicas", 1))
    in_memory = config.get("storage") == "memory"
    notes = [clocks_note(options)]
    if replicas > 1:
        spare = (replicas - 1) // 2
        durable = f"every answer survives the loss of {spare} of {replicas} servers"
        if in_memory:
            notes.append("the bucket is kept in memory: if most servers restart at once, all leases are lost")
    elif in_memory:
        durable = "nothing survives a restart of the server: the bucket is kept in memory"
        notes.append(
            "a restart of the server loses all leases, and two may then hold a key: make the bucket with file storage"
        )
    else:
        durable = "every answer survives the end of the server process"
        notes.append("the bucket has a single replica: nobody takes over from its server")
    if not in_memory:
        notes.append("a power failure can lose the last two minutes unless the servers have sync_interval: always")
    if address.replicas is not None and address.replicas != replicas:
        notes.append(f"the bucket has num_replicas {replicas}, and the URL says {address.replicas}")
    if any(config.get(name, -1) not in (-1, 0) for name in ("max_bytes", "max_msgs")):
        notes.append("the bucket has a limit: when it is full nothing is granted, renewed or released")
    if not int(config.get("first_seq", 0) or 0) > 1:
        notes.append("its numbers began at 1: if it is deleted and made anew while in use, a lease can be overwritten")
    return Assurance(
        exclusive="volatile" if in_memory and replicas == 1 else "replicated" if replicas > 1 else "primary",
        early_loss=in_memory and replicas == 1,
        durable=durable,
        takeover=options.takeover,
        fence=_FENCE,
        notes=tuple(notes),
    )
