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

from nemesis import peers
from nemesis.faces import FACES
from nemesis.hand import ROUNDS, TTLS, Hand, observe
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
    """What a worker shall do. `bug` is the planted one, `peer` another library to use instead of ours; or empty.

    `python` is the one that has that library.
    """

    name: str
    face: str
    url: str
    directory: str
    keys: tuple[str, ...]
    seed: str
    bug: str = ""
    peer: str = ""
    python: str = sys.executable

    def command(self) -> list[str]:
        """The command that carries them out."""
        return [self.python, "-m", "nemesis.worker", json.dumps(asdict(self))]


def main() -> None:
    """Carry out the orders, to the end."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a stopped process could not see that it is alone
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore", ResourceWarning)  # handles are dropped on purpose
    orders = Orders(**json.loads(sys.argv[1]))
    directory = Path(orders.directory)
    face = FACES[orders.face]()
    with Recorder(directory / f"{orders.name}.jsonl", who=orders.name) as recorder:
        rounds, ttls = (peers.rounds(orders.peer), peers.TTLS) if orders.peer else (ROUNDS, TTLS)
        if orders.peer:
            locks = peers.connect(orders.peer, orders.url, timeout=TIMEOUT)
        else:
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
                rounds=rounds,
                ttls=ttls,
            )
            hands.append(hand)
        print(READY, flush=True)
        until = float(sys.stdin.readline())
        face.run([partial(hand.work, until) for hand in hands])
        recorder.record("end")


if __name__ == "__main__":
    main()
