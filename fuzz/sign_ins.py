"""Cookies of browsers: what was not sealed here is nobody, and what was sealed is somebody or nobody."""

import base64
import hmac

from fuzz.given import text_of
from leased.server.sessions import PURPOSE, Session, Sessions

_sessions = Sessions(PURPOSE, wall=lambda: 1_000.0)


def check(data: bytes) -> None:
    """Nothing is raised; without the seal nobody is let in, and with it nobody beyond his time."""
    assert _sessions.read(text_of(data)) is None
    seal = hmac.digest(PURPOSE, data, "sha256").hex()
    found = _sessions.read(f"{base64.urlsafe_b64encode(data).rstrip(b'=').decode()}.{seal}")
    assert found is None or isinstance(found, Session)
    if found is not None:
        assert found.until > 1_000.0
        assert _sessions.read(_sessions.seal(found)) == found
