"""Planted bugs of the client side: engine, hold, line, joining and keeper. Each must be found by fresh runs."""

from __future__ import annotations

from leased.testing.simulation.planting import Bug, Edit

_ENGINE, _HOLD, _QUEUE = "leased.engine", "leased.hold", "leased.queue"
_JOIN, _KEEPER, _POLICY = "leased.join", "leased.keeper", "leased.policy"


def _bug(name: str, promise: str, *edits: tuple[str, str, str, str]) -> Bug:
    return Bug(name, promise, tuple(Edit(*edit) for edit in edits))


CLIENT_BUGS = (
    _bug(
        "lease counted from the reply",
        "SAFE3",
        (_ENGINE, "_Asking.attempt", "Hold(outcome.lease, asked_at,", "Hold(outcome.lease, env.clock.now(),"),
    ),
    _bug(
        "renewal counted from the reply",
        "SAFE3",
        (_KEEPER, "Keeper._renew", "outcome, asked_at=asked_at)", "outcome, asked_at=env.clock.now())"),
    ),
    _bug(
        "look counted from the reply",
        "SAFE3",
        (_ENGINE, "restore", "Hold(outcome.lease, asked_at,", "Hold(outcome.lease, env.clock.now(),"),
    ),
    _bug("no margin for clock rates", "SAFE3", (_POLICY, "usable", "left * (1.0 - margin)", "left")),
    _bug("no slack for small clock steps", "SAFE3", (_POLICY, "usable", " - SLACK", "")),
    _bug(
        "shortening lowers the deadline only afterwards",
        "SAFE3",
        (_HOLD, "Hold.ask", "self.valid_until = min(self.valid_until, until)", "pass"),
    ),
    _bug(
        "an earlier renewal's answer raises the lowered deadline",
        "SAFE3",
        (_HOLD, "Hold.renewed", "min([until, *self._asked.values()])", "until"),
    ),
    _bug(
        "an older renewal's answer overrides a newer one's",
        "SAFE3",
        (_HOLD, "Hold.renewed", "if lease.renewal >= self.applied:", "if True:"),
    ),
    _bug(
        "release sent before belief ended",
        "SAFE3",
        (_ENGINE, "release", 'hold.end("released")\n', "hold.ended is None\n"),
        (_ENGINE, "release", "    hold.outcome = outcome\n", '    hold.outcome = outcome\n    hold.end("released")\n'),
    ),
    _bug("belief comes back after its deadline", "SAFE5", (_HOLD, "Hold.renewed", " or now >= self.valid_until", "")),
    _bug(
        "dead on arrival kept",
        "M5",
        (_ENGINE, "_Asking.attempt", "if env.clock.now() < hold.valid_until:", "if True:"),
    ),
    _bug(
        "loss ignored by the keeper",
        "H2",
        (_ENGINE, "apply_renewal", 'lose(env, hold, "store_lost" if early else outcome.reason)', "pass"),
    ),
    _bug(
        "a hung renewal delays the loss",
        "SAFE12",
        (
            _KEEPER,
            "Keeper._step",
            "        env.clock.start(self._renew(together))\n",
            "        self._hung = self._renew(together)\n",
        ),
        (
            _KEEPER,
            "Keeper.run",
            "self._step()",
            'self._step(); await (self.__dict__.pop("_hung", None) or self._env.clock.sleep(0.0))',
        ),
    ),
    _bug(
        "loss never told",
        "SAFE12",
        (_KEEPER, "Keeper._put", "min(hold.valid_until, hold.renew_due,", "min(hold.renew_due,"),
        (_KEEPER, "Keeper._step", "lose(env, hold, reason)", "pass"),
    ),
    _bug(
        "a shortened lease is not renewed earlier",
        "H1",
        (
            _KEEPER,
            "Keeper.moved",
            "min(hold.renew_due, renew_at(now, believed_until=hold.valid_until))",
            "hold.renew_due",
        ),
    ),
    _bug(
        "what was released is renewed",
        "H1",
        (_KEEPER, "Keeper._renew", "if hold.ended is None and hold.renewing:", "if True:"),
        (_KEEPER, "Keeper.discard", "        hold.keeper = None\n", "        return\n"),
        (
            _KEEPER,
            "Keeper._step",
            "if hold.ended is not None:",
            "if hold.ended is not None and hold.outcome is not None:",
        ),
    ),
    _bug(
        "a failed renewal is not tried again",
        "H1",
        (
            _KEEPER,
            "Keeper._answered",
            "retry_renewal_at(now, believed_until=hold.valid_until, chance=env.chance)",
            "float('inf')",
        ),
        (
            _KEEPER,
            "Keeper.moved",
            "min(hold.renew_due, renew_at(now, believed_until=hold.valid_until))",
            "hold.renew_due",
        ),
    ),
    _bug(
        "an unanswered attempt forgotten",
        "SAFE11",
        (_ENGINE, "_Asking.attempt", "self._owed = unsure or not answered", "self._owed = False"),
    ),
    _bug(
        "the store is not told of an unanswered attempt",
        "SAFE5",
        (_ENGINE, "_Asking.attempt", "self.claim = replace(claim, late=True)", "pass"),
    ),
    _bug(
        "a limit ends a wait",
        "R2",
        (_ENGINE, "_Asking.finish", "(wait <= 0 or isinstance(self.problem, StoreUnavailable))", "True"),
    ),
    _bug(
        "a refusal taken as proof after an unanswered attempt",
        "SAFE11",
        (_ENGINE, "_Asking.attempt", "self._owed = unsure or not answered", "self._owed = not answered"),
    ),
    _bug(
        "a cancelled acquire hands nothing back",
        "SAFE11",
        (_ENGINE, "acquire", "        place.leave()\n        await asking.settle()\n", "        place.leave()\n"),
    ),
    _bug(
        "clean-up not shielded",
        "LIVE3",
        (
            _ENGINE,
            "_Asking.settle",
            "await shielded(env.clock, lambda: hand_back(store, env, claim, heard=heard))",
            "await hand_back(store, env, claim)",
        ),
    ),
    _bug(
        "an ended token asked for again and again",
        "LIVE2",
        (_ENGINE, "_Asking.attempt", "self.spent = outcome.ended", "self.spent = False"),
    ),
    _bug(
        "a cancelled wait becomes a hold",
        "L12",
        (
            _ENGINE,
            "acquire",
            "        place.leave()\n        await asking.settle()\n",
            "        if got := await asking.attempt(asked_at=started, timeout=1): return got\n        place.leave()\n",
        ),
    ),
    _bug(
        "release says freed whatever the store says",
        "SAFE11",
        (
            _ENGINE,
            "_release_until_answered",
            'hold.release_unanswered and outcome.reason == "not_holder"',
            "True",
        ),
    ),
    _bug(
        "a second release frees again",
        "SAFE11",
        (_ENGINE, "release", "if hold.outcome is not None:", "if False:"),
    ),
    _bug(
        "attempts are not bounded by the wait",
        "LIVE4",
        (_POLICY, "call_timeout", "min(operation_timeout, max(left, MIN_CALL_TIMEOUT))", "operation_timeout"),
    ),
    _bug(
        "watching holds up the wait",
        "LIVE4",
        (_QUEUE, "Place.rest", "self._clock.start(self._watch(store, line))", "await self._watch(store, line)"),
    ),
    _bug(
        "no try after the watch was set",
        "LIVE2",
        (_QUEUE, "Place._watch", "self._lines.released(self.key)\n", "pass\n"),
    ),
    _bug(
        "the holder's expiry does not end a nap",
        "LIVE2",
        (_QUEUE, "Place.rest", "if status.free_in is not None:", "if False:"),
    ),
    _bug(
        "naps without bound", "LIVE2", (_POLICY, "pause", "< POLL_MAX else POLL_MAX", "< POLL_MAX else 3.0 * POLL_MAX")
    ),
    _bug(
        "the next waiter is not woken when the front leaves",
        "LIVE2",
        (_QUEUE, "Place.leave", "lines._wake_front(line)", "pass"),
    ),
    _bug(
        "whoever leaves stays in the line",
        "LIVE2",
        (_QUEUE, "Place.leave", "line.places.remove(self)", "pass"),
    ),
    _bug("the last to come is served first", "LIVE5", (_QUEUE, "Place.join", "places.append(", "places.appendleft(")),
    _bug(
        "all who wait ask",
        "LIVE6",
        (_QUEUE, "Place.may_ask", "lines._front(line) is not self", "False"),
    ),
    _bug(
        "a barred waiter bars the line",
        "LIVE2",
        (_QUEUE, "Lines._front", "if not self._barred(place)", "if True"),
    ),
    _bug(
        "a running block is re-taken from inside",
        "O1",
        (_QUEUE, "Lines._barred", "is not place", "is None"),
        (_QUEUE, "Place.may_ask", "owner), self) is not self", "owner), self) is None"),
    ),
    _bug(
        "the watch outlives the line",
        "LIVE7",
        (_QUEUE, "Place.leave", "        line.unwatch()", "        pass"),
    ),
    _bug(
        "a reserved owner is never freed",
        "LIVE7",
        (_QUEUE, "Lines._free", "self._reserved.pop((key, owner), None)\n", "pass\n"),
    ),
    _bug(
        "followers lost when their leader is cancelled",
        "LIVE4",
        (_JOIN, "Joined._withdraw", "        self._pass_on(member)\n", "        pass\n"),
    ),
    _bug(
        "answers of a batch mixed up",
        "SAFE3",
        (_JOIN, "Joined._answer", "leader.batch, outcomes,", "leader.batch, list(outcomes)[::-1],"),
    ),
    _bug(
        "the lead is not passed on after a failed batch",
        "LIVE4",
        (
            _JOIN,
            "Joined._serve",
            "        outcomes = [again(error)",
            "        self._pass_on = lambda leader: None\n        outcomes = [again(error)",
        ),
    ),
    _bug(
        "closing leaves the keeper running",
        "LIVE10",
        (_KEEPER, "Keeper.run", "self._closed or now >= idle_until", "now >= idle_until"),
        (_KEEPER, "Keeper.run", "idle_until = self._env.clock.now() + _IDLE", "idle_until = INF"),
        (_KEEPER, "Keeper.run", "idle_until = now + _IDLE", "idle_until = INF"),
    ),
)
"""The bugs that the simulation must find in the client's code."""
