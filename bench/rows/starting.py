"""Starting the workers of a row, ending all of them whatever happens, and finding out which peers work here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from bench.contender import ContenderFailed, Worker


@contextmanager
def started(*starters: Callable[[], Worker]) -> Iterator[list[Worker]]:
    """The workers, once all of them are ready, for as long as the block lasts."""
    with ExitStack() as stack:
        workers = [stack.enter_context(start()) for start in starters]
        for worker in workers:
            worker.ready()
        yield workers


def able(starters: Sequence[Callable[[], Worker]], **request: Any) -> tuple[list[Callable[[], Worker]], str]:
    """Those that do a first small request, and a sentence about the others: their names, and why."""
    working: list[Callable[[], Worker]] = []
    reasons: list[str] = []
    for start in starters:
        try:
            with started(start) as (worker,):
                worker.ask(**request)
        except ContenderFailed as failure:
            reasons.append(f"{failure.name} ({failure.reason})")
        else:
            working.append(start)
    return working, f" Could not be measured here: {'; '.join(reasons)}." if reasons else ""
