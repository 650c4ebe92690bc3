"""Who asks for which claim, and what the store said to it, so that nothing is handed back that somebody was told.

A proxy or a client may send a claim again, also to another service that has the same store: of that this one hears
nothing. But the store counts how often it said that a token holds its key. What was told elsewhere, or may have been,
is therefore not handed back; a lease that nobody knows of then ends by its ttl.
"""

from __future__ import annotations

import asyncio
from typing import Any

from leased.cleanup import hand_back
from leased.env import Env
from leased.model import Claim, Held
from leased.store import Store


class _Asked:
    """One claim: the requests and waits that ask for it now, and what they were told."""

    __slots__ = ("asking", "heard", "minted", "owed", "told")

    def __init__(self) -> None:
        self.asking = 0
        self.heard = 0  # how often the store said that it holds the key
        self.minted = False  # nobody else knows the token
        self.told = False  # one of them was told that it holds the key
        self.owed = False  # the store may hold it for one that has gone


class Copies:
    """All claims that this process is asked for."""

    def __init__(self, store: Store, env: Env) -> None:
        self._store = store
        self._env = env
        self._asked: dict[tuple[str, str], _Asked] = {}
        self._ending: dict[tuple[str, str], asyncio.Task[None]] = {}  # claims that are being handed back

    def __len__(self) -> int:
        """How many claims are asked for, or handed back."""
        return len(self._asked.keys() | self._ending.keys())

    def handing_back(self) -> set[asyncio.Task[Any]]:
        """What is on its way back."""
        return set(self._ending.values())

    async def begin(self, claim: Claim, *, minted: bool = False) -> None:
        """A request asks for this claim; `end` has to follow. A copy of it that is being handed back is waited for, or
        this one would be told that it holds what is given back. `minted`: nobody else knows the token."""
        key = claim.key, claim.token
        while self._ending and (ending := self._ending.get(key)) is not None:
            await asyncio.wait([ending])
        self.join(claim, minted=minted)

    def join(self, claim: Claim, *, minted: bool = False) -> None:
        """One more asks for this claim, at once; `end` has to follow."""
        asked = self._asked.setdefault((claim.key, claim.token), _Asked())
        asked.asking += 1
        asked.minted = asked.minted or minted

    def minted(self, claim: Claim) -> bool:
        """Whether nobody else knows the token of this claim, which is asked for."""
        return self._asked[claim.key, claim.token].minted

    def hear(self, claim: Claim, outcome: object) -> None:
        """The store has answered one of those that ask for this claim."""
        if isinstance(outcome, Held):
            self._asked[claim.key, claim.token].heard += 1

    def end(self, claim: Claim, outcome: object) -> None:
        """One of them is answered with this outcome, or with an error. The last one settles what is owed."""
        key = claim.key, claim.token
        asked = self._asked[key]
        asked.asking -= 1
        if isinstance(outcome, Held):
            asked.told = True
        if not asked.asking:
            del self._asked[key]
            if asked.owed and not asked.told:
                self._hand_back(claim, heard=None if asked.minted else asked.heard)

    def owe(self, claim: Claim, *, minted: bool = False) -> None:
        """The store may hold the key for a request that has gone: hand it back, unless a copy of it is answered yet."""
        asked = self._asked.get((claim.key, claim.token))
        if asked is None:
            self._hand_back(claim, heard=None if minted else 0)
        else:
            asked.owed, asked.minted = True, asked.minted or minted

    def _hand_back(self, claim: Claim, *, heard: int | None) -> None:
        key = claim.key, claim.token
        task = asyncio.get_running_loop().create_task(hand_back(self._store, self._env, claim, heard=heard))
        self._ending[key] = task

        task.add_done_callback(lambda _: self._ending.pop(key) if self._ending.get(key) is task else None)
