"""What a lock is called in Redis: one name, in a hash slot that the key alone decides. It asks no server."""

from __future__ import annotations

_IN_KEY = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})
_IN_NAMESPACE = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D", ":": "%3A"})
_GLOB = str.maketrans({character: f"\\{character}" for character in "\\*?[]^-"})


class Names:
    """The names of one namespace: `leased:NAMESPACE:{KEY}` is the record of a key, and the channel of its releases.

    The braces make the key alone decide the slot; within them stand no others, for those of a key are escaped.
    """

    __slots__ = ("_prefix",)

    def __init__(self, namespace: str) -> None:
        self._prefix = f"leased:{namespace.translate(_IN_NAMESPACE)}:{{"

    def record(self, key: str) -> bytes:
        """The name of the record of a key."""
        if "{" in key or "}" in key or "%" in key:  # looking is much cheaper than translating
            key = key.translate(_IN_KEY)
        return f"{self._prefix}{key}}}".encode()

    def key(self, record: bytes) -> str | None:
        """The key whose record has this name; `None` for a name that none has, for others may write there too."""
        try:
            inner = record.decode()[len(self._prefix) : -1]
        except UnicodeDecodeError:
            return None
        return inner.replace("%7B", "{").replace("%7D", "}").replace("%25", "%")

    def pattern(self, prefix: str) -> bytes:
        """What matches the records of keys that begin so."""
        return f"{self._prefix.translate(_GLOB)}{prefix.translate(_IN_KEY).translate(_GLOB)}*}}".encode()
