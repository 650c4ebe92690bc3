"""Reads the URL of a DynamoDB table apart. Credentials are never in it: they come from where AWS's tools look."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from leased.checks import shown
from leased.errors import InvalidRequest
from leased.stores._http_url import Address, is_loopback
from leased.targets import Options, hide_secrets

DEFAULT_TABLE = "leased"
_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-[0-9]{1,2}")
_HINT = "write dynamodb://REGION/TABLE, dynamodb:///TABLE for the region of your AWS configuration, or HOST:PORT"


@dataclass(frozen=True, slots=True)
class Table:
    """A table: `region` is empty where the configuration of AWS decides, `endpoint` where the region does."""

    name: str
    region: str
    endpoint: str
    shown: str

    def __str__(self) -> str:
        """As it may stand in a message."""
        return self.shown


def read_table(url: str, options: Options) -> Table:
    """What a URL says; `InvalidRequest` for what is wrong in it."""
    place = hide_secrets(url)
    parts, port = _split(url, place)
    if "@" in parts.netloc + parts.path:
        raise InvalidRequest(
            f"the URL of {place} has credentials in it", hint="AWS_ACCESS_KEY_ID, AWS_PROFILE or a role give them"
        )
    if parts.query or parts.fragment:
        raise InvalidRequest(f"the URL of {place} has parameters that are not leased_…", hint=_HINT)
    name = parts.path.strip("/") or DEFAULT_TABLE
    if not _TABLE.fullmatch(name):
        raise InvalidRequest(
            f"{shown(name)!r} is no name of a table", hint="3 to 255 letters, digits and any of '_.-', as AWS has it"
        )
    host = parts.hostname or ""
    region = options.own.get("region", "")
    endpoint = options.own.get("endpoint", "")
    if host and (port is not None or is_loopback(host)):
        if endpoint:
            raise InvalidRequest(
                f"{place} names a server, and leased_endpoint={hide_secrets(endpoint)} another",
                hint="leave one of them",
            )
        endpoint = f"http://{parts.netloc}"
    elif host:
        if region:
            raise InvalidRequest(
                f"the region is given twice: {shown(host)!r} and leased_region={shown(region)}",
                hint="leave one of them",
            )
        region = host
    if region and not _REGION.fullmatch(region):
        raise InvalidRequest(f"{shown(region)!r} is no region of AWS", hint=_HINT)
    if endpoint:
        address_of(endpoint)
    return Table(name, region, endpoint, place)


def address_of(endpoint: str, *, ca: str | None = None) -> Address:
    """Where requests go; plain HTTP only on this machine, for signed requests can be read and repeated there."""
    parts, port = _split(endpoint, hide_secrets(endpoint))
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise InvalidRequest(
            f"the endpoint {hide_secrets(endpoint)!r} is no address of a server", hint="write https://HOST[:PORT]"
        )
    tls = parts.scheme == "https"
    if not tls and not is_loopback(parts.hostname):
        raise InvalidRequest(
            f"{hide_secrets(endpoint)} is not on this machine, and others could read what http:// carries",
            hint="use https://",
        )
    return Address(
        host=parts.hostname, port=port or (443 if tls else 80), tls=tls, path="", shown=hide_secrets(endpoint), ca=ca
    )


def place_of(url: str) -> str:
    """What tells one table from another."""
    return url


def _split(url: str, place: str) -> tuple[SplitResult, int | None]:
    try:
        parts = urlsplit(url)
        return parts, parts.port
    except ValueError:  # whose text may show a part of a secret
        raise InvalidRequest(f"the URL of {place} cannot be read", hint=_HINT) from None
