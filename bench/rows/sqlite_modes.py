"""Which journal modes of SQLite can be measured here, and how the tables call them."""

from __future__ import annotations

from leased.stores._sqlite_driver import driver, standard


def modes() -> list[str]:
    """WAL where a library without its bug is at hand, and the rollback journal everywhere."""
    return ["wal", "persist"] if driver().wal else ["persist"]


def in_words(journal: str) -> str:
    """A journal mode with the library that is used for it."""
    own = standard()
    library = driver() if journal == "wal" or own.wal else own
    return f"Journal mode {journal.upper()}, SQLite {library.version_text} ({library.name})"
