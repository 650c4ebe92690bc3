"""What an answer of etcd's JSON gateway means: its object, or an error that tells whether anything was changed."""

from __future__ import annotations

from typing import Any, Literal

from leased.checks import shown
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.stores._http_connection import Cut
from leased.stores._http_url import Address as Member
from leased.stores._http_wire import Answer, read_json

Repeat = Literal["never", "soon", "elsewhere", "after login"]
"""Where and when the same may be asked once more, if nothing was changed by it: `soon` of a cluster that is about to
have a leader again, `elsewhere` of a member that did not answer."""

_INVALID, _DENIED, _EXHAUSTED, _PRECONDITION, _UNAUTHENTICATED = 3, 7, 8, 9, 16
_STALE = ("invalid auth token", "revision of auth store is old", "revision in header is old")
_NO_LOGIN = "user name is empty"
_UNDONE = ("no leader", "raft proposal dropped", "too many requests", "server is stopping")
"""What a member says before it passes a request on."""


class Refused(Exception):
    """A request that was not done, or of which nobody knows: the error for the caller, and what may follow."""

    def __init__(self, error: StoreUnavailable, *, repeat: Repeat = "never") -> None:
        super().__init__(error.message)
        self.error = error
        self.repeat = repeat


def understand(answer: Answer, member: Member) -> dict[str, Any]:
    """The object in an answer; raises `Refused` for one that says no, or cannot be read."""
    try:
        found = read_json(answer.body)
    except (ValueError, RecursionError):
        found = None
    if answer.status == 200 and isinstance(found, dict):
        return found
    if answer.status == 404:
        hint = "it has to be etcd 3.4 or later, and its JSON gateway must be on (enable-grpc-gateway)"
        raise Refused(StoreNotUsable(f"{member} does not know /v3/", hint=hint))
    if not isinstance(found, dict) or not isinstance(found.get("code"), int):
        hint = "it was not etcd that answered, but something before it, or in its place"
        text = f"{member} answered with HTTP status {answer.status} and no object"
        raise Refused(StoreUnavailable(text, hint=hint))
    raise refusal(found["code"], str(found.get("message") or found.get("error") or ""), member=member)


def refusal(code: int, message: str, *, member: Member) -> Refused:
    """What it means that a member said no in these words, with this code of gRPC."""
    text = f"{member}: {shown(message.removeprefix('etcdserver: '))}"
    if code == _UNAUTHENTICATED or any(words in message for words in (*_STALE, _NO_LOGIN)):
        hint = "write etcd://USER:PASSWORD@HOST"
        return Refused(StoreNotUsable(f"{text}: it wants a user and a password", hint=hint), repeat="after login")
    if code == _DENIED:
        hint = "docs/stores/etcd says what the user's role needs"
        return Refused(StoreNotUsable(f"{text}: the user may not do this", hint=hint))
    if code == _EXHAUSTED and "space" in message:
        hint = "compact and defragment it, then `etcdctl alarm disarm`"
        return Refused(StoreUnavailable(text, applied=False, hint=hint))
    if any(words in message for words in _UNDONE):
        return Refused(StoreUnavailable(text, applied=False), repeat="soon")
    if code in (_INVALID, _PRECONDITION):
        wrong_login = "authentication failed" in message
        return Refused(StoreNotUsable(text, hint="look at user and password in the URL" if wrong_login else None))
    return Refused(StoreUnavailable(text, applied=None), repeat="soon")


def cut_off(cut: Cut, member: Member) -> Refused:
    """What it means that no answer came."""
    return Refused(StoreUnavailable(f"{member}: {cut.why}", applied=None if cut.sent else False), repeat="elsewhere")


def senseless(member: object) -> StoreUnavailable:
    """The error for an answer that is not of the form which it must have: it proves nothing."""
    return StoreUnavailable(f"{member} answered what makes no sense", hint="is this the URL of an etcd cluster?")
