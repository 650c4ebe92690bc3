"""What the MySQL store asks its server: text of our own words, numbers and hexadecimal bytes. It runs nothing."""

# ruff: noqa: S608 - that is all there is in it: no value of a caller can say anything

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from leased.checks import shown
from leased.errors import InvalidRequest
from leased.model import Claim, Terms
from leased.stores._sql_record import RETENTION, Asked, Record, digest_of, written_terms

COLUMNS = (
    "token, owner, held_by, metadata, fencing_token, renewal, acquired_at, expires_at, free_at, deadline, ttl,"
    " hold_at_least, lock_delay, late, forced, marked_until"
)
_TABLE = re.compile(r"[a-z_][a-z0-9_]{0,39}")
# `NOW()` tells when the statement began, even after a long wait for somebody's row; `SYSDATE()` tells the time. In the
# zone of our sessions, UTC, every instant has one name.
NOW = "TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',SYSDATE(6))"
AT_ONCE = "SET STATEMENT innodb_lock_wait_timeout=0,lock_wait_timeout=0 FOR "
"""Before a statement: it waits for nobody's lock, but fails. Only MariaDB knows it; nothing is left in the session."""


def literal(value: bytes | int | None) -> str:
    """A value as SQL, the same in every character set and every SQL mode."""
    if value is None:
        return "NULL"
    return f"X'{value.hex()}'" if isinstance(value, bytes) else str(int(value))


@lru_cache(maxsize=256)  # as `written_terms`
def first_terms(seconds: float, terms: Terms) -> str:
    """The columns from `held_by` to `lock_delay` of a first grant for so many seconds."""
    held_by, metadata, length, closed, max_hold, *rest = written_terms(seconds, terms)
    return (
        f"{literal(held_by)},{literal(metadata)},-1,acquired_at+{length},acquired_at+{closed},acquired_at+{max_hold},"
        f"{_listed(rest)}"
    )


def _listed(values: Iterable[bytes | int | None]) -> str:
    return ",".join(map(literal, values))


