"""Words for whoever answers where a lock service should: what was met, and what to try. It reads no answers itself."""

from __future__ import annotations

import re
from html import unescape

from leased.checks import shown
from leased.stores._dial import next_step
from leased.stores._http_wire import Answer, NotHttp
from leased.targets import hide_secrets

MAY_WANT_TLS = "if that port speaks TLS, write https:// in the URL"
NO_TLS = "if that port speaks plain HTTP, write http:// in the URL; leased serve speaks TLS with --tls-certificate"
NO_SERVICE = "no lock service answers there: check host, port and path of the URL; leased serve takes port 8370 itself"
_BEFORE_IT = "a proxy or balancer answered in its place: see that the service behind it runs and is ready (/readyz)"
_LOGIN = "something before the service wants a login of its own: it has to let requests to the service pass"
_TITLE = re.compile(rb"<title[^>]*>\s*([^<]{1,300})", re.IGNORECASE)
_LOOKED_AT = 4096


def met(answer: Answer) -> str:
    """What an answer holds that no lock service gave."""
    begin = answer.body[:_LOOKED_AT].strip()
    if not begin:
        return "nothing in it"
    if begin[:1] == b"<":
        title = _TITLE.search(begin)
        return f"a web page ({_text(title[1])!r})" if title else "a web page"
    if begin[:1] in (b"{", b"["):
        return "JSON that is not its own"
    return f"the text {_text(begin)!r}"


def advice(answer: Answer, *, tls: bool) -> str:
    """What to try after such an answer."""
    if 300 <= answer.status < 400 and answer.location:
        return f"it says to go to {hide_secrets(answer.location)}: name the service by its final URL"
    if answer.status in (502, 503, 504):
        return _BEFORE_IT
    if answer.status in (401, 403, 407):
        return _LOGIN
    if answer.status == 400 and not tls and re.search(rb"https|ssl", answer.body[:_LOOKED_AT], re.IGNORECASE):
        return MAY_WANT_TLS
    return NO_SERVICE


def said(error: NotHttp) -> str:
    """What came that is no answer of HTTP."""
    if _is_tls(error):
        return "it speaks TLS"
    return f"it says {_text(error.first)!r}" if error.first else str(error)


def hint_of(error: BaseException | None) -> str | None:
    """What to try where no connection came about, or what came over it was no HTTP."""
    if isinstance(error, NotHttp):
        return "write https:// in the URL" if _is_tls(error) else NO_SERVICE if error.first else None
    return next_step(error)


def _is_tls(error: NotHttp) -> bool:
    return error.first[:2] in (b"\x15\x03", b"\x16\x03")  # a record of TLS: an alert, or a handshake


def _text(begin: bytes) -> str:
    """The first line of it, short; not one that repeats the credential that was shown."""
    line = unescape(begin.decode("utf-8", "replace")).strip().partition("\n")[0]
    return "…" if "bearer" in line.lower() else shown(" ".join(line.split()))
