"""Browsers: who signs in, what a cookie is worth, and what pages of other places get. They get nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from leased.server.keys import new_key
from tests.server.access.gates import World
from tests.server.running import Running, running
from tests.server.talking import JSON, ask
from tests.server.ui.browsing import Browser, guarded

TAKE = {"key": "k", "ttlMs": 30_000}
ACQUIRE = "/v1/locks/acquire"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture(scope="module")
def site(world: World) -> Iterator[Running]:
    with guarded(world) as service:
        yield service


@pytest.fixture(scope="module")
def local() -> Iterator[Running]:
    with running(ui="act") as service:
        yield service


def admin(site: Running, world: World) -> Browser:
    """A browser in which an admin has signed in."""
    browser = Browser(site)
    assert browser.sign_in(world.key(role="admin")).status == 200
    return browser


def test_a_browser_signs_in_acts_and_signs_out(site: Running, world: World) -> None:
    """§7, SEC15: the credential is kept in a cookie that no page reads, and counts as if it were shown."""
    browser, key = Browser(site), world.key(role="admin")
    before = browser.load()
    assert (before["mode"], before["signedIn"], before["csrfToken"], before["store"]) == (
        "credentials",
        False,
        None,
        None,
    )
    assert not any(before["may"].values())
    answer = browser.sign_in(key)
    kept, _, rest = answer.headers["set-cookie"].partition("; ")
    assert (kept[:15], rest) == ("leased_session=", "Path=/; Max-Age=3600; HttpOnly; SameSite=Strict")
    assert key.secret not in kept
    assert answer.json["principal"] == {"kind": "member", "name": "ada", "role": "admin", "project": "p"}
    assert all(answer.json["may"].values())
    assert answer.json["acts"]
    assert key.text not in answer.body.decode()
    taken = browser.send(ACQUIRE, TAKE).json
    assert taken["acquired"]
    assert browser.send("/v1/locks/status?key=k").json["heldBy"] == "member:ada"
    assert browser.send("/v1/locks/release", {"key": "k", "token": taken["token"]}).json["released"]
    gone = browser.send("/ui/session", method="DELETE")
    assert "Max-Age=0" in gone.headers["set-cookie"]
    assert not gone.json["signedIn"]
    assert browser.send("/v1/locks").status == 401


def test_a_session_that_is_used_goes_on(site: Running, world: World) -> None:
    """The end of a cookie moves with each look at the session; the token stays what it is."""
    browser = admin(site, world)
    token = browser.token
    answer = browser.send("/ui/session")
    assert "Max-Age=3600" in answer.headers["set-cookie"]
    assert answer.json["csrfToken"] == token


FORGED: dict[str, dict[str, str | None]] = {
    "another origin": {"origin": "http://evil.example"},
    "another port of this host": {"origin": "http://127.0.0.1:1"},
    "another scheme": {"origin": "https://127.0.0.1"},
    "no origin": {"origin": None},
    "an origin that is none": {"origin": "null"},
    "a page of the same site": {"sec_fetch_site": "same-site"},
    "a page of another site": {"sec_fetch_site": "cross-site"},
    "no token": {"leased_csrf": None},
    "another token": {"leased_csrf": "0" * 64},
    "an empty token": {"leased_csrf": ""},
    "a token that is no ASCII": {"leased_csrf": "é" * 64},
}


@pytest.mark.parametrize("forged", FORGED)
@pytest.mark.parametrize("request_", ["POST acquire", "POST force", "DELETE rule-set", "PUT rule-set", "POST check"])
def test_forged_requests_with_a_cookie_are_refused(forged: str, request_: str, site: Running, world: World) -> None:
    """SEC15: without the service's own origin and the page's token a cookie changes nothing, whatever its owner may."""
    requests: dict[str, tuple[str, str, Any]] = {
        "POST acquire": ("POST", ACQUIRE, TAKE),
        "POST force": ("POST", "/v1/locks/force-release", {"key": "k"}),
        "DELETE rule-set": ("DELETE", "/v1/rule-set?name=x", None),
        "PUT rule-set": ("PUT", "/v1/rule-set", {"ruleSet": {"name": "x", "resourceType": "lock"}}),
        "POST check": ("POST", "/v1/rule-set/check", {"userId": "ada", "key": "k"}),
    }
    method, path, body = requests[request_]
    answer = admin(site, world).send(path, body, method=method, **FORGED[forged])
    assert (answer.status, answer.json["code"]) == (403, "LOCK_ACCESS_DENIED"), answer.body
    assert answer.json["hint"]


def test_the_token_of_another_session_is_none(site: Running, world: World) -> None:
    """SEC15: each credential has its own token: who signs in himself cannot make a page for others."""
    browser, other = admin(site, world), Browser(site)
    other.sign_in(world.key("member", "eve"))
    assert browser.send(ACQUIRE, TAKE, leased_csrf=other.token).status == 403


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", ""])
def test_names_that_are_not_the_services_own_lead_nowhere(name: str, site: Running, world: World) -> None:
    """SEC15, DNS rebinding: under another name there is no page, no session, and no cookie counts."""
    browser = admin(site, world)
    host = f"{name}:{site.port}" if name else ""
    for path in ("/ui", "/ui/", "/ui/session", "/v1/locks"):
        assert browser.send(path, host=host).status == 421, path
    forged = {"host": host, "origin": f"http://{host}"}
    assert browser.send(ACQUIRE, TAKE, **forged).status == 421
    assert browser.send("/ui/session", {"credential": "x"}, **forged).status == 421


@pytest.mark.parametrize("site_", ["cross-site", "same-site"])
def test_pages_of_other_places_look_at_nothing(site_: str, site: Running, world: World) -> None:
    """SEC15: a cookie that comes with a request of another page does not count, not even to look."""
    browser = admin(site, world)
    for path in ("/v1/locks", "/ui/session"):
        assert browser.send(path, sec_fetch_site=site_).status == 403, path
    assert browser.send("/ui/", sec_fetch_site=site_).status == 200  # a link to it tells nobody anything


def test_cookies_that_are_none_are_not_believed(site: Running, world: World) -> None:
    """SEC15: wrong, revoked, expired, doubled and malformed cookies stand for nobody, and are forgotten."""
    good = world.key(role="admin").text
    ended = [world.key(revoked_at=1.0).text, world.key(expires_at=2.0).text, new_key().text]
    for value in ended:
        browser = Browser(site)
        browser.cookie = f"leased_session={value}"
        assert browser.send("/v1/locks").status == 401
        answer = browser.send("/ui/session")
        assert not answer.json["signedIn"]
        assert "Max-Age=0" in answer.headers["set-cookie"]
    for cookie in (
        "leased_session=",
        f"leased_session={good}; leased_session={good}",
        f"leased_session={ended[0]}; leased_session={good}",
        f"x-leased_session={good}",
        f'leased_session="{good}"',
        f"__Host-leased_session={good}",
        "leased_session=a b",
    ):
        browser = Browser(site)
        browser.cookie = cookie
        assert browser.send("/v1/locks").status == 401, cookie
        assert not browser.send("/ui/session").json["signedIn"], cookie


def test_a_revoked_credential_ends_its_sessions(site: Running, world: World) -> None:
    """V5, SEC15: nothing of a session is kept in the service, so that it ends with what it stands for."""
    browser, key = Browser(site), world.key(role="admin")
    browser.sign_in(key)
    assert browser.send("/v1/locks").status == 200
    owner = {**JSON, "Authorization": f"Bearer {world.key('member', 'olga', role='owner').text}"}
    assert ask(site.port, "/v1/credentials/revoke", {"id": key.id}, headers=owner).status == 200
    assert browser.send("/v1/locks").status == 401
    assert not browser.load()["signedIn"]


@pytest.mark.parametrize(
    "wrong", [{"origin": None}, {"origin": "http://evil.example"}, {"sec_fetch_site": "cross-site"}]
)
def test_nobody_is_signed_in_by_a_page_of_another_place(
    wrong: dict[str, str | None], site: Running, world: World
) -> None:
    """SEC15: a page elsewhere cannot sign a browser in as somebody else, nor out."""
    key = world.key()
    refused = Browser(site).send("/ui/session", {"credential": key.text}, **wrong)
    assert refused.status == 403
    assert "set-cookie" not in refused.headers
    assert admin(site, world).send("/ui/session", method="DELETE", **wrong).status == 403


def test_failed_sign_ins_are_counted_as_failed_logins() -> None:
    """R1, SEC15: guessing at the form is as slow as guessing with the header."""
    from leased.server.gate import Budgets
    from leased.server.limits import Budget

    world = World(budgets=Budgets(failures=Budget(2, 3600.0)))
    with guarded(world) as service:
        found = [Browser(service).send("/ui/session", {"credential": new_key().text}).status for _ in range(3)]
        assert found == [401, 401, 429]
        assert Browser(service).sign_in(world.key()).status == 200


def test_a_credential_that_no_browser_keeps_is_refused(site: Running) -> None:
    """What would not fit into a cookie, or break out of it, is refused before it is looked at as a credential."""
    for credential in ("a; Domain=evil.example", "a\r\nset-cookie: b=c", "a,b", "é", "", "x" * 70_000):
        answer = Browser(site).send("/ui/session", {"credential": credential})
        assert answer.status in {400, 401, 413}, credential
        assert "set-cookie" not in answer.headers


def test_programs_notice_nothing(site: Running, local: Running, world: World) -> None:
    """SEC15: who shows his credential himself needs no origin, no token and no name, also with a cookie beside it."""
    headers = {**JSON, "Authorization": f"Bearer {world.key('function', 'f').text}", "Cookie": "leased_session=x"}
    for more in ({}, {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}):
        assert ask(site.port, ACQUIRE, {**TAKE, "key": "of-programs"}, headers={**headers, **more}).status == 200
    assert ask(local.port, ACQUIRE, TAKE, headers={**JSON, "Cookie": "a=b"}).json["acquired"]


def test_in_the_local_mode_pages_of_other_places_change_nothing(local: Running) -> None:
    """SEC15: a service that asks nobody who he is still asks browsers whose page it is."""
    browser = Browser(local)
    found = browser.load()
    assert (found["mode"], found["signedIn"], found["principal"], found["store"]) == ("local", True, None, "memory")
    assert found["may"] == {"list": True, "force": True, "manage": False, "hold": True}
    assert browser.send(ACQUIRE, {**TAKE, "key": "of-a-page"}).json["acquired"]
    for name, forged in FORGED.items():
        answer = browser.send(ACQUIRE, {**TAKE, "key": "forged"}, **forged)
        assert (answer.status, answer.json["code"]) == (403, "LOCK_ACCESS_DENIED"), name
    assert browser.send("/v1/locks/status?key=forged").json["state"] == "free"


def test_an_open_service_on_every_address_knows_its_names_from_browsers() -> None:
    """SEC15, DNS rebinding: without credentials and on all addresses, a page still has to come by a known name."""
    with running(ui="act", host="0.0.0.0", insecure=True, allowed_hosts=("Locks.example",)) as service:
        for name, status in (("locks.example", 200), ("LOCKS.example", 200), ("evil.example", 421)):
            browser = Browser(service, name=name)
            assert browser.send("/ui/session").status == status
            if status == 200:
                browser.load()
            assert browser.send(ACQUIRE, {**TAKE, "key": name.lower()}).status == status, name


@pytest.mark.parametrize("mode", ["read", "off"])
def test_unless_it_may_act_nothing_changes_from_a_browser(mode: str, world: World) -> None:
    """SEC15: read-only unless asked; a try of the rules only looks. Off, there is no page, and a cookie is nothing."""
    with guarded(world, ui=mode) as service, running(ui=mode) as open_service:
        browser = Browser(service)
        if mode == "off":
            browser.cookie = f"leased_session={world.key(role='admin').text}"
            assert [browser.send(path).status for path in ("/ui", "/ui/", "/ui/session", "/v1/locks")] == [404] * 3 + [
                401
            ]
        else:
            assert not browser.sign_in(world.key(role="admin")).json["acts"]
            refused = browser.send(ACQUIRE, TAKE)
            assert (refused.status, refused.json["hint"]) == (403, "the service lets its dashboard act with --ui act")
            assert browser.send("/v1/rule-set/check", {"userId": "ada", "key": "k"}).status == 200
            assert browser.send("/v1/locks").status == 200
        page = Browser(open_service)
        if mode == "read":
            page.load()
        assert page.send(ACQUIRE, TAKE).status == 403
        assert ask(open_service.port, ACQUIRE, TAKE).json["acquired"]


def test_over_a_network_the_cookie_needs_tls(world: World) -> None:
    """SEC15: Secure, and by its name bound to this host; without TLS nobody signs in but on this machine."""
    settings = {"allowed_hosts": ("locks.example",), "proxy_hops": 1}
    with guarded(world, **settings) as service:
        browser = Browser(service, name="locks.example")
        plain = browser.send("/ui/session", {"credential": world.key().text})
        assert (plain.status, "set-cookie" in plain.headers) == (403, False)
        proxied: dict[str, str | None] = {
            "host": "10.0.0.7:8370",
            "x_forwarded_host": "locks.example",
            "x_forwarded_proto": "https",
            "origin": "https://locks.example",
        }
        key = world.key(role="admin")
        answer = browser.send("/ui/session", {"credential": key.text}, **proxied)
        assert re.match(r"__Host-leased_session=[\w.-]+; Path=/; ", answer.headers["set-cookie"])
        assert answer.headers["set-cookie"].endswith("; Secure")
        browser.token = answer.json["csrfToken"]
        assert browser.send(ACQUIRE, {**TAKE, "key": "proxied"}, **proxied).json["acquired"]
        assert browser.send(ACQUIRE, TAKE, **{**proxied, "x_forwarded_host": "evil.example"}).status == 421
    with guarded(world, allowed_hosts=("locks.example",)) as service:  # nobody is trusted to say who was called
        assert Browser(service).send("/ui/session", {"credential": key.text}, **proxied).status == 421


def test_every_answer_of_the_dashboard_has_its_headers(site: Running, world: World) -> None:
    """SEC15: pages, sessions and refusals alike say that nothing but the service's own files is run or asked."""
    browser = admin(site, world)
    answers = [
        browser.send("/ui"),
        browser.send("/ui/"),
        browser.send("/ui/", method="HEAD"),
        browser.send("/ui/session"),
        browser.send("/ui/session", {"credential": "x"}),
        browser.send("/ui/session", {"wrong": "x"}),
        browser.send("/ui/session", b"{", origin=browser.origin),
        browser.send("/ui/", {"x": 1}),
        browser.send("/ui/assets/nothing.js"),
        browser.send("/ui/../pyproject.toml"),
        browser.send("/ui/%2e%2e/app.py"),
        browser.send("/ui/session", host="evil.example"),
        browser.send("/ui/session", method="DELETE"),
    ]
    assert {answer.status for answer in answers} == {307, 200, 401, 400, 405, 404, 421}
    for answer in answers:
        assert answer.headers["content-security-policy"] == POLICY, answer
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answers[0].headers["location"] == "/ui/"
    assert answers[1].headers["content-type"] == "text/html; charset=utf-8"


