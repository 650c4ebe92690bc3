"""The store that a Django project's settings name, and its locks. Nothing is opened before first use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import leased
from leased.contrib.django._options import url_parameters
from leased.errors import InvalidRequest

_KNOWN = frozenset({"STORE", "DATABASE", "OPTIONS"})
_SCHEMES = {
    "django.db.backends.postgresql": "postgresql",
    "django.contrib.gis.db.backends.postgis": "postgresql",
    "django.db.backends.mysql": "mysql",
    "django.contrib.gis.db.backends.mysql": "mysql",
}
_opened: dict[tuple[str, tuple[tuple[str, Any], ...]], leased.Locks] = {}
_SQLITE = frozenset({"django.db.backends.sqlite3", "django.contrib.gis.db.backends.spatialite"})


def store_url() -> str:
    """The URL of the store: `LEASED["STORE"]`, or made of the entry of `DATABASES` that `LEASED["DATABASE"]` names.

    That is `default` unless it is named. PostgreSQL and MySQL keep locks in tables of their own in that database;
    beside an SQLite database lies a file for them, of the same name with `.locks` at the end. TLS is as in the OPTIONS
    of that entry, and never less. The URL may hold a password.
    Raises `InvalidRequest` for settings that name no store, for databases that can be none, and for options of security
    that the store cannot keep to.
    """
    from django.conf import settings  # type: ignore[import-untyped]

    given = _given()
    if "STORE" in given:
        return str(given["STORE"])
    alias = given.get("DATABASE", "default")
    database = settings.DATABASES.get(alias)
    if not database:
        raise InvalidRequest(
            f"the settings have no database {alias!r} to keep locks in",
            hint='set LEASED = {"STORE": URL}, or name one of DATABASES as "DATABASE"',
        )
    return _url_of(alias, database)


def locks() -> leased.Locks:
    """The locks of this project, for blocking callers: the same for all, opened on first use and kept open.

    `OPTIONS` in `LEASED` are those of `leased.connect`, such as `timeout` and `namespace`.
    """
    options = _given().get("OPTIONS", {})
    asked = store_url(), tuple(sorted(options.items()))
    found = _opened.get(
        asked
    )  # of two threads that open at once the second takes what the first has; no mutex, see L13
    return found or _opened.setdefault(asked, leased.connect(asked[0], **options))


def _given() -> Mapping[str, Any]:
    from django.conf import settings

    given: Mapping[str, Any] = getattr(settings, "LEASED", {})
    unknown = sorted(given.keys() - _KNOWN)
    if unknown or {"STORE", "DATABASE"} <= given.keys():
        wrong = f"does not know {', '.join(unknown)}" if unknown else "names both STORE and DATABASE"
        raise InvalidRequest(f"the setting LEASED {wrong}", hint="it takes STORE or DATABASE, and OPTIONS")
    return given


def _url_of(alias: str, database: Mapping[str, Any]) -> str:
    engine, name = str(database.get("ENGINE", "")), str(database.get("NAME", ""))
    if engine in _SQLITE:
        if not name or ":memory:" in name or "mode=memory" in name:
            raise InvalidRequest(
                f"the database {alias!r} is in memory, where no other process can see its locks",
                hint='set LEASED = {"STORE": "memory:"} if that is meant',
            )
        return f"sqlite:{name}.locks"
    scheme = _SCHEMES.get(engine)
    if scheme is None:
        raise InvalidRequest(
            f"the database {alias!r} ({engine or 'without ENGINE'}) cannot keep locks",
            hint='set LEASED = {"STORE": URL}',
        )
    user, password = str(database.get("USER", "")), str(database.get("PASSWORD", ""))
    host, port = str(database.get("HOST", "")), str(database.get("PORT", ""))
    secret = f":{quote(password, safe='')}" if password else ""
    who = f"{quote(user, safe='')}{secret}@" if user else ""
    kept = url_parameters(scheme, database.get("OPTIONS") or {}, alias=alias)
    if host.startswith("/"):  # a Unix socket
        kept |= {"host": host, **({"port": port} if port else {})} if scheme == "postgresql" else {"unix_socket": host}
        host = port = ""
    where = f"{f'[{host}]' if ':' in host else host}{f':{port}' if port else ''}"
    if scheme == "mysql" and not where:
        where = "localhost"
    return f"{scheme}://{who}{where}/{quote(name, safe='')}{f'?{urlencode(kept, quote_via=quote)}' if kept else ''}"
