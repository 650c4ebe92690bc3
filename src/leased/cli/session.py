"""What every subcommand gets: its arguments, the environment, the output, and the store when it asks for it."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leased import connect
from leased.checks import seconds
from leased.cli.log import log_shown
from leased.cli.output import Output
from leased.cli.settings import Place, find_place, has_secret
from leased.errors import InvalidRequest, StoreNotUsable
from leased.policy import OPERATION_TIMEOUT

if TYPE_CHECKING:
    from leased import Locks
    from leased.observe import Event

_WORRYING = {
    "at_risk": "the store has not answered for a third of the ttl; the command will be ended if this goes on",
    "clock_warning": "a clock has jumped",
    "assurance_changed": "the store gives less than before; see `leased doctor`",
}


@dataclass(frozen=True, slots=True)
class Session:
    """One run of the command line."""

    arguments: argparse.Namespace
    environment: Mapping[str, str]
    output: Output
    command: tuple[str, ...] | None = None
    """What follows the first `--` of `leased run`; `None` where there was no `--`."""

    def place(self) -> Place:
        """The store to use; says what is unwise about how it was named."""
        named: str | None = getattr(self.arguments, "place", None) or self.arguments.url
        place = find_place(named, self.environment)
        for warning in place.warnings:
            self.output.warn(warning)
        return place

    def warn_of_registry(self) -> None:
        """Say so where the option that names a registry has a password in it."""
        if self.arguments.registry and has_secret(self.arguments.registry):
            variable = "LEASED_SERVE_REGISTRY"
            self.output.warn(f"a password in an argument can be seen by everybody on this machine; use {variable}")

    @contextlib.contextmanager
    def locks(self, place: Place | None = None) -> Iterator[Locks]:
        """The store's locks, closed afterwards, with their worries told; a store for this process alone is refused."""
        place = place or self.place()
        if place.url.partition(":")[0].lower() == "memory":
            raise InvalidRequest(
                "the memory store ends with this command and excludes nobody",
                hint="name one that others can use, such as --url sqlite:/PATH/locks.db",
            )
        self.seconds("timeout")
        timeout: str | float = self.arguments.timeout or OPERATION_TIMEOUT  # as text, or it could not be shown as given
        try:
            with log_shown(self.output), connect(place.url, timeout=timeout, observer=self._worry) as locks:
                yield locks
        except StoreNotUsable as error:
            if place.chosen:
                raise
            other = "or name another store by --url or LEASED_URL"
            hint = f"{error.hint}, {other}" if error.hint else other
            raise StoreNotUsable(error.message, applied=error.applied, hint=hint) from error

    def seconds(self, name: str, *, otherwise: float = 0.0) -> float:
        """The value of an option that takes a time, in seconds; `otherwise` where it was not given."""
        given: str | None = getattr(self.arguments, name)
        if given is None:
            return otherwise
        try:
            return seconds(given, what=f"--{name.replace('_', '-')}")
        except InvalidRequest as error:  # its hint is for programs
            raise InvalidRequest(error.message, hint="write seconds, or text such as 90s, 1m30s or 250ms") from None

    def whole_number(self, name: str, *, most: int) -> int | None:
        """The value of an option that takes a whole number from 0 to `most`."""
        given: str | None = getattr(self.arguments, name)
        if given is None:
            return None
        if not given.isascii() or not given.isdecimal() or len(given) > len(str(most)) or int(given) > most:
            raise InvalidRequest(f"--{name.replace('_', '-')} takes a whole number from 0 to {most}, not {given!r}")
        return int(given)

    def _worry(self, event: Event) -> None:
        """Say at once what may end a lease later."""
        words = _WORRYING.get(event.name)
        if words is not None:
            self.output.warn(f"key {event.key!r}: {words}" if event.key else words)


Subcommand = Callable[[Session], int]
"""What runs one subcommand and returns the exit status."""
