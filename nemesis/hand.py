"""What one hand of a worker does all the time: take keys, hold them, let them go, and record it all. It judges nothing.

A hand is one thread or task. What it calls is public: it knows of its holds what any user could know.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from leased.errors import LockLost, StoreUnavailable
from nemesis import guard
from nemesis.faces import Block, Face, done
from nemesis.history import Recorder, now

TTLS = (0.5, 0.8, 1.2, 2.0)
WAITS = (0.0, 0.0, 0.3, 1.0, 2.5, 6.0)
MEAN_HOLD, LONGEST_HOLD = 0.25, 1.5
READ_WITHIN = 0.005
ROUNDS = {"handle": 12, "kept": 6, "block": 8, "repeat": 4, "impatient": 2, "look": 3, "force": 1}
ENDINGS = {"release": 12, "overstay": 5, "abandon": 2, "drop": 1}
_EVENTS = ("lost", "renewed", "renewal_failed", "at_risk", "clock_warning", "assurance_changed")


@dataclass(frozen=True, slots=True)
class Grip:
    """A handle and what is recorded of it; `hold` is the call that got it."""

    handle: Any
    hold: str
    key: str
    ttl: float
    kept: bool


class Hand:
    """Works on a few keys until it is time to stop."""

    def __init__(
        self,
        face: Face,
        locks: Any,
        *,
        recorder: Recorder,
        keys: list[str],
        guards: Path,
        chance: Random,
        rounds: dict[str, int] = ROUNDS,
        ttls: tuple[float, ...] = TTLS,
    ) -> None:
        self._face = face
        self._locks = locks
        self._recorder = recorder
        self._keys = keys
        self._guards = guards
        self._chance = chance
        self._rounds = rounds
        self._ttls = ttls

    async def work(self, until: float) -> None:
        """Go on until this time of the lines' clock, then end what is held."""
        while now() < until:
            round_ = _drawn(self._chance, self._rounds)
            key = self._chance.choice(self._keys)
            if round_ == "look":
                await self._look(key)
            elif round_ == "force":
                await self._force(key)
            elif round_ == "block":
                await self._block(key)
            else:
                await self._bare(key, round_)
            await self._face.sleep(self._chance.uniform(0.0, 0.1))

    async def _bare(self, key: str, round_: str) -> None:
        """A handle that was asked for by itself: renewed by hand, or (`kept`) by the library."""
        ttl, kept = self._chance.choice(self._ttls), round_ == "kept"
        wait = self._chance.choice(WAITS)
        token = secrets.token_hex(16) if round_ == "repeat" else None
        patience = self._chance.uniform(0.0, 1.0) if round_ == "impatient" else None
        op = self._recorder.new_op()
        lock = self._locks.lock(key, ttl=ttl, wait=wait, renew=kept, name=op)
        grip = await self._acquire(op, lock, wait=wait, ttl=ttl, kept=kept, token=token, patience=patience)
        if grip is None:
            return
        if token is not None:
            again = self._recorder.new_op()
            same = self._locks.lock(key, ttl=ttl, wait=wait, renew=kept, name=again)  # told by itself
            await self._acquire(again, same, wait=0.0, ttl=ttl, kept=kept, token=token, hold=op)
        await self._hold(grip)
        await self._end(grip, _drawn(self._chance, ENDINGS))

    async def _acquire(
        self,
        op: str,
        lock: Any,
        *,
        wait: float,
        ttl: float,
        kept: bool,
        token: str | None = None,
        patience: float | None = None,
        hold: str = "",
    ) -> Grip | None:
        """Ask for a handle. With a token that had its grant (`hold`) it is the same question once more."""
        handles: list[Any] = []

        async def ask() -> dict[str, Any]:
            if patience is not None:
                handle = await self._face.acquire_for(lock, wait, patience=patience)
            elif wait == 0.0:
                handle = await done(lock.try_acquire(token=token))
            else:
                handle = await done(lock.acquire(token=token))
            if handle is None:
                return {"error": "LockNotAcquired"}
            handles.append(handle)
            return self._granted(handle)

        data: dict[str, Any] = {
            "wait": wait,
            "ttl": ttl,
            "kept": kept,
            "brought": token is not None,
            "patience": patience,
        }
        await self._call("acquire", lock.key, ask, op=op, hold=hold, **data)
        return Grip(handles[0], op, lock.key, ttl, kept) if handles else None

    async def _block(self, key: str) -> None:
        """A block: the library renews, and releases at the end."""
        ttl, wait = self._chance.choice(self._ttls), self._chance.choice(WAITS)
        op, leaving = self._recorder.new_op(), self._recorder.new_op()
        lock = self._locks.lock(key, ttl=ttl, wait=wait, name=op)
        self._recorder.record("invoke", op=op, call="acquire", key=key, wait=wait, ttl=ttl, kept=True, block=True)
        entered = False
        try:
            async with Block(lock) as handle:
                entered = True
                self._recorder.record("ok", op=op, **self._granted(handle))
                try:
                    await self._hold(Grip(handle, op, key, ttl, kept=True))
                finally:
                    self._recorder.record("invoke", op=leaving, call="leave", key=key, hold=op)
        except Exception as error:  # noqa: BLE001 (whatever it raised is recorded, and judged)
            self._record_error(leaving if entered else op, error)
        else:
            self._recorder.record("ok", op=leaving)

    async def _hold(self, grip: Grip) -> None:
        """Hold for a while: look at one's own belief, write, renew; until it is lost, if it is."""
        until = now() + min(self._chance.expovariate(1.0 / MEAN_HOLD), LONGEST_HOLD)
        while now() < until and self._sees(grip):
            await self._face.sleep(self._chance.uniform(0.0, 0.08))
            believes = self._sees(grip)
            if self._chance.random() < 0.3:
                self._write(grip)
            if not grip.kept and believes and grip.handle.remaining() < 0.6 * grip.ttl and self._chance.random() < 0.6:
                await self._renew(grip)

    async def _end(self, grip: Grip, ending: str) -> None:
        """Let it go, in one of the ways there are; what was lost is used as if it were not known."""
        if ending == "overstay" and not grip.kept:
            while self._sees(grip):
                await self._face.sleep(0.05)
            await self._face.sleep(self._chance.uniform(0.0, 0.4))
        if not self._sees(grip):
            await self._renew(grip)
            self._write(grip)
        if ending == "abandon" and "look" in self._rounds:
            token = grip.handle.token
            await self._call("abandon", grip.key, lambda: self._locks.abandon(grip.key, token), hold=grip.hold)
        elif ending == "drop":
            self._recorder.record("invoke", op=self._recorder.new_op(), call="drop", key=grip.key, hold=grip.hold)
        else:
            await self._call("release", grip.key, grip.handle.release, hold=grip.hold, read=_released)
            self._sees(grip)

    async def _renew(self, grip: Grip) -> None:
        await self._call("renew", grip.key, grip.handle.renew, hold=grip.hold, read=_renewed)
        self._sees(grip)

    async def _look(self, key: str) -> dict[str, Any]:
        return await self._call("status", key, lambda: self._locks.status(key), read=_status)

    async def _force(self, key: str) -> None:
        seen = await self._look(key)
        if seen.get("state") == "held":
            aim = seen["fence"] if self._chance.random() < 0.8 else None
            await self._call(
                "force", key, lambda: self._locks.force_release(key, aim), read=lambda ended: {"ended": ended}, aim=aim
            )

    def _sees(self, grip: Grip) -> bool:
        """What the holder knows of its hold now; whether it believes."""
        found = _belief(grip.handle)
        self._recorder.record("sees", key=grip.key, hold=grip.hold, **found)
        return not found["lost"]

    def _write(self, grip: Grip) -> None:
        fence = grip.handle.fencing_token
        written = guard.write(self._guards, grip.key, fencing_token=fence)
        self._recorder.record(
            "wrote",
            key=grip.key,
            hold=grip.hold,
            fence=fence,
            serial=written.serial,
            seen=written.seen,
            accepted=written.accepted,
        )

    def _granted(self, handle: Any) -> dict[str, Any]:
        assurance = self._locks.assurance
        return {
            "fence": handle.fencing_token,
            "exclusive": assurance.exclusive,
            "early_loss": assurance.early_loss,
            **_belief(handle),
        }

    async def _call(
        self,
        call: str,
        key: str,
        make: Callable[[], Any],
        *,
        op: str = "",
        hold: str = "",
        read: Callable[[Any], dict[str, Any]] = lambda found: found or {},
        **data: Any,
    ) -> dict[str, Any]:
        """Make one call of the library, and record how it began and ended. Gives what was recorded of its answer."""
        op = op or self._recorder.new_op()
        self._recorder.record("invoke", op=op, call=call, key=key, hold=hold, **data)
        try:
            found = read(await done(make()))
        except BaseException as error:
            self._record_error(op, error)
            if not isinstance(error, Exception):
                raise
            return {}
        self._recorder.record("fail" if found.get("error") else "ok", op=op, **found)
        return found

    def _record_error(self, op: str, error: BaseException) -> None:
        """An error that the library raised, as the end of a call."""
        applied = getattr(error, "applied", False) if isinstance(error, StoreUnavailable) else False
        unknown = applied is not False or not isinstance(error, Exception)
        name = type(error).__name__
        if isinstance(error, StoreUnavailable):
            name = "StoreUnavailable"  # whichever kind of it: callers catch that
        data: dict[str, Any] = {"error": name, "module": type(error).__module__, "message": str(error)}
        if isinstance(error, LockLost):
            data["reason"] = error.reason
        self._recorder.record("unknown" if unknown else "fail", op=op, **data)


