"""The gate: who is let in, in which order it decides, and what depends on neither limits nor rules."""

import itertools
import re
from typing import Any, get_args

import pytest

from leased.errors import (
    AccessDenied,
    InvalidRequest,
    LeasedError,
    RateLimited,
    RequestConflict,
    StoreUnavailable,
    Unauthenticated,
)
from leased.server import gate_memory
from leased.server.credentials import RuleSet
from leased.server.gate import ATTEMPTS, REQUESTS, AccessGate, Budgets
from leased.server.gate_memory import REMEMBERED_FOR
from leased.server.limits import Budget
from leased.server.principals import Action, Gate, Principal
from leased.server.rights import NEVER_REFUSED, may
from tests.server.access.gates import PLENTY, World

OWN = RuleSet("p", "own", "record.key.startsWith('user:' + user.userId + ':')", "isMemberOf('ops', 'team')")
ADA = Principal("p", "member", "ada")


def test_it_is_a_gate() -> None:
    """11: what the service asks is what this answers."""
    found: Gate = World().gate
    assert isinstance(found, AccessGate)


async def test_a_key_stands_for_its_principal() -> None:
    """V5: project, kind, name, role, groups and scopes are those of the credential, whatever a caller writes."""
    world = World()
    key = world.key("member", "ada", role="admin", groups=[("ops", "team")])
    assert await world.who(key) == Principal(
        "p", "member", "ada", "admin", frozenset({("ops", "team")}), credential=key.id
    )
    service = world.key("service", "cron", scopes=["locks.manage"], project="q")
    assert await world.who(f"bearer   {service.text}") == Principal(
        "q", "service", "cron", scopes=frozenset({"locks.manage"}), credential=service.id
    )


async def test_whoever_shows_nothing_valid_is_nobody() -> None:
    """V5, SEC2: a wrong secret reads like an unknown id, and the message has nothing of what was sent."""
    world = World()
    key, other = world.key(), world.key("member", "bob")
    wrong = {
        None: "is needed",
        "": "is needed",
        "Bearer": "not understood",
        "Bearer ": "not understood",
        f"Basic {key.text}": "not understood",
        key.text: "not understood",
        f"Bearer {key.text}x": "not valid",
        f"Bearer {key.text.upper()}": "no API key",
        f"Bearer lk_{key.id}_{other.secret}": "not valid",
        f"Bearer lk_{'0' * 12}_{key.secret}": "not valid",
        "Bearer a.b.c": "no API key",
        "Bearer \ud800": "no API key",
        f"Bearer {world.key(revoked_at=1.0).text}": "was revoked",
        f"Bearer {world.key(expires_at=1000.0).text}": "has expired",
    }
    for header, words in wrong.items():
        with pytest.raises(Unauthenticated) as caught:
            await world.gate.identify(header, peer="192.0.2.1")
        assert words in caught.value.message
        assert key.secret not in str(caught.value)
    assert (await world.who(world.key(expires_at=1000.1))).id == "ada"


async def test_a_credential_is_looked_up_once_in_a_while() -> None:
    """V5: between two looks lie seconds, and a revoked key works no longer than that."""
    world = World()
    key = world.key()
    for _ in range(100):
        await world.who(key)
    assert world.registry.asked == 1
    world.registry.kept[key.id] = world.registry.kept[world.key(revoked_at=1.0).id]
    await world.who(key)
    world.watch.time += REMEMBERED_FOR
    with pytest.raises(Unauthenticated):
        await world.who(key)


async def test_what_changes_here_counts_at_once() -> None:
    """V5: a key revoked through this service is refused by the next request."""
    world = World()
    key = world.key()
    await world.who(key)
    world.registry.kept.clear()
    world.gate.forget("p")
    with pytest.raises(Unauthenticated):
        await world.who(key)


async def test_remembered_credentials_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """C180: however many there are, few are kept in memory, and none in clear."""
    monkeypatch.setattr(gate_memory, "MAX_REMEMBERED", 10)
    world = World()
    keys = [world.key() for _ in range(50)]
    for key in keys:
        await world.who(key)
    assert len(world.gate._principals._known) == 10
    assert keys[-1].secret not in repr(vars(world.gate._principals))


async def test_a_registry_without_an_answer_lets_nobody_in() -> None:
    """S2: a failure is no refusal, and no permission."""
    world = World()
    key = world.key()
    world.registry.broken = True
    with pytest.raises(StoreUnavailable):
        await world.who(key)
    with pytest.raises(StoreUnavailable):
        await world.gate.admit(ADA, "acquire", key="k")


