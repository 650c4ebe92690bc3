"""Reading a server's URL apart. It opens no connection."""

from __future__ import annotations

from urllib.parse import urlsplit


def host_and_port(url: str) -> tuple[str, int]:
    """Where the server is."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port