class Statements:
    """The statements for one pair of tables and one namespace. `ahead` is always the µs added to the server's clock."""

    __slots__ = ("_marks", "_namespace", "_records")

    def __init__(self, table: str, *, namespace: str) -> None:
        if not _TABLE.fullmatch(table):
            raise InvalidRequest(
                f"leased_table {shown(table)!r} is not a name of up to 40 small letters, digits and underscores",
                hint="such as 'leased'",
            )
        self._records = f"`{table}_record`"
        self._marks = f"`{table}_mark`"
        self._namespace = literal(namespace.encode())

    def create(self) -> tuple[str, str]:
        """The tables. All text is kept as bytes, so that keys are compared byte for byte whatever the collation."""
        records = (
            f"CREATE TABLE IF NOT EXISTS {self._records} (\n"
            "  namespace VARBINARY(1020) NOT NULL, `key` VARBINARY(1020) NOT NULL,\n"
            "  token BINARY(32), owner VARBINARY(1020), held_by BLOB NOT NULL, metadata BLOB NOT NULL,\n"
            "  fencing_token BIGINT NOT NULL, renewal BIGINT NOT NULL, acquired_at BIGINT NOT NULL,\n"
            "  expires_at BIGINT NOT NULL, free_at BIGINT NOT NULL, deadline BIGINT NOT NULL, ttl BIGINT NOT NULL,\n"
            "  hold_at_least BIGINT NOT NULL, lock_delay BIGINT NOT NULL, late TINYINT NOT NULL,\n"
            "  forced TINYINT NOT NULL, marked_until BIGINT NOT NULL, PRIMARY KEY (namespace, `key`)\n"
            ") ENGINE=InnoDB ROW_FORMAT=DYNAMIC"
        )
        marks = (
            f"CREATE TABLE IF NOT EXISTS {self._marks} (\n"
            "  namespace VARBINARY(1020) NOT NULL, token BINARY(32) NOT NULL, reason VARBINARY(16) NOT NULL,\n"
            "  until BIGINT NOT NULL, PRIMARY KEY (namespace, token), KEY (until)\n"
            ") ENGINE=InnoDB ROW_FORMAT=DYNAMIC"
        )
        return records, marks

    def grant_first(self, key: bytes, claim: Claim, *, ahead: int) -> str:
        """Grant a key that has no record; for one that has it is a duplicate. The number of `LAST_INSERT_ID` is the
        fencing token."""
        owner = "NULL" if claim.owner is None else literal(claim.owner.encode())
        return (
            f"INSERT INTO {self._records} (namespace,`key`,acquired_at,fencing_token,token,owner,held_by,metadata,"
            "renewal,expires_at,free_at,deadline,ttl,hold_at_least,lock_delay,late,forced,marked_until)"
            f" VALUES ({self._namespace},{literal(key)},{_at(ahead)},LAST_INSERT_ID(acquired_at),"
            f"{literal(digest_of(claim.token))},{owner},{first_terms(claim.ttl, claim.terms)},{int(claim.late)},0,0)"
        )

    def grant_next(self, key: bytes, new: Asked, *, ahead: int) -> str:
        """Grant an open key that has a record: it changes the row exactly if it did. A key whose record is `late`, or
        that has marks, is left to the rules. What is assigned first counts in what follows."""
        now = _at(ahead)
        return (
            f"UPDATE {self._records} SET acquired_at={now},"
            "fencing_token=LAST_INSERT_ID(GREATEST(fencing_token+1,acquired_at)),"
            f"owner={literal(new.owner)},held_by={literal(new.held_by)},metadata={literal(new.metadata)},renewal=-1,"
            f"expires_at=acquired_at+{new.length},free_at=acquired_at+{new.closed},"
            f"deadline=acquired_at+{new.max_hold},ttl={new.ttl},hold_at_least={new.hold_at_least},"
            f"lock_delay={new.lock_delay},late={int(new.late)},forced=0,token={literal(new.token)}"
            f" WHERE {self._of(key)} AND free_at<={now} AND marked_until<={now} AND NOT late"
            f" AND NOT (token<=>{literal(new.token)})"
        )

    def extend(self, key: bytes, token: bytes, *, length: int, number: int, ahead: int) -> str:
        """Renew: it changes a row exactly if it did."""
        now = _at(ahead)
        return (
            f"UPDATE {self._records} SET renewal={number},expires_at=LEAST({now}+{length},deadline),"
            f"free_at=GREATEST(expires_at+lock_delay,acquired_at+hold_at_least),ttl={length}"
            f" WHERE {self._of(key)} AND token={literal(token)} AND expires_at>{now} AND GREATEST(renewal,0)<{number}"
        )

    def free(self, key: bytes, token: bytes, *, ahead: int) -> str:
        """Release a lease whose token need not be marked: it changes a row exactly if it did."""
        now = _at(ahead)
        return (
            f"UPDATE {self._records} SET free_at=GREATEST({now},acquired_at+hold_at_least),token=NULL"
            f" WHERE {self._of(key)} AND token={literal(token)} AND expires_at>{now} AND NOT late"
        )

    def look(self, key: bytes, token: bytes | None, *, ahead: int) -> str:
        """One row: the clock, the mark of the token, how long it counts, and the record; NULL for what there is not."""
        mark = f"LEFT JOIN {self._marks} m ON m.namespace={self._namespace} AND m.token={literal(token)}"
        record = f"LEFT JOIN {self._records} r ON r.namespace={self._namespace} AND r.`key`={literal(key)}"
        return (
            f"SELECT {_at(ahead)},{'NULL,NULL' if token is None else 'm.reason,m.until'},r.`key`,"
            f"{','.join(f'r.{name.strip()}' for name in COLUMNS.split(','))}"
            f" FROM (SELECT 1) one {record} {'' if token is None else mark}"
        )

    def insert(self, rows: Sequence[tuple[bytes, Record]]) -> str:
        """New rows: all of them, or none if one is a duplicate."""
        values = ",".join(f"({self._namespace},{literal(key)},{_listed(record)})" for key, record in rows)
        return f"INSERT INTO {self._records} (namespace,`key`,{COLUMNS}) VALUES {values}"

    def ensure(self, key: bytes, nothing: Record) -> str:
        """Lock the row of a key, which is made of nothing where there is none. How many rows it says it changed does
        not tell which: some that stand between count those that are found."""
        return f"{self.insert([(key, nothing)])} ON DUPLICATE KEY UPDATE renewal=renewal"

    def replace(self, rows: Sequence[tuple[bytes, Record]]) -> str:
        """Set whole records."""
        names = [name.strip() for name in COLUMNS.split(",")]
        return f"{self.insert(rows)} ON DUPLICATE KEY UPDATE {','.join(f'{name}=VALUES({name})' for name in names)}"

    def mark(self, marks: Sequence[tuple[bytes, str]], *, now: int, until: int) -> str:
        """Remember that tokens have ended; the first reason stands as long as it counts."""
        values = ",".join(
            f"({self._namespace},{literal(token)},{literal(reason.encode())},{until})" for token, reason in marks
        )
        return (
            f"INSERT INTO {self._marks} (namespace,token,reason,until) VALUES {values}"
            f" ON DUPLICATE KEY UPDATE reason=IF(until>{now},reason,VALUES(reason)),until=VALUES(until)"
        )

    def lock_all(self, keys: Sequence[bytes], *, ahead: int) -> str:
        """The records of those keys that are there and that nobody else has locked, each with the clock."""
        return (
            f"SELECT {_at(ahead)},`key`,{COLUMNS} FROM {self._records} WHERE {self._any(keys)} FOR UPDATE SKIP LOCKED"
        )

    def present(self, keys: Sequence[bytes], *, ahead: int) -> str:
        """The clock, in a row without a key, and which of those keys have a record."""
        return f"SELECT {_at(ahead)},NULL UNION ALL SELECT 0,`key` FROM {self._records} WHERE {self._any(keys)}"

    def marked(self, tokens: Sequence[bytes], *, now: int) -> str:
        """Why some of these tokens have ended."""
        return (
            f"SELECT token,reason FROM {self._marks} WHERE namespace={self._namespace}"
            f" AND token IN ({_listed(tokens)}) AND until>{now}"
        )

    def page(self, prefix: bytes, *, after: bytes, limit: int, ahead: int) -> str:
        """Records of keys that are not open, in the order of bytes; no key has a byte 255, so it ends those that begin
        with the prefix."""
        now = _at(ahead)
        return (
            f"SELECT {now},`key`,{COLUMNS} FROM {self._records} WHERE namespace={self._namespace}"
            f" AND `key`>={literal(prefix)} AND `key`<{literal(prefix + bytes([255]))} AND `key`>{literal(after)}"
            f" AND (free_at>{now} OR (token IS NOT NULL AND expires_at>{now})) ORDER BY `key` LIMIT {int(limit)}"
        )

    def step(self, after: tuple[bytes, bytes], *, most: int, ahead: int) -> str:
        """What a step of the sweep has to know, a row each: the `clock`; of the next so many rows of any namespace, by
        key, those that are `over` and the `last`, if there are as many; and a `mark`, if any of them is over."""
        namespace, key = map(literal, after)
        page = (
            f"FROM {self._records} WHERE namespace>{namespace} OR (namespace={namespace} AND `key`>{key})"
            " ORDER BY namespace,`key` LIMIT"
        )
        return (
            f"SELECT 'clock',NULL,NULL,{_at(ahead)}"
            f" UNION ALL SELECT 'over',namespace,`key`,0 FROM (SELECT namespace,`key`,{_over(ahead)} AS is_over"
            f" {page} {int(most)}) page WHERE is_over"
            f" UNION ALL SELECT 'last',namespace,`key`,0 FROM (SELECT namespace,`key` {page} {int(most) - 1},1) page"
            " UNION ALL SELECT 'mark',NULL,NULL,0"
            f" FROM (SELECT 1 FROM {self._marks} WHERE until<={_at(ahead)} LIMIT 1) mark"
        )

    def lock_over(self, rows: Sequence[tuple[bytes, bytes]], *, ahead: int) -> str:
        """Those of the rows that are over and that nobody has locked."""
        return (
            f"SELECT namespace,`key` FROM {self._records} WHERE (namespace,`key`) IN ({_pairs(rows)})"
            f" AND {_over(ahead)} FOR UPDATE SKIP LOCKED"
        )

    def delete(self, rows: Sequence[tuple[bytes, bytes]]) -> str:
        """Delete rows."""
        return f"DELETE FROM {self._records} WHERE (namespace,`key`) IN ({_pairs(rows)})"

    def lock_marks_over(self, *, most: int, ahead: int) -> str:
        """The oldest marks that count no more and that nobody has locked."""
        return (
            f"SELECT namespace,token FROM {self._marks} WHERE until<={_at(ahead)} ORDER BY until LIMIT {int(most)}"
            " FOR UPDATE SKIP LOCKED"
        )

    def delete_marks(self, marks: Sequence[tuple[bytes, bytes]]) -> str:
        """Delete marks."""
        return f"DELETE FROM {self._marks} WHERE (namespace,token) IN ({_pairs(marks)})"

    def _of(self, key: bytes) -> str:
        return f"namespace={self._namespace} AND `key`={literal(key)}"

    def _any(self, keys: Sequence[bytes]) -> str:
        return f"namespace={self._namespace} AND `key` IN ({_listed(keys)})"


def _at(ahead: int) -> str:
    return f"({NOW}+{int(ahead)})" if ahead else NOW


def _over(ahead: int) -> str:
    """A record that nobody needs, not even for its fencing token."""
    return f"GREATEST(free_at+{RETENTION},expires_at+{RETENTION},marked_until)<={_at(ahead)}"


def _pairs(rows: Sequence[tuple[bytes, bytes]]) -> str:
    return ",".join(f"({_listed(row)})" for row in rows)