async def test_failed_logins_have_a_limit_of_their_own() -> None:
    """SEC5, C173: they count by address, an IPv6 network is one, and never against whoever has a valid key."""
    world = World(budgets=Budgets(failures=Budget(3, 60.0)))
    key = world.key()
    addresses = itertools.cycle(["2001:db8::1", "2001:db8::2", "2001:db8:0:0:ffff::"])
    for _ in range(3):
        with pytest.raises(Unauthenticated):
            await world.who("Bearer x", peer=next(addresses))
    with pytest.raises(RateLimited) as caught:
        await world.who("Bearer x", peer=next(addresses))
    assert caught.value.retry_after == pytest.approx(20, abs=0.01)
    assert (await world.who(key, peer="2001:db8::1")).id == "ada"
    for peer in ("2001:db8:0:1::1", "192.0.2.1", "::ffff:192.0.2.2", "192.0.2.2", "not an address"):
        with pytest.raises(Unauthenticated):
            await world.who("Bearer x", peer=peer)
    await world.gate.admit(ADA, "acquire", key="k")
    world.watch.time += 20.01
    with pytest.raises(Unauthenticated):
        await world.who("Bearer x", peer="2001:db8::1")


KINDS: dict[str, dict[str, Any]] = {
    "member": {"kind": "member"},
    "member in ops": {"kind": "member", "groups": frozenset({("ops", "team")})},
    "admin": {"kind": "member", "role": "admin"},
    "owner": {"kind": "member", "role": "owner"},
    "function": {"kind": "function"},
    "service": {"kind": "service"},
    "service locks.manage": {"kind": "service", "scopes": frozenset({"locks.manage"})},
    "service full": {"kind": "service", "scopes": frozenset({"full"})},
}
PROVED = {"release", "abandon", "look"}
OF_ALL = PROVED | {"status", "capabilities"}
OF_LOCKS = {"acquire", "renew"}
OF_ADMINS = {"list", "force-release", "events"}
KEYS = {"own": "user:ada:x", "other": "user:bob:x", "unknown": "never seen"}


def expected(kind: str, action: str, *, rules: str, key: str) -> bool:
    """The matrix of A1, A2, A4, A5 and V5, written once more and otherwise."""
    if action in OF_ALL:
        return True
    if kind in {"admin", "owner", "service full"}:
        return True
    if kind == "service locks.manage":
        return action in OF_LOCKS | OF_ADMINS
    if kind == "service" or action not in OF_LOCKS:
        return False
    if kind == "function" or rules == "none":
        return True
    if rules == "empty":
        return False
    return key == "own" if action == "acquire" else kind == "member in ops"


@pytest.mark.parametrize(("kind", "action"), list(itertools.product(KINDS, get_args(Action))))
async def test_the_matrix_of_rights(kind: str, action: Action) -> None:
    """A1, A2, A4, A5, SEC4, SEC7, SEC13: each cell has the expected answer; a denial reads the same for every key."""
    denials = set()
    for rules, key in itertools.product(("none", "own", "empty"), KEYS):
        world = World()
        if rules != "none":
            world.registry.rule_sets["p"] = OWN if rules == "own" else RuleSet("p", "empty")
        principal = Principal("p", id="ada", **KINDS[kind])
        try:
            await world.gate.admit(principal, action, key=KEYS[key])
            allowed = True
        except AccessDenied as error:
            said = error.message.replace(repr(KEYS[key]), "KEY")  # the caller's own word
            denials.add((error.code, error.http_status, said, error.hint))
            allowed = False
        assert allowed == expected(kind, action, rules=rules, key=key), (rules, key)
        await world.gate.close()
        lines = [line for line in world.registry.lines if line.action.startswith("denied")]
        assert len(lines) == (not allowed)
    assert len(denials) <= 1
    assert not any(re.search(rf"\b{word}\b", str(denials)) for word in ("user:", "startsWith", "own", "bob"))


def test_every_action_has_a_row() -> None:
    """Issue 4: a new action without an expected answer fails here."""
    assert set(get_args(Action)) == OF_ALL | OF_LOCKS | OF_ADMINS | {"manage"}
    assert PROVED == NEVER_REFUSED


async def test_rules_of_another_project_do_not_count() -> None:
    """V5, A1: a rule set binds its own project alone."""
    world = World()
    world.registry.rule_sets["q"] = RuleSet("q", "none")
    await world.gate.admit(ADA, "acquire", key="k")
    with pytest.raises(AccessDenied):
        await world.gate.admit(Principal("q", "member", "ada"), "acquire", key="k")


