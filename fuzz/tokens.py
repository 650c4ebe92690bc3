"""Tokens and key sets of an issuer: a token that nobody signed names nobody."""

import asyncio
import base64
import json
from contextlib import suppress
from typing import Any

from fuzz.given import object_of, parts_of, text_of
from leased.errors import Unauthenticated
from leased.server.key_sets import KeySet, read_key_set
from leased.server.tokens import Issuer, Tokens

_KEYS = json.dumps(
    {"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "1", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}
).encode()


async def _fetch() -> bytes:
    return _KEYS


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def check(data: bytes) -> None:
    """Only `Unauthenticated` is raised, for any claims as well; a key set is read, or refused by `ValueError`."""
    asyncio.run(_ask(data))
    with suppress(ValueError):
        for key in read_key_set(data).values():
            assert "d" not in key


async def _ask(data: bytes) -> None:
    issuer = Issuer("https://issuer.example", "leased", project="p")
    tokens = Tokens(issuer, KeySet(_fetch, now=lambda: 0.0), wall=lambda: 1e9)
    header, claims, signature = parts_of(data, 3)
    for text in (text_of(data), f"{_part(header)}.{_part(claims)}.{_part(signature)}"):
        with suppress(Unauthenticated):
            raise AssertionError(f"a token that nobody signed is {await tokens.identify(text)}")
    known: dict[str, Any] | None = object_of(claims)
    if known is not None:  # as if the issuer had signed it
        with suppress(Unauthenticated):
            tokens._checked_end(known)
            known.setdefault(issuer.user_claim, "u")
            principal = tokens._principal(known)
            assert principal.project == "p"
            assert ":" not in principal.id
    await tokens.close()
