"""Who asks DynamoDB and where: credentials, region and endpoint as AWS's own library finds them. It sends nothing."""

from __future__ import annotations

import os
from typing import Any, TypeAlias

from leased.errors import StoreNotUsable
from leased.store import Clock
from leased.stores._aside import Aside
from leased.stores._drivers import driver
from leased.stores._dynamodb_url import Table, address_of
from leased.stores._http_url import Address

_CHECK_EVERY = 30.0
"""Seconds after which credentials that may change are asked for again; the library renews them minutes before."""
_ENDPOINTS = ("AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL")
_TYPE = "application/x-amz-json-1.0"
_TARGET = "DynamoDB_20120810"

_Found: TypeAlias = tuple[Address, str, Any]
"""Where to ask, the region, and the library's credentials."""


class Account:
    """Signs requests to one table. What the library may wait for (a file, the metadata service) it does aside."""

    def __init__(self, table: Table, clock: Clock) -> None:
        """Nothing is looked for yet."""
        self._table = table
        self._clock = clock
        self._aside: Aside[Any] = Aside(clock, what="AWS credentials")
        self._found: _Found | None = None
        self._frozen: Any = None
        self._checked_at = 0.0

    async def prepare(self, seconds: float) -> Address:
        """Where to send requests, with credentials that are good for some minutes."""
        now, found = self._clock.now(), self._found
        if found is None or now - self._checked_at >= _CHECK_EVERY:
            found, self._frozen = await self._aside.do(self._look, seconds=seconds)
            self._found, self._checked_at = found, now
        return found[0]

    def request(self, operation: str, body: bytes) -> bytes:
        """A signed request; `prepare` has been called."""
        assert self._found is not None  # noqa: S101 (prepared)
        address, region, _ = self._found
        signing, requests = driver("botocore.auth", extra="dynamodb"), driver("botocore.awsrequest", extra="dynamodb")
        scheme = "https" if address.tls else "http"
        fields = {"Host": address.authority, "Content-Type": _TYPE, "X-Amz-Target": f"{_TARGET}.{operation}"}
        request = requests.AWSRequest("POST", f"{scheme}://{address.authority}/", data=body, headers=fields)
        signing.SigV4Auth(self._frozen, "dynamodb", region).add_auth(request)
        head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        return f"POST / HTTP/1.1\r\n{head}User-Agent: leased\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    def _look(self) -> tuple[_Found, Any]:
        found = self._found or self._find()
        return found, found[2].get_frozen_credentials()

    def _find(self) -> _Found:
        session = driver("botocore.session", extra="dynamodb").get_session()
        failures = driver("botocore.exceptions", extra="dynamodb")
        try:
            credentials = session.get_credentials()
            region = self._table.region or session.get_config_variable("region")
            if credentials is None:
                raise StoreNotUsable(
                    "no AWS credentials were found",
                    hint="set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role",
                )
            if not region:
                raise StoreNotUsable(
                    "no AWS region is configured",
                    hint=f"write dynamodb://REGION/{self._table.name}, or set AWS_DEFAULT_REGION",
                )
            return address_of(self._endpoint(session, region), ca=os.environ.get("AWS_CA_BUNDLE")), region, credentials
        except failures.BotoCoreError as error:
            raise StoreNotUsable(f"the configuration of AWS cannot be used: {error}") from error

    def _endpoint(self, session: Any, region: str) -> str:
        """As the URL or the environment names it, else that of the region."""
        named = self._table.endpoint or next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), "")
        if named:
            return named
        found = session.get_component("endpoint_resolver").construct_endpoint("dynamodb", region)
        if found is None:
            raise StoreNotUsable(
                f"AWS's library knows no DynamoDB in {region!r}", hint="give leased_endpoint=https://…"
            )
        return f"https://{found['hostname']}"