async def test_a_rule_set_counts_soon_and_its_end_opens_again() -> None:
    """A2: installing closes, deleting opens; within seconds where another process did it."""
    world = World()
    await world.gate.admit(ADA, "acquire", key="k")
    world.registry.rule_sets["p"] = OWN
    world.watch.time += REMEMBERED_FOR
    with pytest.raises(AccessDenied):
        await world.gate.admit(ADA, "acquire", key="k")
    await world.gate.admit(ADA, "acquire", key="user:ada:k")
    del world.registry.rule_sets["p"]
    world.gate.forget("p")
    await world.gate.admit(ADA, "acquire", key="k")


async def test_a_rule_that_cannot_be_used_any_more_denies(caplog: pytest.LogCaptureFixture) -> None:
    """A3: a rule that was installed and does not compile today lets nobody in; the log alone says why."""
    world = World()
    world.registry.rule_sets["p"] = RuleSet("p", "broken", "no such thing", "true")
    with pytest.raises(AccessDenied) as caught:
        await world.gate.admit(ADA, "acquire", key="k")
    assert "no such thing" not in str(caught.value)
    assert "cannot be used any more" in caplog.text
    await world.gate.admit(ADA, "renew", key="k")
    await world.gate.close()


async def test_a_denial_names_who_what_and_where_and_what_to_do() -> None:
    """11, A3, A4: the same words whether a right or a rule is missing; the rule is not told."""
    world = World()
    world.registry.rule_sets["p"] = OWN
    cron = Principal("p", "service", "cron")
    said = []
    for who in (ADA, cron):
        with pytest.raises(AccessDenied) as caught:
            await world.gate.admit(who, "acquire", key="k\x1b")
        said.append((caught.value.message, caught.value.hint))
    assert said[0][0] == r"member:ada may not take the key 'k\\x1b' in the project p"
    assert said[1][0] == r"service:cron may not take the key 'k\\x1b' in the project p"
    assert said[0][1] == said[1][1]
    assert "audit log" in (said[0][1] or "")
    for action in get_args(Action):
        if not may(cron, action):
            with pytest.raises(AccessDenied) as caught:
                await world.gate.admit(cron, action, key="k")
            assert caught.value.hint


async def test_a_key_that_is_not_valid_says_what_to_check_and_not_why() -> None:
    """A4: an id that exists reads like one that does not; what is no key at all says how one reads."""
    world = World()
    key = world.key()
    said = set()
    for wrong in (f"lk_{key.id}_{'5' * 40}", f"lk_{'0' * 12}_{'5' * 40}"):
        with pytest.raises(Unauthenticated, match="is not valid") as caught:
            await world.who(f"Bearer {wrong}")
        said.add(str(caught.value))
    assert len(said) == 1
    assert "copied whole" in said.pop()
    for wrong in (key.text[:-1], f"{key.text}.", f'{key.text}"'):
        with pytest.raises(Unauthenticated, match="reads lk_, 12 letters and digits, _, and 40 more"):
            await world.who(f"Bearer {wrong}")


async def test_the_reason_of_a_denial_is_in_the_audit_log_alone() -> None:
    """A3, A5: administrators see what happened; the caller sees one sentence."""
    world = World()
    world.registry.rule_sets["p"] = OWN
    for key in ("k1", "k2"):
        with pytest.raises(AccessDenied):
            await world.gate.admit(ADA, "acquire", key=key)
    await world.gate.close()
    (line,) = world.registry.lines
    assert (line.actor, line.action, line.target, line.detail, line.count) == (
        "member:ada",
        "denied acquire",
        "k1",
        "the rule says no",
        2,
    )
    assert world.registry.closed


async def test_a_forced_release_is_recorded_first() -> None:
    """A5, SEC14: without a line in the audit log it does not happen, unless that is not required."""
    admin = Principal("p", "member", "ada", "admin")
    world = World()
    await world.gate.record(admin, "force-release", key="k", detail="why")
    assert [(line.actor, line.action, line.target, line.detail) for line in world.registry.lines] == [
        ("member:ada", "force-release", "k", "why")
    ]
    world.registry.broken = True
    with pytest.raises(StoreUnavailable):
        await world.gate.record(admin, "force-release", key="k", detail="why")
    lenient = World(audit_required=False)
    lenient.registry.broken = True
    await lenient.gate.record(admin, "force-release", key="k", detail="why")


