"""What the sessions of one store remember together. It may be wrong: every statement is right whatever this says."""

from __future__ import annotations

_MOST_KEYS = 4096


class Memory:
    """How far the sweep of the records is, and some keys that have one; for all threads."""

    __slots__ = ("_keys", "after")

    def __init__(self) -> None:
        self.after: tuple[bytes, bytes] = (b"", b"")
        """The namespace and key at which the next step of the sweep begins."""
        self._keys: set[str] = set()

    def is_new(self, key: str) -> bool:
        """Whether this is the first time that this key is asked about: it may have no record yet."""
        if key in self._keys:
            return False
        if len(self._keys) >= _MOST_KEYS:
            self._keys.clear()
        self._keys.add(key)
        return True
