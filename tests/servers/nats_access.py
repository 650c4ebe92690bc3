"""Seeds, users and accounts of NATS as its own tools make them: signed by keys of their own, known to no server yet."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from dataclasses import dataclass
from typing import Any

import nkeys  # type: ignore[import-untyped,unused-ignore]

_OPERATOR, _ACCOUNT, _USER = 14 << 3, 0, 20 << 3
_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}


@dataclass(frozen=True, slots=True)
class Key:
    """A pair of keys: the `seed` is the secret, `name` the public one."""

    seed: str
    name: str

    def sign(self, data: bytes) -> bytes:
        """The signature of this key."""
        found: bytes = nkeys.from_seed(bytearray(self.seed.encode())).sign(data)
        return found


def user_key() -> Key:
    """A new key of a user."""
    return _key(_USER)


@dataclass(frozen=True, slots=True)
class Trusted:
    """A server's `configuration` that trusts an operator with one account, and `credentials` of a user of it."""

    configuration: str
    credentials: str


def trusted() -> Trusted:
    """A new operator, his account, which may use JetStream as it likes, and a user."""
    operator, account, system, user = _key(_OPERATOR), _key(_ACCOUNT), _key(_ACCOUNT), user_key()
    everything = dict.fromkeys(("subs", "data", "payload", "conn", "leaf", "imports", "exports"), -1)
    stored = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
    limits = {**everything, **stored, "wildcards": True}
    account_token = _token(account, operator, what="account", nats={"limits": limits})
    user_token = _token(user, account, what="user", nats={"subs": -1, "data": -1, "payload": -1})
    system_token = _token(system, operator, what="account", nats={"limits": everything})
    operator_token = _token(operator, operator, what="operator", nats={})
    preloaded = f"{account.name}: {account_token}\n{system.name}: {system_token}"
    credentials = (
        f"-----BEGIN NATS USER JWT-----\n{user_token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )
    lines = (
        f"operator: {operator_token}",
        f"system_account: {system.name}",
        "resolver: MEMORY",
        f"resolver_preload {{\n{preloaded}\n}}",
    )
    return Trusted("\n".join(lines), credentials)


def _key(kind: int) -> Key:
    raw = os.urandom(32)
    seed = _encoded(bytes([(18 << 3) | (kind >> 5), (kind & 31) << 3]) + raw)
    pair: Any = nkeys.from_seed(bytearray(seed.encode()))
    return Key(seed, pair.public_key.decode().rstrip("="))


def _encoded(data: bytes) -> str:
    check: int = nkeys.crc16(bytearray(data))
    return base64.b32encode(data + check.to_bytes(2, "little")).decode().rstrip("=")


def _token(subject: Key, issuer: Key, *, what: str, nats: dict[str, Any]) -> str:
    claims: dict[str, Any] = {
        "iat": int(time.time()),
        "iss": issuer.name,
        "name": what,
        "sub": subject.name,
        "nats": {**nats, "type": what, "version": 2},
    }
    claims["jti"] = base64.b32encode(hashlib.sha256(json.dumps(claims).encode()).digest()).decode().rstrip("=")
    signed = f"{_part(_HEADER)}.{_part(claims)}"
    return f"{signed}.{_text(issuer.sign(signed.encode()))}"


def _part(fields: dict[str, Any]) -> str:
    return _text(json.dumps(fields, separators=(",", ":")).encode())


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
