"""URLs of stores: read apart, refused with words, and never shown with a secret."""

from contextlib import suppress
from importlib import import_module

from fuzz.given import text_of
from leased.clocks import BlockingClock
from leased.errors import LeasedError
from leased.targets import Options, hide_secrets, read_url

_SECRET = "s3cr3t-canary"
_READERS = {
    **dict.fromkeys(
        ("redis", "rediss", "valkey", "redis+unix", "redis+cluster", "redis+sentinel"),
        ("_redis_url", "read_address", 1),
    ),
    **dict.fromkeys(("http", "https"), ("_http_url", "read_address", 2)),
    **dict.fromkeys(("etcd", "etcds"), ("_etcd_url", "read_address", 2)),
    **dict.fromkeys(("nats", "natss"), ("_nats_url", "read_address", 2)),
    "dynamodb": ("_dynamodb_url", "read_table", 2),
    **dict.fromkeys(("mysql", "mariadb"), ("_mysql_place", "place", 1)),
    **dict.fromkeys(("postgres", "postgresql"), ("postgres", "_address", 1)),
}
"""By scheme: the module that reads the URL, its function, and how much that is given."""
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
        module, reader, count = _READERS[scheme]
        address = getattr(import_module(f"leased.stores.{module}"), reader)(*(url, options)[:count])
        _unless_told(url, f"{address} {address!r}")
    elif scheme in ("memory", "sqlite"):
        with suppress(LeasedError):
            import_module(f"leased.stores.{scheme}").place_of(url)
