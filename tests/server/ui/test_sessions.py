"""Sign-ins of browsers: what a cookie is worth to whoever copies it, and for how long. It is no credential."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import itertools
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leased.errors import Unauthenticated
from leased.server import sessions as sessions_module
from leased.server.access import open_gate
from leased.server.browser import MAX_COOKIE
from leased.server.gate_memory import GRACE, REMEMBERED_FOR
from leased.server.key_sets import KeySet
from leased.server.keys import PEPPER_LENGTH, Hasher, new_key
from leased.server.principals import Principal
from leased.server.sessions import LONGEST, PURPOSE, Session, Sessions
from leased.server.settings import Settings
from leased.server.tokens import LEEWAY, Issuer, Tokens
from tests.server.access.gates import World
from tests.server.access.test_limits import Watch
from tests.server.access.test_tokens import ISSUER, Source, public, signed
from tests.server.talking import JSON, ask
from tests.server.test_watching import Stream
from tests.server.ui.browsing import Browser, guarded

ADA = Principal("p", "member", "ada", role="admin", credential="0123456789ab")
MIA = Principal("p", "member", "mia", groups=frozenset({("ops", "team"), ("über\u202e", "x")}), credential="token")
LIFE = 3600.0


def sessions(watch: Watch | None = None, *, pepper: bytes = b"p" * PEPPER_LENGTH) -> Sessions:
    return Sessions(Hasher(pepper).key_for(PURPOSE), wall=watch or Watch())


@pytest.mark.parametrize("principal", [ADA, MIA])
def test_a_sealed_session_is_read_as_it_was_by_whoever_has_the_key(principal: Principal) -> None:
    """V4, SEC15: replicas that share the pepper read each other's, others read nothing."""
    watch = Watch()
    one = sessions(watch).begin(principal, life=LIFE)
    sealed = sessions(watch).seal(one)
    assert sessions(watch).read(sealed) == one
    assert sessions(watch).token(one) == sessions(watch).token(one)
    assert sessions(watch, pepper=b"q" * PEPPER_LENGTH).read(sealed) is None
    assert sessions(watch, pepper=b"q" * PEPPER_LENGTH).token(one) != sessions(watch).token(one)


def test_a_seal_covers_every_bit() -> None:
    """SEC15: whatever is changed, left out, added or moved between two sessions, nothing is read."""
    mine = sessions()
    texts = [mine.seal(mine.begin(who, life=LIFE)) for who in (ADA, MIA, ADA)]
    for place, letter in itertools.product(range(len(texts[0])), "Aa0-._"):
        changed = texts[0][:place] + letter + texts[0][place + 1 :]
        assert changed == texts[0] or mine.read(changed) is None, changed
    body, _, seal = texts[0].partition(".")
    other_body, _, other_seal = texts[2].partition(".")
    for forged in (body, f"{body}.", f".{seal}", f"{body}.{other_seal}", f"{other_body}.{seal}", f"{body}={seal}", ""):
        assert mine.read(forged) is None, forged
    for forged in (f"{body}.{seal}0", f"{body}.{seal}.", f" {body}.{seal}", f"{body}\n.{seal}", f"{body}.{'é' * 64}"):
        assert mine.read(forged) is None, forged


def test_what_another_version_sealed_is_none() -> None:
    """A service that was renewed, or of which two versions run side by side, asks to sign in again."""
    mine = sessions()
    for text in (b"[]", b"{}", b'["x"]', b'["x",1e9,1e9,"k",null,1]', b"\xff", b"", b'["x",1e9,1e9,"k",["p"]]'):
        body = base64.urlsafe_b64encode(text).rstrip(b"=").decode()
        assert mine.read(f"{body}.{mine._seal(text)}") is None, text