def observe(recorder: Recorder) -> Callable[[Any], None]:
    """An observer that records what the library tells of holds, which carry their call's name."""

    def observer(event: Any) -> None:
        if event.name in _EVENTS:
            recorder.record("told", key=event.key, hold=event.lock or "", event=event.name, **event.data)

    return observer


def _belief(handle: Any) -> dict[str, Any]:
    """Whether the handle calls itself lost, and until when it believes; read within `READ_WITHIN` seconds."""
    at, lost, left, reason = now(), handle.lost, handle.remaining(), handle.lost_reason
    while now() - at > READ_WITHIN:
        at, lost, left, reason = now(), handle.lost, handle.remaining(), handle.lost_reason
    return {"at": at, "lost": lost, "until": at + left, "reason": reason}


def _released(outcome: Any) -> dict[str, Any]:
    return {"freed": bool(outcome), "reason": outcome.reason}


def _renewed(outcome: Any) -> dict[str, Any]:
    return {"renewed": bool(outcome), "reason": outcome.reason, "lost_reason": outcome.lost_reason}


def _status(status: Any) -> dict[str, Any]:
    return {"state": status.state, "fence": status.fencing_token}


def _drawn(chance: Random, weights: dict[str, int]) -> str:
    return chance.choices(list(weights), list(weights.values()))[0]
