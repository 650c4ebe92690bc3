"""A client that vanishes at any turn of the loop between its request and its answer: nothing is held for it then.

The application is driven without a socket and in virtual time, so that any order of grant and disconnect can be tried.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from leased.errors import StoreUnavailable
from leased.model import Claim, Contended, Held, Operation
from leased.server.app import App
from leased.server.service import Service
from leased.server.settings import Settings
from leased.store import Outcome
from leased.stores.memory import MemoryStore
from tests.server.proof.conversations import Conversation
from tests.server.proof.stepping import SteppedClock, SteppedLoop

# LEASED_SOAK in the environment: ten times as many (`make proofs`). A failure names its seed.
SEEDS = 10_000 if os.environ.get("LEASED_SOAK") else 1_000
PARTS = 4
TTL = 86_400_000
QUIET = 20.0
"""Virtual seconds in which everything that was begun ends: places are kept for 2, what is handed back takes less."""


_numbers = itertools.count()


class Slow:
    """A memory store whose calls take turns, or time, before and after it decides; some are answered by nobody."""

    def __init__(self, inner: MemoryStore, chance: random.Random, *, lost: float = 0.0) -> None:
        self.inner = inner
        self._chance = chance
        self.lost = lost

    async def _pass(self) -> None:
        for _ in range(self._chance.randrange(4)):
            await asyncio.sleep(self._chance.choice([0, 0, 0, 0.01]))

    async def _lose(self, applied: bool | None) -> None:
        if self._chance.random() < self.lost:
            await self._pass()
            raise StoreUnavailable("lost", applied=applied)

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        await self._pass()
        await self._lose(False)
        outcome = await self.inner.acquire(claim, timeout=timeout)
        await self._lose(None)
        await self._pass()
        return outcome

    async def many(self, operations: Sequence[Operation], *, timeout: float) -> Sequence[Outcome]:
        await self._pass()
        outcomes = await self.inner.many(operations, timeout=timeout)
        await self._pass()
        return outcomes

    async def abandon(self, key: str, token: str, *, heard: int | None = None, timeout: float) -> None:
        await self._pass()
        await self.inner.abandon(key, token, heard=heard, timeout=timeout)
        await self._lose(None)  # one that never arrives, whatever is tried, leaves a lease that ends by its ttl

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Stage:
    """A service in a loop of its own."""

    def __init__(self, chance: random.Random, *, lost: float = 0.0, **settings: Any) -> None:
        self.loop = SteppedLoop()
        self.inner = MemoryStore(SteppedClock(self.loop))
        self.store = Slow(self.inner, chance, lost=lost)
        given: Any = self.store
        self.service = Service(
            Settings(store=f"memory:stage-{next(_numbers)}", **settings), clock=SteppedClock(self.loop), store=given
        )
        its_chance: Any = self.service.env.chance
        its_chance.seed(chance.random())
        self.app = App(self.service)

    def play(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it to its end, and see that no task is left behind."""
        try:
            self.loop.run_until_complete(work)
            left = asyncio.all_tasks(self.loop)
            assert not left, left
        finally:
            self.loop.close()

    def ask(self, body: Any, path: str = "/v1/locks/acquire") -> tuple[Conversation, asyncio.Task[None]]:
        """Begin a request."""
        talk = Conversation(self.app, path, body)
        return talk, self.loop.create_task(talk.run())

    async def release(self, key: str, token: str) -> bool:
        """End a lease, as its holder."""
        talk, task = self.ask({"key": key, "token": token}, "/v1/locks/release")
        await task
        return bool(talk.answer == {"released": True})

    async def is_free(self, key: str) -> bool:
        """Whether nobody holds it."""
        return not (await self.inner.status(key, timeout=1.0)).held

    async def holds(self, key: str, token: str) -> bool:
        """Whether this token holds it."""
        return isinstance(await self.inner.look(key, token, timeout=1.0), Held)

    def is_quiet(self) -> None:
        """Nobody is waited for, counted, or stands in a line."""
        waiting = self.service.waiting
        assert (len(waiting), waiting._each, self.service.env.lines.waiting("k")) == (0, {}, 0)
        assert len(waiting.copies) == 0