def test_the_defaults_are_those_of_the_specification() -> None:
    """R1: 600 acquire attempts an hour for a member, 600 requests a minute for a project."""
    assert Budgets() == Budgets(ATTEMPTS, REQUESTS, Budget(60, 60.0))
    assert (ATTEMPTS.uses, ATTEMPTS.seconds, REQUESTS.uses, REQUESTS.seconds) == (600, 3600.0, 600, 60.0)


async def refused(world: World, principal: Principal, action: Action, *, count: int = 1) -> float:
    """Seconds to wait, 0 if it passed."""
    try:
        await world.gate.admit(principal, action, key="k", count=count)
    except RateLimited as error:
        return error.retry_after or 0.0
    return 0.0


async def test_attempts_count_by_member_and_requests_by_project() -> None:
    """R1, R2, C173: neither another credential nor another key of the same member helps; others are not touched."""
    world = World(budgets=Budgets(attempts=Budget(5, 3600.0), requests=Budget(100, 60.0)))
    first = await world.who(world.key("member", "ada"))
    second = await world.who(world.key("member", "ada", role="admin"))
    bob, elsewhere = Principal("p", "member", "bob"), Principal("q", "member", "ada")
    passed = [await refused(world, who, "acquire") == 0 for who in (first, second) * 4]
    assert passed == [True] * 5 + [False] * 3
    late = await refused(world, first, "acquire")
    assert late == pytest.approx(720.0, abs=1e-3)
    assert await refused(world, bob, "acquire") == 0
    assert await refused(world, elsewhere, "acquire") == 0
    assert await refused(world, first, "renew") == 0
    assert await refused(world, Principal("p", "function", "ada"), "acquire") == 0
    world.watch.time += late
    assert await refused(world, first, "acquire") == 0


async def test_everything_counts_for_the_project_and_refusals_cost_nothing() -> None:
    """R1: each operation of a batch is one; what was refused by a limit uses neither budget."""
    world = World(budgets=Budgets(attempts=Budget(2, 3600.0), requests=Budget(10, 60.0)))
    for action in ("status", "look", "release", "renew", "capabilities"):
        assert await refused(world, ADA, action) == 0
    assert await refused(world, ADA, "acquire", count=2) == 0
    for _ in range(5):
        assert await refused(world, ADA, "acquire") > 0
    assert await refused(world, ADA, "status", count=3) == 0
    assert await refused(world, Principal("p", "service", "s", scopes=frozenset({"full"})), "renew") > 0
    assert await refused(world, Principal("q", "member", "ada"), "acquire") == 0


async def test_what_is_denied_is_counted_too() -> None:
    """R1: everything counts, or a denied caller could ask without end."""
    world = World(budgets=Budgets(attempts=Budget(3, 3600.0)))
    world.registry.rule_sets["p"] = RuleSet("p", "empty")
    answers: list[type[LeasedError]] = []
    for _ in range(4):
        with pytest.raises(LeasedError) as caught:
            await world.gate.admit(ADA, "acquire", key="k")
        answers.append(caught.type)
    assert answers == [AccessDenied] * 3 + [RateLimited]
    await world.gate.close()


async def test_ending_a_lease_is_never_refused() -> None:
    """R2, SEC7: release, abandon and looking at one's own hold pass with all budgets used up and all rules against."""
    world = World(budgets=Budgets(*[Budget(1, 3600.0)] * 3))
    world.registry.rule_sets["p"] = RuleSet("p", "empty")
    for principal in (ADA, Principal("p", "service", "s"), Principal("p", "function", "f")):
        for action in ("release", "abandon", "look"):
            await world.gate.admit(principal, action, key="k", count=50)
    assert await refused(world, ADA, "status") == pytest.approx(3600.0, abs=1e-3)


async def test_a_batch_that_never_fits_is_a_mistake() -> None:
    """R2: waiting would not help, so it is not advised."""
    world = World(budgets=Budgets(requests=Budget(5, 60.0)))
    with pytest.raises(InvalidRequest, match="smaller batches"):
        await world.gate.admit(ADA, "renew", key="k", count=6)


async def test_a_request_id_is_bound_by_the_gate() -> None:
    """O6, SEC19: the same request again passes, another one with its id does not."""
    world = World(budgets=PLENTY)
    await world.gate.bind(ADA, "r1", parameters={"key": "k"})
    await world.gate.bind(ADA, "r1", parameters={"key": "k"})
    with pytest.raises(RequestConflict):
        await world.gate.bind(ADA, "r1", parameters={"key": "l"})
