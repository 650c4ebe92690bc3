"""Walks along the numbers of a stream, many questions at once. It knows no server, and nothing of what is found."""

from __future__ import annotations

from collections.abc import Sequence

_LANES = 64
_FASTER = 8


class Walk:
    """Meets every message from a number on, by asking again and again for the first one at or behind some number.

    A stretch is cut into lanes that are walked at once, each from what it met last to its end. `stride`, the width of
    a lane, follows from how far apart the messages of the last stretch were; what it is at the end suits the next walk.
    """

    def __init__(self, number: int, *, stride: int) -> None:
        self.stride = stride
        self._nothing_behind = False
        self._lanes = [(number, number + 1)]  # a single question first: mostly there is nothing at all
        self._behind = number + 1
        self._count = 1
        self._met: set[int] = set()

    @property
    def over(self) -> bool:
        """Whether nothing more is to be met."""
        return self._nothing_behind and not self._lanes

    @property
    def reached(self) -> int:
        """Everything that lies before this number was met."""
        return self._lanes[0][0] if self._lanes else self._behind

    def numbers(self, most: int) -> list[int]:
        """What to ask for now, at most so many; none where the walk is over."""
        if not self._lanes and not self._nothing_behind:
            self._fit()
            self._count, begin = min(most, _LANES), self._behind
            self._behind += self._count * self.stride
            self._lanes = [(place, place + self.stride) for place in range(begin, self._behind, self.stride)]
        return [begin for begin, _ in self._lanes[:most]]

    def take(self, met: Sequence[int | None]) -> None:
        """What the first of these questions met, in order: the number of a message, `None` for nothing from there on.

        Questions for which there is no answer are asked again.
        """
        asked, rest = self._lanes[: len(met)], self._lanes[len(met) :]
        self._lanes = []
        for (begin, end), number in zip(asked, met, strict=True):
            if number is None:
                self._nothing_behind, self._behind, rest = True, begin, []
                break
            self._met.add(number)
            self._behind = max(self._behind, number + 1)
            if number + 1 < end:
                self._lanes.append((number + 1, end))
        self._lanes += rest

    def end(self) -> None:
        """No more is asked. A stretch that was begun was too wide: what lies behind its lanes was not reached."""
        if self._lanes:
            self.stride = max(self.stride // 2, 1)

    def _fit(self) -> None:
        if self._met:
            fitting = self.stride * self._count // len(self._met)
            self.stride = max(min(fitting, _FASTER * self.stride), 1)
            self._met.clear()
