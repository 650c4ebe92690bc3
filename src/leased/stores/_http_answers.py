"""What an answer of HTTP means for whoever asked: an outcome, an error of the service, or that nobody knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from leased.errors import LeasedError, StoreUnavailable, Unauthenticated
from leased.stores._http_connection import Cut
from leased.stores._http_strangers import advice, hint_of, met
from leased.stores._http_url import API_KEY, Address
from leased.stores._http_wire import Answer
from leased.wire import Body, Unreadable
from leased.wire_errors import read_error

_T = TypeVar("_T")


def understand(answer: Answer, read: Callable[[Body], _T], *, address: Address) -> _T:
    """What `read` makes of an answer that says yes; raises the error of the service for another one.

    What did not come from a lock service, or cannot be read, is `StoreUnavailable`: it proves nothing.
    """
    body = _object_in(answer)
    if answer.status == 200:
        try:
            if body is None:
                raise Unreadable(f"it is {met(answer)}, and no JSON object")
            return read(body)
        except (ValueError, OverflowError) as error:  # `Unreadable`, or an instant that no clock can show
            raise StoreUnavailable(
                f"{address} answered what cannot be read: {error}", hint=advice(answer, tls=address.tls)
            ) from error
    raise _refused(answer, body, address)


def from_service(answer: Answer) -> bool:
    """Whether a lock service gave this answer to the question what it gives, whatever it says."""
    body = _object_in(answer)
    return body is not None and (isinstance(body.get("code"), str) or isinstance(body.get("assurance"), dict))


def cut_off(cut: Cut, address: Address) -> StoreUnavailable:
    """The error for a request whose answer did not come."""
    return StoreUnavailable(f"{address}: {cut.why}", applied=None if cut.sent else False, hint=hint_of(cut.__cause__))


def _refused(answer: Answer, body: Body | None, address: Address) -> LeasedError:
    """The error that the service answered, or what to make of somebody else's."""
    if body is not None and isinstance(body.get("code"), str):
        error = read_error(body, status=answer.status)
        if isinstance(error, StoreUnavailable):
            error.message = f"{address}: {error.message}"
        if isinstance(error, Unauthenticated) and address.credential is None:
            error.hint = f"set {API_KEY}, or write it into the URL: https://:KEY@HOST"
        if answer.status == 404 and address.path:
            error.hint = f"the service is there, but not below {address.path}: leave that out of the URL"
        return error
    return StoreUnavailable(
        f"{address} answered with HTTP status {answer.status} and {met(answer)}, as no lock service does",
        hint=advice(answer, tls=address.tls),
    )


def _object_in(answer: Answer) -> dict[str, Any] | None:
    try:
        body = json.loads(answer.body.decode())
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None
