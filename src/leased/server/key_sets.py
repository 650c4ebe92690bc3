"""Public keys of a token issuer (JWKS): fetched from one configured place, kept, and fetched again within bounds.

No token decides where keys come from, nor makes more than one request in a while.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from leased.errors import InvalidRequest
from leased.server.troubles import ServiceUnavailable

FRESH = 600.0
"""Seconds after which keys are fetched anew, in the background."""

STALE = 86_400.0
"""Seconds that keys are still trusted when their issuer does not answer."""

PAUSE = 30.0
"""Seconds between two fetches at the least, whatever tokens come: an unknown key id can wait that long."""

FETCH_TIMEOUT = 5.0
"""Seconds one fetch may take."""

MAX_SIZE = 262_144
"""Bytes of a key set."""

_MAX_KEYS = 100
_log = logging.getLogger("leased.server.tokens")

Fetch = Callable[[], Awaitable[bytes]]
"""Gets the key set as it is now. Raises `OSError` where it cannot be had."""


class KeySet:
    """The keys by their ids. `now` gives seconds on a clock that never goes back."""

    def __init__(self, fetch: Fetch, *, now: Callable[[], float]) -> None:
        self._fetch = fetch
        self._now = now
        self._keys: Mapping[str, dict[str, Any]] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, key_id: str | None) -> dict[str, Any] | None:
        """The key of this id, or the only key where none is named; `None` if there is no such key.

        Raises `StoreUnavailable` where no keys could be had at all.
        """
        age = None if self._fetched_at is None else self._now() - self._fetched_at
        known = self._known(key_id)
        if known is not None and age is not None and age < STALE:
            if age >= FRESH:
                self._begin()
            return known
        self._begin()
        if self._fetching is not None:
            await asyncio.wait([self._fetching])
        if self._fetched_at is None or self._now() - self._fetched_at >= STALE:
            raise ServiceUnavailable("the keys that tokens are checked with cannot be had now", applied=False)
        return self._known(key_id)

    async def close(self) -> None:
        """End a fetch that is under way."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])

    def _known(self, key_id: str | None) -> dict[str, Any] | None:
        if key_id is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(key_id)

    def _begin(self) -> None:
        """Start a fetch, unless one is under way or was a moment ago."""
        if self._fetching is None and (self._tried_at is None or self._now() - self._tried_at >= PAUSE):
            self._tried_at = self._now()
            self._fetching = asyncio.get_running_loop().create_task(self._fetch_all())

    async def _fetch_all(self) -> None:
        try:
            self._keys = read_key_set(await asyncio.wait_for(self._fetch(), FETCH_TIMEOUT))
            self._fetched_at = self._now()
        except (OSError, TimeoutError, ValueError) as error:
            _log.warning("the keys that tokens are checked with were not fetched: %s", repr(error))
        finally:
            self._fetching = None


def read_key_set(text: bytes) -> Mapping[str, dict[str, Any]]:
    """The public keys for signatures in a key set, by their ids. Raises `ValueError` for what is none.

    Shared secrets and private keys are left out: neither belongs into a set, and a shared one could sign.
    """
    try:
        found = json.loads(text)["keys"]
    except (KeyError, TypeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError("it is no key set") from error
    if not isinstance(found, list) or len(found) > _MAX_KEYS:
        raise ValueError(f"it is no list of at most {_MAX_KEYS} keys")
    return {
        str(key.get("kid", "")): key
        for key in found
        if isinstance(key, dict) and key.get("kty") in ("RSA", "EC", "OKP") and key.get("use", "sig") == "sig"
        if "d" not in key
    }


def fetch_from(place: str) -> Fetch:
    """How to fetch from a URL or a file. Raises `InvalidRequest` for a URL that is not safe."""
    parts = urlsplit(place)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in {"localhost", "127.0.0.1", "::1"}):
        return lambda: asyncio.to_thread(_from_url, place)
    if "://" in place:
        raise InvalidRequest(
            f"keys are not fetched by {parts.scheme}://", hint="name an https:// URL, or a file with the key set"
        )
    return lambda: asyncio.to_thread(_from_file, place)


def _from_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(MAX_SIZE)


def _from_url(url: str) -> bytes:
    """The body of the answer. Redirections are errors: they could lead anywhere."""
    import http.client
    import urllib.request

    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310  # checked above
    opener = urllib.request.OpenerDirector()  # the usual one follows redirections
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    try:
        with opener.open(request, timeout=FETCH_TIMEOUT) as answer:
            body: bytes = answer.read(MAX_SIZE)
    except http.client.HTTPException as error:
        raise OSError(f"no answer that can be understood: {type(error).__name__}") from error
    return body
