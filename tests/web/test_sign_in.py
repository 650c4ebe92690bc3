"""Signing in with a credential, and what each kind of principal sees then."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import expect

from tests.server.talking import ask
from tests.web.world import Look, Serving

Looking = Callable[..., Look]

OWN = 'record.key.startsWith("user:" + user.userId + ":") || isMemberOf("ops", "team")'
RULES = {"ruleSet": {"name": "shop", "resourceType": "lock"}, "rules": {"lock": {"acquire": OWN}}}


def signed_in(look: Look, credential: str) -> Look:
    """The same page, after its form took the credential."""
    page = look.open()
    page.get_by_label("API key or token").fill(credential)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    return look


def test_a_credential_opens_it_and_no_script_can_read_it_afterwards(guarded: Serving, look: Looking) -> None:
    """SEC15: the cookie is HttpOnly and SameSite=Strict; the page keeps nothing of the credential."""
    key = guarded.credential("member", "olga", role="owner")
    seen = look(guarded)
    page = seen.open()
    field = page.get_by_label("API key or token")
    field.fill("lk_wrong_key")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("UNAUTHENTICATED")
    expect(field).to_have_value("")
    signed_in(seen, key)
    expect(page.get_by_role("banner")).to_contain_text("olga owner of project shop")
    (cookie,) = page.context.cookies()
    assert (cookie.get("name"), cookie.get("httpOnly"), cookie.get("sameSite"), cookie.get("path")) == (
        "leased_session",
        True,
        "Strict",
        "/",
    )
    kept = page.evaluate("document.documentElement.outerHTML + JSON.stringify([{...localStorage}, document.cookie])")
    assert key.rpartition("_")[2] not in kept
    page.reload()
    expect(page.get_by_role("grid")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_text("You are signed out.")).to_be_visible()
    assert page.context.cookies() == []


def test_a_credential_that_is_revoked_ends_the_session_at_once(guarded: Serving, look: Looking) -> None:
    """The next thing the page asks for is answered 401, and it asks to sign in again, saying why."""
    key = guarded.credential("member", "temp", role="admin")
    page = signed_in(look(guarded), key).page
    admin = guarded.credential("member", "boss", role="owner")
    guarded.ask("/v1/credentials/revoke", {"id": key.split("_")[1]}, credential=admin)
    page.get_by_role("link", name="Store").click()
    expect(page.get_by_text("Your sign-in has ended")).to_be_visible()


def test_a_member_sees_single_keys_and_nothing_else(guarded: Serving, look: Looking) -> None:
    """A5: status is for any principal of the project; lists, events, waiters, history and audit are not."""
    guarded.take("user:mia:report", credential=guarded.credential("function", "shop"), owner="reports")
    seen = look(guarded)
    asked: list[str] = []
    seen.page.on("response", lambda answer: asked.append(f"{answer.status} {answer.url.partition('/v1')[2]}"))
    page = signed_in(seen, guarded.credential("member", "mia")).page
    expect(page.get_by_role("heading", name="Look up a key")).to_be_visible()
    expect(page.get_by_role("navigation").get_by_role("link")).to_have_text(["Look up", "Store"])
    page.get_by_label("Key", exact=True).fill("user:mia:report")
    page.get_by_role("button", name="Look it up").click()
    expect(page.get_by_text("reports", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("force"))).to_have_count(0)
    expect(page.get_by_role("heading", name="Waiting, in order")).to_have_count(0)
    for place in ("overview", "denials", "rules"):
        seen.open(place)
        expect(page.get_by_role("heading", name="Look up a key")).to_be_visible()
    assert not [answer for answer in asked if answer.startswith("403")], "it asks for nothing that it may not see"


def test_rules_are_shown_and_can_be_tried(guarded: Serving, look: Looking) -> None:
    """Issue 8: user, role, groups, key: allowed or not, and why."""
    admin = guarded.credential("member", "root", role="owner")
    page = signed_in(look(guarded), admin).open("rules")
    expect(page.get_by_text("No rule set is installed")).to_be_visible()
    answer = ask(guarded.port, "/v1/rule-set", RULES, method="PUT", headers=guarded.headers(admin))
    assert answer.status == 200, answer.body
    page.reload()
    expect(page.get_by_text("startsWith")).to_be_visible()
    page.get_by_label("User").fill("mia")
    page.get_by_label("Key", exact=True).fill("user:mia:report")
    page.get_by_role("button", name="Try").click()
    verdicts = page.locator(".verdicts")
    expect(verdicts).to_contain_text(re.compile("acquire.*allowed.*the rule says yes"))
    expect(verdicts).to_contain_text(re.compile("renew.*refused.*the rule set has no rule for it"))
    page.get_by_label("Key", exact=True).fill("user:tom:report")
    page.get_by_role("button", name="Try").click()
    expect(verdicts).to_contain_text("the rule says no")
    page.get_by_label("Groups").fill("team:ops")
    page.get_by_role("button", name="Try").click()
    expect(verdicts).to_contain_text("the rule says yes")


def test_denials_show_as_they_happen_and_in_the_audit_log(guarded: Serving, look: Looking) -> None:
    """A5: every denial is there, with who and what."""
    page = signed_in(look(guarded), guarded.credential("member", "eva", role="admin")).open("denials")
    expect(page.get_by_text("Nothing was denied since")).to_be_visible()
    mallory = guarded.credential("member", "mallory")
    refused = page.request.get(f"{guarded.url}/v1/locks", headers={"authorization": f"Bearer {mallory}"})
    assert refused.status == 403
    now = page.get_by_role("region", name="Denied just now")
    expect(now).to_contain_text("mallory")
    log = page.get_by_role("region", name="Audit log")
    expect(log.locator("tbody tr", has_text="denied list").first).to_contain_text("mallory")
    page.get_by_label("Only denials").check()
    expect(log.locator("tbody tr", has_text="create credential")).to_have_count(0)
