"""The recipe of locks: checked options as a value, shared by both faces. It holds nothing and asks nobody."""

from __future__ import annotations

import functools
import inspect
import json
import os
import string
import sys
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Literal

from leased.checks import (
    check_key,
    check_metadata,
    check_owner,
    check_span,
    check_ttl,
    check_wait,
    shown,
)
from leased.context import scoped_owner
from leased.errors import InvalidRequest, LockNotAcquired, LockTimeout
from leased.model import Claim, Status, Terms, value
from leased.policy import DEFAULT_MAX_HOLD, DEFAULT_TTL, POLL_MAX, min_ttl

MIN_TOKEN_LENGTH = 16
MAX_TOKEN_LENGTH = 255


@value
class Recipe:
    """What `lock(...)` was given besides the key, checked; locks on many keys share it. Seconds are floats."""

    ttl: float
    wait: float
    owner: str | None
    renew: bool | None
    enforce: bool
    if_lost: Literal["raise", "return"]
    max_hold: float
    hold_at_least: float
    lock_delay: float
    metadata: str
    retry_delay: float | None
    name: str | None
    _terms: dict[int, Terms] = field(default_factory=dict, init=False, repr=False, compare=False)  # by process

    def claim(self, key: str, *, token: str | None, request_id: str | None) -> Claim:
        """A claim on `key`, with a new token unless the caller brought one, and the owner of the running scope unless
        the recipe names one."""
        pid = os.getpid()
        terms = self._terms.get(pid)
        if terms is None:
            terms = self._terms[pid] = self._terms_of(pid)
        owner = self.owner if self.owner is not None else scoped_owner()
        own = os.urandom(16).hex() if token is None else check_token(token)
        return Claim(key, own, self.ttl, owner, request_id, terms)

    def _terms_of(self, pid: int) -> Terms:
        """The terms of its claims, with what anyone may see of this process."""
        held_by, metadata = _this_process(pid)
        whole = metadata if self.metadata == "{}" else f"{metadata[:-1]}, {self.metadata[1:]}"
        return Terms(self.max_hold, self.hold_at_least, self.lock_delay, held_by, whole)

    def __reduce__(self) -> Any:
        """By its options: what is shown of this process stays here."""
        return Recipe, tuple(getattr(self, name) for name in self.__match_args__)


def make_recipe(
    *,
    margin: float,
    ttl: object = DEFAULT_TTL,
    wait: object = 0,
    owner: str | None = None,
    renew: bool | None = None,
    enforce: bool = False,
    if_lost: str = "raise",
    max_hold: object = DEFAULT_MAX_HOLD,
    hold_at_least: object = 0,
    lock_delay: object = 0,
    metadata: Mapping[str, Any] | None = None,
    retry_delay: object = None,
    name: str | None = None,
) -> Recipe:
    """Check every option of a lock; raises `InvalidRequest` that names the value, the limit and the next step.

    What was checked before is not checked again: most locks of a program differ in nothing but their keys.
    """
    text = "{}" if metadata is None else json.dumps(check_metadata(metadata))
    options = margin, ttl, wait, owner, renew, enforce, if_lost, retry_delay, name, max_hold, hold_at_least, lock_delay
    try:
        return _recipe(*options, text)
    except TypeError:  # what has no hash is no option: the check says so
        return _recipe.__wrapped__(*options, text)


@functools.lru_cache(maxsize=256, typed=True)
def _recipe(*options: Any) -> Recipe:
    """From options in the order of these names: by their places they are found quicker than by names."""
    names = "margin ttl wait owner renew enforce if_lost retry_delay name max_hold hold_at_least lock_delay metadata"
    return _check_options(**dict(zip(names.split(), options, strict=True)))


def _check_options(
    *,
    margin: float,
    ttl: object,
    wait: object,
    owner: object,
    renew: bool | None,
    enforce: bool,
    if_lost: object,
    max_hold: object,
    hold_at_least: object,
    lock_delay: object,
    metadata: str,
    retry_delay: object,
    name: str | None,
) -> Recipe:
    checked_ttl, checked_wait = check_ttl(ttl, margin=margin), check_wait(wait)
    if if_lost not in ("raise", "return"):
        raise InvalidRequest(f"if_lost must be 'raise' or 'return', not {shown(if_lost)!r}")
    if enforce and renew:
        raise InvalidRequest("enforce=True is a fixed lease and never renews", hint="leave renew out")
    if enforce and checked_wait >= checked_ttl:
        raise InvalidRequest(
            f"enforce=True counts the lease from the moment of asking, so ttl ({checked_ttl:g} s) must exceed "
            f"wait ({checked_wait:g} s)",
            hint="raise ttl or lower wait",
        )
    return Recipe(
        ttl=checked_ttl,
        wait=checked_wait,
        owner=check_owner(owner),
        renew=renew,
        enforce=enforce,
        if_lost="return" if if_lost == "return" else "raise",
        max_hold=check_span(max_hold, what="max_hold", least=min_ttl(margin)),
        hold_at_least=check_span(hold_at_least, what="hold_at_least"),
        lock_delay=check_span(lock_delay, what="lock_delay"),
        metadata=metadata,
        retry_delay=None
        if retry_delay is None
        else check_span(retry_delay, what="retry_delay", least=0.001, most=POLL_MAX),
        name=name,
    )


