"""One worker process: `python -m nemesis.worker ORDERS` with its orders as JSON. It ends with whoever started it.

It says on standard output when it is ready, and reads from standard input until when it shall work.
"""

from __future__ import annotations

import ctypes
import json
import logging
import signal
import sys
import warnings
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random

from nemesis.faces import FACES
from nemesis.hand import Hand, observe
from nemesis.history import Recorder
from nemesis.planted import connect

TIMEOUT = 2.0
"""Seconds a call of a worker to the store may take."""

HANDS = 2
"""Threads or tasks of one worker."""

READY = "ready"
"""What it says."""

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Orders:
    """What a worker shall do. `bug` is the planted one, or empty."""

    name: str
    face: str
    url: str
    directory: str
    keys: tuple[str, ...]
    seed: str
    bug: str = ""

    def command(self) -> list[str]:
        """The command that carries them out."""
        return [sys.executable, "-m", "nemesis.worker", json.dumps(asdict(self))]


def main() -> None:
    """Carry out the orders, to the end."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a stopped process could not see that it is alone
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore", ResourceWarning)  # handles are dropped on purpose
    orders = Orders(**json.loads(sys.argv[1]))
    directory = Path(orders.directory)
    face = FACES[orders.face]()
    with Recorder(directory / f"{orders.name}.jsonl", who=orders.name) as recorder:
        locks = connect(face.module, orders.url, bug=orders.bug, timeout=TIMEOUT, observer=observe(recorder))
        hands: list[Hand] = []
        for number in range(HANDS):
            hand = Hand(
                face,
                locks,
                recorder=recorder,
                keys=list(orders.keys),
                guards=directory,
                chance=Random(f"{orders.seed}/{orders.name}/{number}"),
            )
            hands.append(hand)
        print(READY, flush=True)
        until = float(sys.stdin.readline())
        face.run([partial(hand.work, until) for hand in hands])
        recorder.record("end")


if __name__ == "__main__":
    main()