def test_no_seal_can_be_made_of_what_everybody_knows() -> None:
    """SEC2, SEC15: a registry in a file without a key file hashes its keys with a pepper that is in the source. The
    seals of such a service are of a key that it makes itself, and nobody else reads or makes them."""
    watch = Watch()
    known = b"k" * PEPPER_LENGTH
    one, two = (Sessions(Hasher(known, public=True).key_for(PURPOSE), wall=watch) for _ in range(2))
    sealed = one.seal(one.begin(ADA, life=LIFE))
    assert one.read(sealed) is not None
    assert two.read(sealed) is None
    assert sessions(watch, pepper=known).read(sealed) is None


def test_a_service_over_a_list_of_keys_in_a_file_makes_its_own_seals(tmp_path: Path) -> None:
    """The same, from the settings on."""
    (tmp_path / "keys.toml").write_text("")
    (tmp_path / "keys.toml").chmod(0o600)

    async def run() -> None:
        gates = [open_gate(Settings(registry=str(tmp_path / "keys.toml"))) for _ in range(2)]
        one, two = (gate.sessions for gate in gates)
        assert two.read(one.seal(one.begin(ADA, life=LIFE))) is None
        for gate in gates:
            await gate.close()

    asyncio.run(run())


def test_sessions_end_whatever_a_browser_does() -> None:
    """SEC15: after the time without a look at the dashboard, at the latest after a working day, and not later than
    what they stand for."""
    watch = Watch()
    mine = sessions(watch)
    one = mine.begin(ADA, life=LIFE)
    sealed = mine.seal(one)
    watch.time += LIFE - 1
    assert mine.read(sealed) == one
    later = mine.go_on(one, life=LIFE)
    watch.time += 1
    assert mine.read(sealed) is None
    assert mine.read(mine.seal(later)) == later
    steps = 0
    while (found := mine.read(mine.seal(later))) is not None:
        later = mine.go_on(found, life=LIFE)
        watch.time += LIFE / 2
        steps += 1
    assert steps == pytest.approx(LONGEST / (LIFE / 2), abs=2)
    short = mine.begin(MIA, life=LIFE, end=watch.time + 10)
    assert mine.left(mine.go_on(short, life=LIFE)) == 10


def test_what_was_signed_out_is_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """C180: as long as a copy could count, and never more than so many."""
    monkeypatch.setattr(sessions_module, "MAX_ENDED", 10)
    watch = Watch()
    mine = sessions(watch)
    ended = [mine.begin(ADA, life=LIFE) for _ in range(25)]
    for one in ended:
        mine.end(one)
    assert len(mine._ended) == 10
    assert not mine.lasts(ended[-1])
    watch.time += LONGEST + 1
    mine.end(mine.begin(ADA, life=LIFE))
    assert len(mine._ended) == 1


def signed_in(world: World, service: Any, **more: Any) -> Browser:
    browser = Browser(service)
    assert browser.sign_in(world.key(role="admin", **more)).status == 200
    return browser


def test_a_cookie_holds_nothing_that_opens_anything_else() -> None:
    """SEC3, SEC15: nothing of the secret is in it, and shown as a credential it is none."""
    world = World()
    with guarded(world) as service:
        browser, key = Browser(service), world.key(role="admin")
        browser.sign_in(key)
        value = browser.cookie.partition("=")[2]
        inside = base64.urlsafe_b64decode(value.partition(".")[0] + "==").decode()
        assert key.id in inside
        for piece in (key.secret, key.secret[:12], key.secret[-12:], world.hasher.digest(key).hex()[:12]):
            assert piece not in inside + value + browser.token
        for header in (f"Bearer {value}", f"Session {value}", value, f"Cookie {browser.cookie}"):
            assert ask(service.port, "/v1/locks", headers={**JSON, "Authorization": header}).status == 401
        assert ask(service.port, "/v1/locks", headers={**JSON, "Leased-Session": value}).status == 401
        assert browser.send("/v1/locks").status == 200


