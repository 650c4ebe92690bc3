"""Sends requests to the members of an etcd cluster: which one, as whom, and what may be asked again. It knows no keys.

A new connection first asks who the members are, unless that was heard a short while ago: so one that leads to a member
which hangs is found out before anything depends on it.
"""

from __future__ import annotations

import json
import random
from typing import Any

from leased.errors import StoreNotUsable, StoreUnavailable
from leased.stores._cas_clock import ClientClock, read_date
from leased.stores._etcd_answers import Refused, cut_off, senseless, understand
from leased.stores._etcd_standing import read_assurance
from leased.stores._etcd_url import Address, Login
from leased.stores._http_connection import Connection, Cut, connect_blocking, connect_in_loop, trust_of
from leased.stores._http_url import Address as Member
from leased.stores._http_wire import Answer, Requests
from leased.stores._loops import running_loop
from leased.stores._pool import Pool, pool_size
from leased.stores._senseless import SENSELESS
from leased.stores._standing import Standing
from leased.targets import Face, Options

_HEARD_FOR = 5.0
_LONGEST_NAP = 0.2
_LOGINS = 3


class Line:
    """A connection to one member. It may not be used again once that member has failed anybody."""

    __slots__ = ("__weakref__", "_era", "connection", "number", "route")

    def __init__(self, route: Route, number: int, *, connection: Connection) -> None:
        self.route = route
        self.number = number
        self.connection = connection
        self._era = route.eras[number]

    def usable(self) -> bool:
        """See `leased.stores._pool`."""
        return self._era == self.route.eras[self.number] and self.connection.usable()

    def close(self) -> None:
        """See `leased.stores._pool`."""
        self.connection.close()


class Route:
    """Which member is asked: the same one until it fails, then the next."""

    def __init__(self, members: tuple[Member, ...]) -> None:
        self.members = members
        self.eras = [0] * len(members)
        self._first = random.randrange(len(members))

    def order(self) -> list[int]:
        """The numbers of all members, the one to be asked first before the others."""
        count = len(self.members)
        return [(self._first + further) % count for further in range(count)]

    def keep(self, number: int) -> None:
        """That one answered."""
        self._first = number

    def leave(self, number: int) -> None:
        """That one failed: nothing of what leads to it is used again, and others are asked first."""
        self.eras[number] += 1
        if self._first == number:
            self._first = (number + 1) % len(self.members)


