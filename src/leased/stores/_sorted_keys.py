"""The keys of a mapping in order, for pages. It costs nothing while they are few and nobody asks for pages."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping

_SLACK = 1000
_BLOCK = 500
"""Keys of a block as they are cut; it is cut again at twice as many, so that none is dear to put something into."""
_MANY = 10_000
"""Keys from which on they are kept in order as they come and go: to sort a million for the first page takes a second,
in which nobody else is answered."""


class SortedKeys:
    """Sorted when the first page is asked for, or when they become many, in blocks. Afterwards new keys are noted, and
    put into their blocks by the next page, or a few at a time where they are many. Keys that are gone are passed over,
    until they are half of all; where they are many they are taken out, block by block.
    """

    __slots__ = ("_added", "_blocks", "_count", "_firsts", "_records", "_tended", "used")

    def __init__(self, records: Mapping[str, object]) -> None:
        self._records = records
        self._forget()

    def _forget(self) -> None:
        self.used = False  # whether new keys are to be noted
        self._blocks: list[list[str]] = []
        self._firsts: list[str] = []
        self._added: list[str] = []
        self._count = 0
        self._tended = 0

    def tend(self) -> None:
        """Do what is due now and then, in a bounded time: nothing, unless the keys are many."""
        if len(self._records) < _MANY:
            return
        self._put_in_order()
        index = self._tended % len(self._blocks)
        self._tended = index + 1
        block = self._blocks[index]
        there = [key for key in block if key in self._records]
        if there or len(self._blocks) == 1:
            self._blocks[index] = there
        else:
            del self._blocks[index], self._firsts[index]
        self._count -= len(block) - len(there)

    def add(self, key: str) -> None:
        """A key is about to come, and is noted first: an interrupt in between leaves one too many, not one too few."""
        self._added.append(key)
        if len(self._added) > self._count + _SLACK:  # nobody asks for pages any more
            self._forget()

    def page(self, prefix: str, *, after: str) -> Iterator[str]:
        """The keys with this prefix above `after`, in order. Nothing may come or go meanwhile."""
        self._put_in_order()
        last = None
        for index in range(max(self._block_of(max(prefix, after)), 0), len(self._blocks)):
            block = self._blocks[index]
            for place in range(max(bisect_right(block, after), bisect_left(block, prefix)), len(block)):
                key = block[place]
                if not key.startswith(prefix):
                    return
                if key != last and key in self._records:  # one that came again stands here twice
                    yield key
                last = key

    def _block_of(self, key: str) -> int:
        """The block in which it stands, or would: the last that begins below it, or with it."""
        return bisect_left(self._firsts, key) - 1

    def _put_in_order(self) -> None:
        if not self.used or self._count + len(self._added) > 2 * len(self._records) + _SLACK:
            self._cut(sorted(self._records))
            return
        while self._added:  # a key stays noted until it is in its block: an interrupt may come in between
            key = self._added[-1]
            index = max(self._block_of(key), 0)
            block = self._blocks[index]
            insort(block, key)
            self._firsts[index] = min(block[0], self._firsts[index])
            if len(block) > 2 * _BLOCK:
                self._blocks[index : index + 1] = block[:_BLOCK], block[_BLOCK:]
                self._firsts[index : index + 1] = block[0], block[_BLOCK]
            self._count += 1
            self._added.pop()

    def _cut(self, keys: list[str]) -> None:
        self.used, self._added, self._count = True, [], len(keys)
        self._blocks = [keys[begin : begin + _BLOCK] for begin in range(0, len(keys), _BLOCK)] or [[]]
        self._firsts = [block[0] for block in self._blocks if block] or [""]
