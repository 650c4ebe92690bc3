"""Server-sent events as the service writes them: whatever a key is called, it is one event with one line of data."""

import json

from fuzz.given import text_of
from leased.server.events import _write


def check(data: bytes) -> None:
    """Read back as the standard says, there is the one event that was written."""
    key = data.decode(errors="replace")
    frame = _write("force_released", {"event": "force_released", "key": key, "by": text_of(data).encode().hex()
                                      if data.isascii() else "x"})  # fmt: skip
    assert frame.endswith(b"\n\n")
    text = frame.decode()
    events = [event for event in text.replace("\r\n", "\n").replace("\r", "\n").split("\n\n") if event]
    assert len(events) == 1
    fields = [line.partition(": ") for line in events[0].split("\n")]
    assert [name for name, _, _ in fields] == ["event", "data"]
    assert json.loads(fields[1][2])["key"] == key