class Pass:
    """The token that a login gave, until a member refuses it, and requests that show it."""

    def __init__(self, login: Login | None) -> None:
        self.login = login
        self.token: str | None = None if login else ""
        self._requests: dict[tuple[str, str], Requests] = {}

    def requests(self, member: Member) -> Requests:
        """What writes requests to this member."""
        token = self.token or ""
        found = self._requests.get((member.authority, token))
        if found is None:
            # A member that has no leader says so at once instead of holding what it is asked for seconds.
            fields = ["Grpc-Metadata-hasleader: true", *([f"Authorization: {token}"] if token else [])]
            found = Requests(member.authority, fields=fields)
            self._requests = {named: kept for named, kept in self._requests.items() if named[1] == token}
            self._requests[member.authority, token] = found
        return found

    def ask(self, member: Member) -> bytes:
        """The request for a token."""
        assert self.login is not None  # noqa: S101 (else no token is missing)
        body = json.dumps({"name": self.login.name, "password": self.login.password}).encode()
        return Requests(member.authority).post("/v3/auth/authenticate", body)

    def take(self, answer: dict[str, Any]) -> None:
        """Keep the token in an answer. One with other characters than tokens have is `Refused`."""
        token = answer.get("token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise Refused(senseless("etcd"))
        self.token = token

    def none_needed(self, refused: Refused) -> bool:
        """Whether the member has just said that it knows no users, so that nobody has to log in."""
        if "authentication is not enabled" not in refused.error.message:
            return False
        self.token = ""
        return True

    def refuse(self, token: str | None) -> bool:
        """That one is not valid, or not any more; whether another can be asked for."""
        if self.login is not None and self.token == token:
            self.token = None
        return self.login is not None


class Link:
    """The connections of one store to its cluster."""

    def __init__(
        self, address: Address, *, face: Face, options: Options, wall: ClientClock, standing: Standing
    ) -> None:
        self._address = address
        self._clock = options.clock
        self._options = options
        self._wall = wall
        self._standing = standing
        self._heard_at: float | None = None
        self._open = connect_blocking if face == "blocking" else connect_in_loop
        self._trust = trust_of(address.members[0])
        self._route = Route(address.members)
        self._pass = Pass(address.login)
        loop = running_loop if face == "async" else None
        self._pool: Pool[Line] = Pool(self._connect, clock=options.clock, most=pool_size(options), loop=loop)

    async def send(self, path: str, body: bytes, *, seconds: float, harmless: bool = False) -> dict[str, Any]:
        """The answer to a request; `StoreUnavailable` with what is known of its effect.

        It is sent again only where it certainly had none, or (`harmless`) changes nothing: elsewhere, after a login, or
        soon, when there is a leader again.
        """
        give_up_at = self._clock.now() + seconds
        attempt = logins = 0
        while True:
            token = self._pass.token
            try:
                return await self._send_once(path, body, give_up_at=give_up_at, harmless=harmless)
            except Refused as refused:
                repeat, error = refused.repeat, refused.error
            if repeat == "after login":
                logins += 1
                if not self._pass.refuse(token) or logins > _LOGINS:
                    raise error
                continue
            nap = min(_LONGEST_NAP, 0.005 * 2**attempt) * random.uniform(0.5, 1.0)
            certain = harmless or error.applied is False
            if repeat == "never" or not certain or give_up_at - self._clock.now() <= nap:
                raise error
            attempt += 1
            if attempt > len(self._address.members):  # all were asked
                await self._clock.sleep(nap)

    def check_open(self) -> None:
        """Raise `StoreNotUsable` once closed."""
        self._pool.check_open()

    def close(self) -> None:
        """Close what is idle, and what is in use once it is given back."""
        self._pool.close()

    async def _send_once(self, path: str, body: bytes, *, give_up_at: float, harmless: bool) -> dict[str, Any]:
        line = await self._pool.take(max(give_up_at - self._clock.now(), 0.0))
        member = self._address.members[line.number]
        try:
            if self._pass.token is None:
                await self._log_in(line, give_up_at)
            left = give_up_at - self._clock.now()
            # One that hangs leaves time for another, where the same may be asked again.
            share = left / 2 if harmless and len(self._address.members) > 1 else left
            answer = await self._exchange(line, self._pass.requests(member).post(path, body), seconds=share)
        except BaseException:
            self._pool.drop(line)
            raise
        if answer.keep:
            self._pool.give(line)
        else:
            self._pool.drop(line)
        return self._understand(line, answer)

    async def _exchange(self, line: Line, request: bytes, *, seconds: float) -> Answer:
        """The answer of a member; one that gives none is left."""
        asked_at = self._clock.now()
        try:
            if seconds <= 0:
                raise Cut("the time was over before it was sent", sent=False)
            answer = await line.connection.exchange(request, seconds=seconds)
        except Cut as cut:
            self._leave(line.number)
            raise cut_off(cut, self._address.members[line.number]) from cut
        if answer.date:
            read_date(self._wall, answer.date, asked_at=asked_at)
        return answer

    def _understand(self, line: Line, answer: Answer) -> dict[str, Any]:
        try:
            return understand(answer, self._address.members[line.number])
        except Refused as refused:
            if refused.repeat == "soon":
                self._leave(line.number)
            raise

    async def _log_in(self, line: Line, give_up_at: float) -> None:
        question = self._pass.ask(self._address.members[line.number])
        try:
            answer = await self._exchange(line, question, seconds=give_up_at - self._clock.now())
            self._pass.take(self._understand(line, answer))
        except Refused as refused:
            if not self._pass.none_needed(refused):
                refused.error.applied = False
                raise

    def _leave(self, number: int) -> None:
        self._route.leave(number)
        self._heard_at = None

    async def _connect(self, seconds: float) -> Line:
        """A connection to the first member that answers, each with its share of the time; raises `Refused`."""
        give_up_at = self._clock.now() + seconds
        away: Refused | None = None
        undecided: Refused | None = None
        order = self._route.order()
        for asked, number in enumerate(order):
            share = max(give_up_at - self._clock.now(), 0.0) / (len(order) - asked)
            try:
                line = await self._reach(number, share)
            except StoreUnavailable as error:
                if isinstance(error, StoreNotUsable):
                    raise
                self._leave(number)
                away = Refused(error)
            except Refused as refused:
                if refused.repeat == "elsewhere":
                    away = Refused(refused.error)
                elif refused.repeat == "soon":
                    undecided = refused
                else:
                    raise
            else:
                self._route.keep(number)
                return line
        problem = undecided or away
        assert problem is not None  # noqa: S101 (there is at least one member)
        raise problem

    async def _reach(self, number: int, seconds: float) -> Line:
        give_up_at = self._clock.now() + seconds
        connection: Connection = await self._open(self._address.members[number], self._trust, seconds=seconds)
        line = Line(self._route, number, connection=connection)
        try:
            if self._pass.token is None:
                await self._log_in(line, give_up_at)
            if self._heard_at is None or self._clock.now() - self._heard_at >= _HEARD_FOR:
                await self._hear(line, give_up_at)
        except Refused as refused:
            refused.error.applied = False  # whatever is to be done was not sent yet
            line.close()
            raise
        except BaseException:
            line.close()
            raise
        return line

    async def _hear(self, line: Line, give_up_at: float) -> None:
        """Ask a member who the members are."""
        member = self._address.members[line.number]
        question = self._pass.requests(member).post("/v3/cluster/member/list", b"{}")
        answer = await self._exchange(line, question, seconds=give_up_at - self._clock.now())
        try:
            found = read_assurance(self._understand(line, answer), self._options)
        except Refused as refused:
            if "may not do this" not in refused.error.message:
                raise
            found = read_assurance(None, self._options)
        except SENSELESS as error:
            raise Refused(senseless(member)) from error
        if not answer.keep:
            raise cut_off(Cut("it closed the connection", sent=False), member)
        self._standing.read(found)
        self._heard_at = self._clock.now()