@pytest.mark.parametrize(("in_line", "wait"), [(False, 0), (False, 60_000), (True, 60_000)])
@pytest.mark.parametrize("slowness", range(8))
def test_a_client_may_vanish_at_any_turn(slowness: int, in_line: bool, wait: int) -> None:
    """V3, C165: at every turn from the request to its answer, of a key that is free or becomes so: who was answered
    holds the key, and who had gone before leaves it free. A single try without a token of its own is no exception:
    nobody could come back for what it was granted."""
    answered, turn = False, 0
    while not answered:
        turn += 1
        answered = _vanish_at(turn, chance=random.Random(slowness), in_line=in_line, wait=wait)
        assert turn < 1_000
    assert turn > 1


def _vanish_at(turn: int, *, chance: random.Random, in_line: bool, wait: int) -> bool:
    """Play it once; whether the client was answered before it went."""
    stage = Stage(chance)
    talk = Conversation(stage.app, "/v1/locks/acquire", {"key": "k", "ttlMs": TTL, "waitMs": wait})

    async def work() -> None:
        if in_line:
            holder, begun = stage.ask({"key": "k", "ttlMs": TTL})
            await begun
            token = holder.answer["token"]
            stage.loop.at_turn(stage.loop.turn + 10, lambda: stage.loop.create_task(release(token)))
        stage.loop.at_turn(stage.loop.turn + turn, talk.vanish)
        task = stage.loop.create_task(talk.run())
        await asyncio.sleep(QUIET)
        await task
        assert await stage.is_free("k") == talk.gone
        if not talk.gone:
            assert await stage.release("k", talk.answer["token"])
        stage.is_quiet()

    async def release(token: str) -> None:
        assert await stage.release("k", token)

    stage.play(work())
    return not talk.gone


@pytest.mark.parametrize("slowness", range(8))
def test_what_a_batch_took_without_a_token_is_handed_back_if_its_client_vanishes(slowness: int) -> None:
    """O6: at every turn, of a batch as of a single try: nobody could come back for what it was granted."""
    answered, turn = False, 0
    while not answered:
        turn += 1
        stage = Stage(random.Random(slowness))
        body = {"operations": [{"operation": "acquire", "key": "k", "ttlMs": TTL}]}
        talk = Conversation(stage.app, "/v1/locks/batch", body)
        stage.play(_cut_off_at(turn, stage=stage, talk=talk))
        answered = not talk.gone


async def _cut_off_at(turn: int, *, stage: Stage, talk: Conversation) -> None:
    stage.loop.at_turn(stage.loop.turn + turn, talk.vanish)
    await talk.run()
    await asyncio.sleep(QUIET)
    assert await stage.is_free("k") == talk.gone
    stage.is_quiet()


@pytest.mark.parametrize("wait", [0, 60_000])
@pytest.mark.parametrize("slowness", range(12))
def test_a_copy_of_a_claim_whose_first_sender_vanished_is_told_the_truth(slowness: int, wait: int) -> None:
    """O5, O6, C165: a client is cut at any turn and sends its claim again in the same one, as a proxy does. If the copy
    is told that it holds the key it does, and what was won for the cut request is not taken from it."""
    gone, turn, granted = True, 0, 0
    while gone:
        turn += 1
        gone, answer = _repeat_at(turn, chance=random.Random(slowness), wait=wait)
        granted += answer["acquired"]
        assert turn < 1_000
    assert granted


def _repeat_at(turn: int, *, chance: random.Random, wait: int) -> tuple[bool, Any]:
    """Play it once; whether the first sender was cut before its answer, and the answer to the copy."""
    stage = Stage(chance)
    claim: dict[str, Any] = {"key": "k", "ttlMs": TTL, "token": "t" * 32}
    first = Conversation(stage.app, "/v1/locks/acquire", {**claim, "waitMs": 60_000})
    copy = Conversation(stage.app, "/v1/locks/acquire", {**claim, "waitMs": wait})
    tasks: list[asyncio.Task[Any]] = []

    def cut() -> None:
        first.vanish()
        tasks.append(stage.loop.create_task(copy.run()))

    async def work() -> None:
        holder, begun = stage.ask({"key": "k", "ttlMs": TTL})
        await begun
        token = holder.answer["token"]
        stage.loop.at_turn(
            stage.loop.turn + 10, lambda: tasks.append(stage.loop.create_task(stage.release("k", token)))
        )
        stage.loop.at_turn(stage.loop.turn + turn, cut)
        tasks.append(stage.loop.create_task(first.run()))
        await asyncio.sleep(QUIET)
        await asyncio.gather(*tasks)
        if copy.answer["acquired"]:
            assert await stage.release("k", claim["token"]), "it was told that it holds the key"
        elif not first.gone:
            assert await stage.release("k", first.answer["token"])
        assert await stage.is_free("k")
        stage.is_quiet()

    stage.play(work())
    return first.gone, copy.answer


