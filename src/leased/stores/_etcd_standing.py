"""What an etcd cluster really gives, by its list of members; in words of `Assurance`. It asks nothing."""

from __future__ import annotations

from typing import Any

from leased.model import Assurance
from leased.stores._cas_clock import clocks_note
from leased.targets import Options

_FENCE = "rises with each grant while the record of the key is kept (a day after it opened), then by clients' clocks"


def read_assurance(answer: dict[str, Any] | None, options: Options) -> Assurance:
    """What that list means for a store with these options; `None`: the user may not see it."""
    notes = [clocks_note(options)]
    durable = "every answer survives a restart, and the loss of less than half of the members"
    if answer is None:
        notes.append("this user may not see how many members there are")
    else:
        voters = sum(1 for member in answer["members"] if not member.get("isLearner"))
        spare = (voters - 1) // 2
        if voters == 1:
            durable = "every answer survives a restart of the only member, and nothing the loss of its disk"
            notes.append("etcd has a single member: nobody can take over from it")
        else:
            durable = f"every answer survives a restart, and the loss of {spare} of {voters} members"
            if not spare:
                notes.append(f"etcd has {voters} members: it stops when it loses one; three can lose one")
    return Assurance(
        exclusive="consensus",
        early_loss=False,
        durable=durable,
        takeover=options.takeover,
        fence=_FENCE,
        notes=tuple(notes),
    )