def test_what_is_no_page_says_so(site: Running, local: Running, world: World) -> None:
    """SEC15, C174: a browser that is led to an answer full of foreign names takes it for data: it is not kept, not
    guessed to be a page, not framed, and runs nothing; refusals alike."""
    browser = admin(site, world)
    paths = [
        "/v1/locks",
        "/v1/locks/status?key=<b>",
        "/v1/capabilities",
        "/v1/nothing",
        "//ui/",
        "/v1/locks?x",
        "/healthz",
    ]
    answers = [browser.send(path) for path in (*paths, "/v1/audit", "/v1/overview", "/openapi.json")]
    answers += [browser.send("/v1/locks", sec_fetch_site="cross-site"), browser.send("/v1/locks", host="evil.example")]
    answers += [
        Browser(site).send("/v1/locks"),
        browser.send("/v1/locks", method="OPTIONS"),
        ask(local.port, "/metrics"),
    ]
    assert {answer.status for answer in answers} == {200, 400, 401, 403, 404, 405, 421}
    for answer in answers:
        assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'", answer
        assert answer.headers["x-content-type-options"] == "nosniff", answer
    for answer in (*answers[:9], *answers[10:]):
        assert answer.headers["cache-control"] == "no-store", answer


def test_no_page_elsewhere_is_told_that_it_may_ask(site: Running, local: Running) -> None:
    """SEC15: no answer has a header that would let a page of another place read it, or send what needs leave."""
    for service in (site, local):
        for method in ("OPTIONS", "GET"):
            answer = Browser(service).send(
                "/v1/locks", method=method, origin="http://evil.example", access_control_request_method="POST"
            )
            assert not [name for name in answer.headers if name.startswith("access-control")]
