"""Starting the workers of a row, and ending all of them whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from bench.contender import Worker


@contextmanager
def started(*starters: Callable[[], Worker]) -> Iterator[list[Worker]]:
    """The workers, once all of them are ready, for as long as the block lasts."""
    with ExitStack() as stack:
        workers = [stack.enter_context(start()) for start in starters]
        for worker in workers:
            worker.ready()
        yield workers
