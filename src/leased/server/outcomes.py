"""What came of operations on locks, in words of this program's own: they become labels and names of events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from leased.model import Abandon, Acquire, Contended, Held, Look, Lost, Operation, Release, Released, Renew
from leased.server.principals import Action

Outcome: TypeAlias = Held | Contended | Lost | Released | None

ACTIONS: Mapping[type[Operation], Action] = {
    Acquire: "acquire",
    Renew: "renew",
    Release: "release",
    Abandon: "abandon",
    Look: "look",
}
WORDS: Mapping[type, str] = {Held: "held", Contended: "contended", Lost: "lost", type(None): "abandoned"}
"""For outcomes of all types but `Released`, which has a reason."""


def word_of(outcome: Outcome) -> str:
    """What came of it."""
    if isinstance(outcome, Released):
        return outcome.reason or "released"
    return WORDS[type(outcome)]
