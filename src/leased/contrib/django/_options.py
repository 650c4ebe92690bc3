"""The OPTIONS of an entry of `DATABASES` as parameters of a store's URL. What says how a connection is secured is
carried over or refused, and never left out."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from leased.checks import shown
from leased.errors import InvalidRequest

_POSTGRES = frozenset(
    {
        "channel_binding",
        "gssdelegation",
        "gssencmode",
        "gsslib",
        "krbsrvname",
        "max_protocol_version",
        "min_protocol_version",
        "options",
        "passfile",
        "require_auth",
        "requirepeer",
        "service",
    }
)
_FILES = {"ca": "ssl_ca", "cert": "ssl_cert", "key": "ssl_key"}
_DRIVER = frozenset({*_FILES.values(), "ssl_verify_cert", "ssl_verify_identity", "ssl_disabled"})
_MODES: dict[str, bool | None] = {"REQUIRED": None, "VERIFY_CA": True, "VERIFY_IDENTITY": True}
_SECURITY = frozenset({"channel_binding", "service", "passfile", "read_default_file", "read_default_group"})
_VERIFY = {
    **dict.fromkeys(("none", "0", "false", "no"), False),
    **dict.fromkeys(("required", "1", "true", "yes"), True),
}


def url_parameters(scheme: str, options: Mapping[str, Any], *, alias: str) -> dict[str, str]:
    """What the URL of the store says of these options; others than those of security are left out.

    MySQL: TLS is that of the store, which verifies chain and name of the server, or nothing: where only the chain was
    to be verified the name is, too, and so is the chain where an authority is named. Raises `InvalidRequest`, with the
    name of the option, for what of security the store cannot do.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if scheme == "postgresql":
        kept = {name: value for name, value in given.items() if name in _POSTGRES or name.startswith("ssl")}
        for name, value in kept.items():
            if not isinstance(value, str | int):
                raise _refusal(alias, name)
        return {name: str(int(value) if isinstance(value, bool) else value) for name, value in kept.items()}
    carried = _DRIVER | {"ssl", "ssl_mode"}
    for name in given:
        if name not in carried and (name.startswith("ssl") or name in _SECURITY):
            raise _refusal(alias, name)
    return _mysql(given, alias=alias)


def _mysql(given: Mapping[str, Any], *, alias: str) -> dict[str, str]:
    """As the drivers read them, which know a mapping `ssl`, a word `ssl_mode`, and names of their own beside."""
    mode = str(given.get("ssl_mode", "")).upper()
    if given.get("ssl_disabled") or mode == "DISABLED":
        return {}
    if mode and mode not in _MODES:  # such as PREFERRED: with TLS or without, as it happens
        raise _refusal(alias, f"ssl_mode={mode}")
    told = given.get("ssl") or {}
    if not isinstance(told, Mapping):
        raise _refusal(alias, "ssl")
    for name in told:
        if name not in {*_FILES, "check_hostname", "verify_mode"}:
            raise _refusal(alias, f"ssl[{shown(name)!r}]")
    files = {_FILES[name]: value for name, value in told.items() if name in _FILES and value}
    files |= {name: given[name] for name in _FILES.values() if given.get(name)}
    said = (
        _MODES.get(mode),
        _verify(told.get("verify_mode"), alias=alias),
        given.get("ssl_verify_cert"),
        given.get("ssl_verify_identity") or None,
        told.get("check_hostname") or None,
    )
    if not (mode or told or files or any(said)):
        return {}
    verify = any(said) or ("ssl_ca" in files and all(one is None for one in said))
    return {"ssl": "true", **{name: str(value) for name, value in files.items()}, "ssl_verify": str(verify).lower()}


def _verify(mode: Any, *, alias: str) -> bool | None:
    """What `verify_mode` says: a flag, a word, or one of the numbers of `ssl`."""
    if mode is None or isinstance(mode, bool):
        return mode
    if isinstance(mode, ssl.VerifyMode):
        return mode is not ssl.CERT_NONE
    found = _VERIFY.get(str(mode).lower())
    if found is None:
        raise _refusal(alias, "ssl['verify_mode']")
    return found


def _refusal(alias: str, name: str) -> InvalidRequest:
    return InvalidRequest(
        f"the option {name} of the database {alias!r} cannot be carried over to the store of the locks",
        hint='set LEASED = {"STORE": URL} with the parameters that the store knows',
    )
