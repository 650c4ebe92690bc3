"""How failures of MySQL and MariaDB are told: what, where, what is known of the effect, what next. It opens nothing."""

from __future__ import annotations

import errno
import struct

from leased.errors import StoreNotUsable, StoreUnavailable
from leased.stores._dial import CHECK_HOST, NOTHING_THERE

GARBAGE = (ValueError, LookupError, TypeError, AttributeError, AssertionError, EOFError, RuntimeError, struct.error)
"""What the drivers raise besides their own errors, when they are told what no server would say."""

NO_TABLE, DUPLICATE = 1146, 1062
LOCKED = frozenset({1205, 3572})
"""Somebody kept a row or a table locked for longer than the server was told to wait."""

# The server has undone the whole transaction, or never begun the statement: asking again is safe.
_CONFLICTS = LOCKED | {1213, 1020, 1479, DUPLICATE}
_HELD = "somebody holds a lock on the row or the table: see information_schema.innodb_trx; then ask again"
_FULL = "free some space on the disk of the server"
_READ_ONLY = "this server is read-only: a replica, or a primary that was replaced; use the one that takes writes"
# Said before anything was done; what it was said to did not happen, and may happen later.
_LATER = {
    1040: "raise max_connections of the server, or lower leased_pool",
    1203: "raise max_user_connections of this account, or lower leased_pool",
    1226: "raise the limits of this account",
    1041: None,
    1037: None,
    1038: None,
    1021: _FULL,
    1114: _FULL,
    1047: "this node of the cluster has lost the others: wait for it, or use another node",
    1290: _READ_ONLY,
    1792: _READ_ONLY,
    1836: _READ_ONLY,
    1129: "the server refuses this host after errors: FLUSH HOSTS there",
}
_RIGHTS = "the account needs SELECT, INSERT, UPDATE and DELETE on the tables of the store, and CREATE to make them"
_SIGN_IN = "check the user and the password in the URL, and whether the server insists on TLS (ssl=true)"
_OTHER_TABLES = "the tables were made by another version of leased: compare with what `leased schema URL` prints"
_NO_SIGN_IN = "the account uses a way to sign in that this driver does not know"
# What no second attempt will change.
_NEVER = {
    1044: _RIGHTS,
    1045: _SIGN_IN,
    1698: _SIGN_IN,
    1142: _RIGHTS,
    1143: _RIGHTS,
    1227: _RIGHTS,
    1049: "make the database first: CREATE DATABASE",
    1130: "the server admits no connections from this host",
    1251: _NO_SIGN_IN,
    2059: _NO_SIGN_IN,
    1862: "the password has expired",
    1820: "the password has expired",
    3118: "the account is locked",
    4151: "the account is locked",
    3159: "the server insists on TLS: add ssl=true to the URL",
    NO_TABLE: "run what `leased schema URL` prints",
    1054: _OTHER_TABLES,
    1136: _OTHER_TABLES,
    1364: _OTHER_TABLES,
    1406: _OTHER_TABLES,
    1071: "the server needs innodb_page_size of 16k or more",
    1286: "the tables need InnoDB",
    1665: "set binlog_format to ROW or MIXED",
    1064: "leased needs MySQL 8.0 or MariaDB 10.6, or newer",
    1305: None,
    2026: "check the TLS parameters of the URL and the certificate of the server",
}
# After these the server, or another that took its place, is better asked on a new connection.
_ENDS = frozenset({1040, 1047, 1053, 1129, 1203, 1226, 1290, 1317, 1792, 1836, 1927})
_SERVER_SIDE, _CLIENT_SIDE = 1000, 2000
NO_WAY = 2003
"""What the drivers call it when there is no connection to a host."""
CUT_WHILE_SENDING, CUT = 2006, 2013
"""What the drivers call the end of a connection, before and after all was sent."""


class Trouble(Exception):
    """One exchange failed, as the driver tells it: a number, 0 where there is none, and what was said."""

    def __init__(self, number: int, said: str) -> None:
        super().__init__(number, said)
        self.number = number
        self.said = said

    @property
    def conflict(self) -> bool:
        """Whether others were in the way, and what was asked has surely been undone."""
        return self.number in _CONFLICTS

    @property
    def answered(self) -> bool:
        """Whether the server said so and goes on with the connection, for which there is no reason to open another."""
        said_so = self.number >= _SERVER_SIDE and not _CLIENT_SIDE <= self.number < _CLIENT_SIDE + 1000
        return said_so and self.number not in _ENDS


def trouble(error: BaseException) -> Trouble:
    """What a driver raised, told alike for both."""
    number = error.args[0] if error.args else 0
    if isinstance(number, int) and len(error.args) > 1:
        return Trouble(number, str(error.args[1]))
    return Trouble(0, str(error) or type(error).__name__)


def failure(found: Trouble, *, place: str, writing: bool) -> StoreUnavailable:
    """What to raise for it. `writing`: what was asked could have had its effect before it failed."""
    number = found.number
    message = f"{place} {'refused' if found.answered else 'failed'}: {found.said}"
    if found.conflict:
        hint = _HELD if number in LOCKED else None
        return StoreUnavailable(f"{place} stayed busy with others: {found.said}", applied=False, hint=hint)
    if number in _LATER:
        return StoreUnavailable(message, applied=False, hint=_LATER[number])
    if number in _NEVER:
        return StoreNotUsable(message, hint=_NEVER[number])
    if "CERTIFICATE_VERIFY_FAILED" in found.said:
        return StoreNotUsable(message, hint="name the authority that signed the certificate of the server: ssl_ca=FILE")
    if "package is required" in found.said:
        return StoreNotUsable(message, hint="install it; for cryptography ssl=true in the URL will do as well")
    applied = None if writing and number != CUT_WHILE_SENDING else False
    return StoreUnavailable(message, applied=applied, hint=_no_way(number))


def _no_way(number: int) -> str | None:
    """What to do where no connection came about, by the number of the system's error or the driver's."""
    if number < 0:  # of getaddrinfo
        return CHECK_HOST
    return NOTHING_THERE if number in (errno.ECONNREFUSED, NO_WAY) else None