def test_a_copy_of_the_cookie_ends_with_the_sign_out() -> None:
    """SEC15: of whichever look at the session it is; and so do those of the sign-in that another one replaced."""
    world = World()
    with guarded(world) as service:
        browser = signed_in(world, service)
        copies = [browser.cookie]
        world.watch.time += 60
        browser.load()
        copies.append(browser.cookie)
        assert copies[0] != copies[1]
        tab = Browser(service)
        tab.cookie, tab.token = copies[0], browser.token
        assert tab.send("/v1/locks/acquire", {"key": "k", "ttlMs": 30_000}).status == 200, "two tabs are one session"
        assert not browser.send("/ui/session", method="DELETE").json["signedIn"]
        assert browser.cookie == ""
        for copy in copies:
            thief = Browser(service)
            thief.cookie, thief.token = copy, browser.token
            assert thief.send("/v1/locks").status == 401
            assert thief.send("/v1/locks/acquire", {"key": "k", "ttlMs": 30_000}).status == 401
            answer = thief.send("/ui/session")
            assert not answer.json["signedIn"]
            assert answer.json["csrfToken"] is None
        planted = signed_in(world, service)
        before = planted.cookie
        planted.sign_in(world.key("member", "bob"))  # in the same browser: nothing of the one before goes on
        thief = Browser(service)
        thief.cookie = before
        assert thief.send("/v1/locks").status == 401
        assert planted.load()["principal"]["name"] == "bob"


def test_the_service_ends_a_session_although_the_cookie_is_kept() -> None:
    """SEC15: `ui_session` is the service's to keep, not the browser's."""
    world = World()
    with guarded(world, ui_session=600.0) as service:
        browser = signed_in(world, service)
        kept = browser.cookie
        world.watch.time += 601
        browser.cookie = kept
        assert browser.send("/v1/locks").status == 401
        assert not browser.load()["signedIn"]
        assert browser.cookie == "", "the browser is told to forget it"


def test_a_session_is_good_for_no_more_than_its_api_key() -> None:
    """V5: expired, revoked, deleted or made less, by whichever replica: the session is what the key is, at once where
    that was done, after a moment elsewhere."""
    world = World()
    with guarded(world) as service:

        def after(**changed: Any) -> int:
            key = world.key(role="admin")
            browser = Browser(service)
            browser.sign_in(key)
            assert browser.send("/v1/locks").status == 200
            world.registry.kept[key.id] = dataclasses.replace(world.registry.kept[key.id], **changed)
            world.watch.time += REMEMBERED_FOR
            return browser.send("/v1/locks").status

        assert after(revoked_at=1.0) == 401
        assert after(expires_at=world.watch.time + 1.0) == 401
        assert after(role="member") == 403
        assert after(name="ada") == 200
        browser = signed_in(world, service)
        world.registry.kept.clear()
        world.watch.time += REMEMBERED_FOR
        assert browser.send("/v1/locks").status == 401


def test_a_session_outlives_a_silent_registry_as_any_credential_does() -> None:
    """C135: for the grace, with a cookie that was renewed meanwhile too; then nobody is let in."""
    world = World()
    with guarded(world) as service:
        browser = signed_in(world, service)
        assert browser.send("/v1/locks").status == 200
        world.registry.broken = True
        world.watch.time += GRACE - 1
        assert browser.load()["signedIn"]
        assert browser.send("/v1/locks").status == 200
        world.watch.time += 2
        assert browser.send("/v1/locks").status == 503


def test_what_was_signed_out_is_refused_without_anybody_being_asked() -> None:
    """V5: also in the moment for which the gate remembers it, and while the registry is silent."""
    world = World()
    key = world.key()

    async def run() -> None:
        _, session = await world.gate.sign_in(key.text, peer="192.0.2.1", life=LIFE)
        assert (await world.gate.identify(session, peer="192.0.2.1")).id == "ada"
        world.gate.sessions.end(session)
        world.registry.broken = True
        with pytest.raises(Unauthenticated, match="the sign-in has ended"):
            await world.gate.identify(session, peer="192.0.2.1")

    asyncio.run(run())