class Crowd:
    """Clients of one key: each asks, waits, comes back after a slice, and vanishes at a turn of its own, or never."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        slice_, linger = self.chance.choice([(25.0, 2.0), (0.05, 2.0), (0.05, 0.0)])
        lost = self.chance.choice([0.0, 0.0, 0.2])
        self.stage = Stage(self.chance, lost=lost, max_wait_slice=slice_, wait_linger=linger)
        self.holder: str | None = None
        self.lost = lost > 0.0
        # Who brings a token and comes no more after an answer of the store was lost may leave a lease that ends by its
        # ttl: another service might have heard that answer, and told him.
        self.uncertain: set[str] = set()
        self.grants = self.vanished = 0

    async def run(self) -> None:
        """Let them all in, in any turn; in some plays the service ends meanwhile."""
        loop = self.stage.loop
        clients = []
        for number in range(self.chance.randint(2, 6)):
            clients.append(loop.create_task(self.client(f"{number:032d}")))
            for _ in range(self.chance.randrange(8)):
                await asyncio.sleep(0)
        if self.chance.random() < 0.2:
            loop.at_turn(loop.turn + self.chance.randrange(1, 200), self.stage.service.drain)
        await asyncio.gather(*clients)
        await asyncio.sleep(QUIET)
        assert self.holder is None
        assert await self.stage.is_free("k") or any([await self.stage.holds("k", token) for token in self.uncertain])
        self.stage.is_quiet()

    async def client(self, name: str) -> None:
        """Ask until answered, or gone. A token of one's own is abandoned where nobody knows what became of it."""
        own = self.chance.random() < 0.5
        body: dict[str, Any] = {"key": "k", "ttlMs": TTL, "waitMs": self.chance.choice([1, 100, 60_000, 60_000])}
        if own:
            body["token"] = name
            if self.lost:
                self.uncertain.add(name)
        unsure = False
        for _ in range(self.chance.randint(1, 6)):
            talk, task = self.stage.ask(body)
            # One who was told that nobody knows, and then vanishes, leaves a lease that ends by its ttl.
            if self.chance.random() < 0.5 and not (own and unsure):
                loop = self.stage.loop
                loop.at_turn(loop.turn + self.chance.randrange(1, 120), self.vanish_of(talk))
            await task
            if talk.gone:
                self.vanished += 1
                return
            if talk.status == 200 and talk.answer["acquired"]:
                await self.hold(talk.answer["token"])
                return
            unsure = unsure or (talk.status == 503 and talk.answer["applied"] is not False)
        if own and unsure:
            while not await self.abandon(name):
                await asyncio.sleep(0.01)

    def vanish_of(self, talk: Conversation) -> Callable[[], object]:
        """How it is seen: before what is ready in its turn, or after that."""
        return talk.vanish if self.chance.random() < 0.5 else lambda: self.stage.loop.call_soon(talk.vanish)

    async def hold(self, token: str) -> None:
        """Hold the key, alone, and give it back."""
        assert self.holder is None, "two clients were told that they hold the key"
        self.holder = token
        self.grants += 1
        for _ in range(self.chance.randrange(30)):
            await asyncio.sleep(0)
        self.holder = None
        assert await self.stage.release("k", token)

    async def abandon(self, token: str) -> bool:
        """Give up a claim, whatever became of it; whether that was heard."""
        talk, task = self.stage.ask({"key": "k", "token": token}, "/v1/locks/abandon")
        await task
        return talk.status == 200


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_left_by_clients_who_vanish_in_any_order(part: int) -> None:
    """V3, W4, V4: whatever the order of grants, slices, lost answers, ends and disconnects, one holds the key at a time
    and nothing is held, waited for or counted when all have gone."""
    grants = vanished = 0
    for seed in range(part, SEEDS, PARTS):
        crowd = Crowd(seed)
        try:
            crowd.stage.play(crowd.run())
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        grants, vanished = grants + crowd.grants, vanished + crowd.vanished
    assert grants > SEEDS / PARTS / 2  # else this would prove nothing
    assert vanished > SEEDS / PARTS / 2


def test_who_vanishes_as_nobody_knows_what_the_store_did_leaves_nothing() -> None:
    """V3: in this order the client goes in the very turn in which its wait ends with a lost answer."""
    crowd = Crowd(8766)
    crowd.stage.play(crowd.run())