def mint() -> str:
    """A new token: 128 random bits as text."""
    return os.urandom(16).hex()


def check_token(token: object) -> str:
    """A token that the caller brought, or `InvalidRequest` (which does not show it)."""
    fits = isinstance(token, str) and MIN_TOKEN_LENGTH <= len(token) <= MAX_TOKEN_LENGTH
    if not isinstance(token, str) or not fits or not token.isascii() or not token.isprintable():
        raise InvalidRequest(
            f"a token is {MIN_TOKEN_LENGTH} to {MAX_TOKEN_LENGTH} printable ASCII characters with 128 random bits",
            hint="use secrets.token_urlsafe(16)",
        )
    return token


def key_maker(template: str, fn: Callable[..., Any]) -> Callable[..., str]:
    """From a template such as `order:{order_id}` and a function, what makes the key from that function's arguments."""
    try:
        fields = {text for _, text, _, _ in string.Formatter().parse(template) if text is not None}
    except ValueError as error:
        raise InvalidRequest(f"key template {shown(template)!r}: {error}", hint="write a literal brace twice") from None
    if not fields:
        return lambda *args, **kwargs: template
    signature = inspect.signature(fn)
    names = {text.partition(".")[0].partition("[")[0] for text in fields}
    open_ended = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    unknown = sorted(name for name in names if name not in signature.parameters)
    if unknown and not (open_ended and all(unknown)):
        raise InvalidRequest(
            f"key template {shown(template)!r} names {', '.join(unknown) or 'no parameter'}, which "
            f"{getattr(fn, '__qualname__', fn)} does not have",
            hint=f"its parameters are: {', '.join(signature.parameters) or 'none'}",
        )

    def make(*args: Any, **kwargs: Any) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = dict(bound.arguments)
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                values = {**values.pop(parameter.name, {}), **values}
        try:
            key = template.format_map(values)
        except (KeyError, AttributeError, IndexError, ValueError, TypeError) as error:
            raise InvalidRequest(f"key template {shown(template)!r} cannot be filled in: {error!r}") from None
        return check_key(key)

    return make


def not_acquired(key: str, *, wait: float, holder: Status | None, cancelled: bool = False) -> LockNotAcquired:
    """The error that tells who has the key, for how long, and what to do."""
    who = _describe(key, holder)
    if cancelled:
        return LockNotAcquired(f"gave up waiting, as the caller asked: {who}", key=key, holder=holder)
    if wait > 0:
        return LockTimeout(
            f"waited {wait:g} s: {who}", key=key, holder=holder, timeout=wait, hint="a longer wait= would go on waiting"
        )
    return LockNotAcquired(who, key=key, holder=holder, hint="wait= would wait for it")


def _describe(key: str, holder: Status | None) -> str:
    if holder is None or holder.state == "free":
        return f"{key!r} was not granted: others were about to get it, or the answer came too late for so short a lease"
    if holder.state == "closed":
        return f"{key!r} is closed for another {holder.free_in or 0.0:.1f} s"
    owner = f", owner {shown(holder.owner)!r}" if holder.owner else ""
    return (
        f"{key!r} is held by {shown(holder.held_by or 'somebody else')}{owner}; "
        f"its lease ends in {holder.expires_in or 0.0:.1f} s unless renewed"
    )


@functools.lru_cache(maxsize=1)
def _this_process(pid: int) -> tuple[str, str]:
    """`program@host:pid` and the metadata that every lease of this process carries."""
    import socket

    host = socket.gethostname()
    program = os.path.basename(sys.argv[0] if sys.argv and sys.argv[0] else sys.executable or "python")[:64]
    return f"{program}@{host}:{pid}", json.dumps({"host": host, "pid": pid, "program": program})
