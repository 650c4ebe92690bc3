"""What is told of a failing store or registry: all of it to the log, to a caller what he may know. It asks nobody."""

from __future__ import annotations

import logging
from collections.abc import Callable

from leased.errors import LeasedError, StoreNotUsable, StoreUnavailable
from leased.server.principals import Principal
from leased.server.rights import may

SAID_EVERY = 1.0
"""Seconds between two lines of the log about such failures: in an outage every request is one."""

_SILENT = "what the service keeps its locks and credentials in gave no answer"
_UNFIT = "what the service keeps its locks and credentials in cannot be used as it is set up"
_WHO_KNOWS = "an admin of the project is told more, and the log of the service says all"
_log = logging.getLogger("leased.server.troubles")


class ServiceUnavailable(StoreUnavailable):
    """The service itself has no answer. The words are its own, name no place, and are for everybody."""


class Troubles:
    """The failures that one service met. `now` gives seconds on a clock that never goes back.

    `met`: whether somebody was told of one; whoever finds out that it is over sets it back.
    """

    def __init__(self, *, now: Callable[[], float]) -> None:
        self.met = False
        self._now = now
        self._said_at = float("-inf")
        self._unsaid = 0

    def told(self, error: LeasedError, *, to: Principal | None, request_id: str | None = None) -> LeasedError:
        """What somebody is told of an error that ended his request; `to`: `None` where nobody knows who it is.

        Paths, addresses and users of a store or registry are for those who look after the project; the others are told
        what they can act by: whether it may have happened, and whether to try again.
        """
        if not isinstance(error, StoreUnavailable) or isinstance(error, ServiceUnavailable):
            return error
        self.met = True
        self.note(error, request_id=request_id)
        if to is not None and may(to, "manage"):
            return error
        if isinstance(error, StoreNotUsable):
            hidden: StoreUnavailable = StoreNotUsable(_UNFIT, applied=error.applied, hint=_WHO_KNOWS)
        else:
            hidden = StoreUnavailable(_SILENT, applied=error.applied, hint=_WHO_KNOWS)
        hidden.retry_after = error.retry_after
        return hidden

    def note(self, error: LeasedError, *, request_id: str | None = None) -> None:
        """Write a failure to the log, or count it for the next line there."""
        now = self._now()
        if now < self._said_at + SAID_EVERY:
            self._unsaid += 1
            return
        self._said_at, unsaid, self._unsaid = now, self._unsaid, 0
        text = "".join(sign if sign.isprintable() else " " for sign in str(error))
        _log.warning("%s [request %s; %d others failed since the last such line]", text, request_id or "-", unsaid)