@pytest.mark.real_clock
def test_a_stream_of_events_ends_with_the_sign_out() -> None:
    """A5: another tab that listens is told no more, as often as streams are looked at."""
    world = World()
    with guarded(world, heartbeat=0.05) as service:
        browser = signed_in(world, service)
        head = f"Cookie: {browser.cookie}\r\nSec-Fetch-Site: same-origin\r\n"
        with closing(Stream(service.port, headers=head)) as stream:
            stream.until(b": alive\n\n")
            browser.send("/ui/session", method="DELETE")
            stream.until(b"0\r\n\r\n")


def tokens(watch: Watch, issuer: Issuer = ISSUER) -> Tokens:
    return Tokens(issuer, KeySet(Source(public("rsa")), now=watch), wall=watch)


def test_a_token_signs_in_and_is_kept_by_nobody() -> None:
    """V5: the session has what it said, no longer than it lasts; the token itself is in no cookie."""
    watch = Watch()
    watch.time = 1000.0
    with guarded(World(tokens=tokens(watch), now=watch)) as service:
        browser = Browser(service)
        token = signed(exp=1300, role="admin", groups=["ops"])
        answer = browser.send("/ui/session", {"credential": token})
        browser.token = answer.json["csrfToken"]
        assert answer.json["principal"] == {"kind": "member", "name": "ada", "role": "admin", "project": "p"}
        assert f"Max-Age={int(300 + LEEWAY)}" in answer.headers["set-cookie"]
        assert token.rpartition(".")[2] not in answer.headers["set-cookie"]
        assert browser.send("/v1/locks/acquire", {"key": "by-token", "ttlMs": 30_000}).json["acquired"]
        assert browser.send("/v1/locks/status?key=by-token").json["heldBy"] == "member:ada"
        kept = browser.cookie
        watch.time = 1300 + LEEWAY - 1
        assert browser.load()["signedIn"]
        watch.time = 1300 + LEEWAY
        for cookie in (kept, browser.cookie):
            browser.cookie = cookie
            assert browser.send("/v1/locks").status == 401


def test_a_token_that_says_too_much_for_a_cookie_is_refused_in_words() -> None:
    """Hundreds of groups do not fit; the form says so, and what to do."""
    watch = Watch()
    watch.time = 1000.0
    with guarded(World(tokens=tokens(watch), now=watch)) as service:
        groups = [f"{place:03}{'g' * 60}" for place in range(70)]
        answer = Browser(service).send("/ui/session", {"credential": signed(exp=1300, groups=groups)})
        assert (answer.status, answer.json["code"]) == (400, "LOCK_INVALID_REQUEST")
        assert f"browsers keep {MAX_COOKIE}" in answer.json["detail"]
        assert "set-cookie" not in answer.headers


def test_what_another_issuer_said_counts_no_more() -> None:
    """V5: where tokens are read otherwise than before, the sign-ins of before are over."""
    watch = Watch()
    one = World(tokens=tokens(watch), now=watch).gate.sessions
    sealed = one.seal(one.begin(MIA, life=LIFE))
    same = World(tokens=tokens(watch), now=watch).gate.sessions
    other = World(tokens=tokens(watch, dataclasses.replace(ISSUER, audience="x")), now=watch).gate.sessions
    assert same.read(sealed) is not None
    assert other.read(sealed) is None
    assert World(now=watch).gate.sessions.read(sealed) is None


def test_a_session_for_nobody_is_none() -> None:
    """Whoever made it up: a session that names neither key nor member stands for nobody."""
    world = World()
    with guarded(world) as service:
        made = Session("x" * 32, world.watch.time + 60, world.watch.time + 60)
        browser = Browser(service)
        browser.cookie = f"leased_session={world.gate.sessions.seal(made)}"
        assert browser.send("/v1/locks").status == 401
        made = dataclasses.replace(made, credential=new_key().id)
        browser.cookie = f"leased_session={world.gate.sessions.seal(made)}"
        assert browser.send("/v1/locks").status == 401
