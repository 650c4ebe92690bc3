"""URLs of stores: read apart, refused with words, and never shown with a secret."""

from contextlib import suppress
from importlib import import_module

from fuzz.given import text_of
from leased.clocks import BlockingClock
from leased.errors import LeasedError
from leased.targets import Options, hide_secrets, read_url

_SECRET = "s3cr3t-canary"
_READERS = {
    "redis": ("leased.stores._redis_url", 1), "rediss": ("leased.stores._redis_url", 1),
    "valkey": ("leased.stores._redis_url", 1), "redis+unix": ("leased.stores._redis_url", 1),
    "redis+cluster": ("leased.stores._redis_url", 1), "redis+sentinel": ("leased.stores._redis_url", 1),
    "http": ("leased.stores._http_url", 2), "https": ("leased.stores._http_url", 2),
}  # fmt: skip
_CLOCK = BlockingClock()


def check(data: bytes) -> None:
    """Only errors of the package are raised, and neither they nor what is shown have the password."""
    for url in (text_of(data), text_of(data).replace("PASSWORD", _SECRET)):
        shown = hide_secrets(url)
        assert shown.isprintable()
        _unless_told(url, shown)
        try:
            target = read_url(url, Options(clock=_CLOCK))
            _unless_told(url, target.shown)
            _open(target.scheme, target.url, target.options)
        except LeasedError as error:
            _unless_told(url, f"{error.message} {error.hint}")


def _unless_told(url: str, text: str) -> None:
    """A password stands between a colon and an at sign; elsewhere nobody can tell."""
    if f":{_SECRET}@" in url.partition("?")[0] and url.count(_SECRET) == 1:
        assert _SECRET not in text, f"{text!r} shows the password of {url!r}"


def _open(scheme: str, url: str, options: Options) -> None:
    if scheme in _READERS:
        module, count = _READERS[scheme]
        address = import_module(module).read_address(*(url, options)[:count])
        _unless_told(url, f"{address} {address!r}")
    elif scheme in ("mysql", "mariadb"):
        place = import_module("leased.stores._mysql_place").place(url)
        _unless_told(url, repr(place))
    elif scheme in ("memory", "sqlite"):
        with suppress(LeasedError):
            import_module(f"leased.stores.{scheme}").place_of(url)
