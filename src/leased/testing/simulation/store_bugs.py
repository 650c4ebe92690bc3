"""Planted bugs of the store: what the clients' promises rest on. Each must be found by fresh runs."""

from __future__ import annotations

from leased.testing.simulation.planting import Bug, Edit

_ACQUIRE, _RENEW, _RELEASE = "MemoryStore.acquire", "MemoryStore.renew", "MemoryStore.release"
_FORCE, _EXTEND = "MemoryStore.force_release", "_Record.extend"


def _bug(name: str, promise: str, *edits: tuple[str, str, str]) -> Bug:
    return Bug(name, promise, tuple(Edit("leased.stores.memory", *edit) for edit in edits))


STORE_BUGS = (
    _bug("two owners without a name are the same owner", "SAFE1", (_ACQUIRE, "claim.owner is not None and ", "")),
    _bug(
        "release without comparing tokens",
        "SAFE4",
        (_RELEASE, "record is not None and _same(record.token, digest)", "True"),
    ),
    _bug("renewal without comparing tokens", "SAFE4", (_RENEW, "not _same(record.token, digest) or ", "")),
    _bug(
        "fencing token not raised on take-over",
        "SAFE2",
        (
            _ACQUIRE,
            "        record = _Record(",
            "        if record is not None: self._last_fencing_token = record.fencing_token\n        record = _Record(",
        ),
    ),
    _bug(
        "fencing tokens counted, not taken from the clock",
        "SAFE2",
        (_ACQUIRE, "max(self._last_fencing_token + 1, int(self._wall() * 1e6))", "self._last_fencing_token + 1"),
    ),
    _bug("renewal revives a lapsed lease", "SAFE5", (_RENEW, " or now >= record.expires_at", "")),
    _bug("an ended token is granted again", "SAFE5", ("MemoryStore._marked", "mark is not None and", "False and")),
    _bug("abandon leaves no mark", "SAFE5", ("MemoryStore.abandon", 'self._mark(digest, "abandoned", now)', "pass")),
    _bug("release of a late claim leaves no mark", "SAFE5", (_RELEASE, "if late or (mine", "if False and (mine")),
    _bug("re-take does not end the old token", "SAFE5", (_ACQUIRE, 'self._mark(record.token, "retaken", now)', "pass")),
    _bug(
        "leases end a little early", "SAFE6", ("_Record.live", "now < self.expires_at", "now < self.expires_at - 0.05")
    ),
    _bug(
        "a retry is refused by its own hold",
        "SAFE7",
        (_ACQUIRE, "_same(record.token, token) and now <", "False and now <"),
    ),
    _bug("renewal numbers ignored", "SAFE8", (_RENEW, "if number > max(record.renewal, 0):", "if number >= 0:")),
    _bug("re-take by any owner", "SAFE1", (_ACQUIRE, "record.owner == claim.owner", "record.owner is not None")),
    _bug("no re-take", "SAFE9", (_ACQUIRE, "claim.owner is not None and record.owner == claim.owner", "False")),
    _bug(
        "forced release ignores the number",
        "SAFE10",
        (_FORCE, " or fencing_token not in (None, record.fencing_token)", ""),
    ),
    _bug("lock_delay ignored", "SAFE13", (_EXTEND, " + self.terms.lock_delay", "")),
    _bug(
        "hold_at_least ignored by release",
        "SAFE13",
        (_RELEASE, "record.acquired_at + record.terms.hold_at_least", "now"),
    ),
    _bug("max_hold not enforced", "M8", (_EXTEND, "min(now + ttl, self.deadline)", "now + ttl")),
    _bug(
        "a dead holder blocks the key for longer",
        "LIVE1",
        (_EXTEND, "max(self.expires_at + ", "max(self.expires_at + 1.0 + "),
    ),
    _bug("release rings no bell", "LIVE2", (_RELEASE, "    self._ring(key)\n", "")),
    _bug("marks kept for ever", "LIVE7", ("MemoryStore._sweep", "[0] <= now:", "[0] <= 0:")),
    _bug("lapsed records kept for ever", "LIVE7", ("MemoryStore._sweep", "    del self._records[key]\n", "    pass\n")),
)
"""The bugs that the simulation must find in the store's code."""
