"""What can be done to a key from the dashboard, and what the service refuses to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Request, expect

from tests.web.test_sign_in import signed_in
from tests.web.world import Look, Serving, serving

Looking = Callable[..., Look]

KEYS = 500
WAITERS = 50


@pytest.fixture(scope="module", autouse=True)
def load(local: Serving) -> Iterator[None]:
    """Issue 8: what is done here is done while 500 keys change and 50 claims wait for another one."""
    with local.changing(KEYS, pause=0.01):
        local.take("load:one")
        with local.waiting("load:one", WAITERS):
            yield


def open_key(look: Look, key: str) -> Page:
    page = look.open(f"key/{key.replace(':', '%3A')}")
    expect(page.get_by_role("heading", name=key)).to_be_visible()
    return page


def changes(page: Page) -> list[Request]:
    """Whatever the page asks from now on that may change something."""
    found: list[Request] = []
    page.on("request", lambda request: found.append(request) if request.method != "GET" else None)
    return found


def start(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()
    expect(page.get_by_role("dialog")).to_be_visible()


def do(page: Page, name: str, *, reason: str = "") -> None:
    if reason:
        page.get_by_role("dialog").get_by_label("Reason").fill(reason)
    page.get_by_role("dialog").get_by_role("button", name=name, exact=True).click()


def test_a_forced_release_shows_and_sends_the_fencing_token_and_asks_why(local: Serving, look: Looking) -> None:
    """L7, SEC13: the number that was on the screen is what is sent, with a reason, after a step to confirm."""
    granted = local.take("force:one", owner="stuck")
    page = open_key(look(local), "force:one")
    sent = changes(page)
    start(page, "Release by force…")
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("[data-fencing-token]")).to_have_text(str(granted["fencingToken"]))
    do(page, "Release by force")  # without a reason nothing is sent
    expect(dialog).to_be_visible()
    assert sent == []
    do(page, "Release by force", reason="the host is gone")
    expect(page.get_by_role("status")).to_contain_text("Released by force")
    expect(page.get_by_text("Free", exact=True)).to_be_visible()
    assert [request.post_data_json for request in sent] == [
        {"key": "force:one", "fencingToken": granted["fencingToken"], "reason": "the host is gone"}
    ]
    ends = page.get_by_role("region", name="Recent holds").locator("tbody tr").first
    expect(ends).to_contain_text("released by force: the host is gone")


def test_a_forced_release_that_comes_late_leaves_the_next_hold_alone(local: Serving, look: Looking) -> None:
    """L7: what was shown had ended already; its successor goes on, and the page says so."""
    first = local.take("force:late")
    page = open_key(look(local), "force:late")
    start(page, "Release by force…")
    shown = page.locator("[data-fencing-token]")
    expect(shown).to_have_text(str(first["fencingToken"]))
    # The page learns nothing of what comes now: it is as late as a slow network makes it.
    page.route("**/v1/locks/status*", lambda route: None)
    local.release("force:late", first["token"])
    second = local.take("force:late")
    do(page, "Release by force", reason="too late")
    expect(page.get_by_role("status")).to_contain_text("Nothing was released")
    assert local.status("force:late")["fencingToken"] == second["fencingToken"]


@pytest.mark.parametrize("meanwhile", ["held by another", "free"])
def test_a_dialog_goes_on_about_what_it_was_opened_for(local: Serving, look: Looking, meanwhile: str) -> None:
    """L7, SEC13: the page learns that the key has changed hands, or is free, while the reason is being written: the
    dialog still shows and sends the number it was opened with, and whoever holds the key by then goes on."""
    key = f"force:{meanwhile[:4]}"
    first = local.take(key)
    page = open_key(look(local), key)
    start(page, "Release by force…")
    sent = changes(page)
    local.release(key, first["token"])
    second = local.take(key) if meanwhile == "held by another" else None
    learned = '"state":"free"' if second is None else str(second["fencingToken"])
    page.wait_for_event("response", lambda got: "/v1/locks/status" in got.url and learned in got.text())
    expect(page.locator("[data-fencing-token]")).to_have_text(str(first["fencingToken"]))
    second = second or local.take(key)
    do(page, "Release by force", reason="too late")
    expect(page.get_by_role("status")).to_contain_text("Nothing was released")
    assert [(request.post_data_json or {}).get("fencingToken") for request in sent] == [first["fencingToken"]]
    assert local.status(key)["fencingToken"] == second["fencingToken"]


def test_a_key_is_held_for_maintenance_and_that_is_extended_and_ended(local: Serving, look: Looking) -> None:
    """Issue 8: on purpose, with a reason and a length; nothing of it that proves the hold stays in the page."""
    seen = look(local)
    page = open_key(seen, "maintain:disk")
    start(page, "Hold for maintenance…")
    page.get_by_label("For how long").select_option("15 minutes")
    do(page, "Hold", reason="a new disk")
    expect(page.get_by_role("status")).to_contain_text("Held for maintenance for 1")
    expect(page.locator(".card .stage")).to_have_text("maintenance")
    expect(page.locator(".metadata")).to_contain_text("a new disk")
    first = local.status("maintain:disk")
    assert (first["owner"], first["metadata"]["maintenance"], first["metadata"]["reason"]) == (
        "maintenance",
        True,
        "a new disk",
    )
    assert 800_000 < first["expiresInMs"] <= 900_000
    start(page, "Extend maintenance…")
    page.get_by_label("For how long").select_option("2 hours")
    do(page, "Extend")
    expect(page.get_by_role("status")).to_contain_text("The maintenance goes on for")
    second = local.status("maintain:disk")
    assert second["fencingToken"] > first["fencingToken"]
    assert second["expiresInMs"] > 7_000_000
    assert second["metadata"]["reason"] == "a new disk"
    start(page, "End maintenance…")
    do(page, "End it")
    expect(page.get_by_role("status")).to_contain_text("The maintenance has ended")
    assert local.status("maintain:disk")["state"] == "free"
    kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, history.state])")
    assert kept == '[{},{},"",null]'


def test_who_comes_second_is_told_who_holds_it(local: Serving, look: Looking) -> None:
    """A key that was taken between looking and holding: contention, in the words of the dialog; nothing is repeated."""
    page = open_key(look(local), "maintain:taken")
    start(page, "Hold for maintenance…")
    sent = changes(page)
    local.take("maintain:taken", client="worker@host:7")
    do(page, "Hold", reason="disk")
    expect(page.get_by_role("alert")).to_contain_text("the key is held by worker@host:7")
    assert len(sent) == 1
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_maintenance_of_somebody_else_is_not_ours_to_end(guarded: Serving, look: Looking) -> None:
    """O2: the same owner, but another principal: contention, and the dialog says whose it is."""
    other = guarded.credential("service", "deploy", scopes=["full"])
    metadata = {"maintenance": True, "reason": "theirs"}
    guarded.take("maintain:theirs", credential=other, owner="maintenance", metadata=metadata)
    page = open_key(signed_in(look(guarded), guarded.credential("member", "olga", role="admin")), "maintain:theirs")
    start(page, "End maintenance…")
    do(page, "End it")
    expect(page.get_by_role("alert")).to_contain_text("begun by somebody else: only the same user or service can")
    assert guarded.status("maintain:theirs", credential=other)["metadata"]["reason"] == "theirs"


def test_a_maintenance_is_ended_with_any_credential_of_who_began_it(guarded: Serving, look: Looking) -> None:
    """O2: it belongs to the user, not to the API key that was shown."""
    keys = [guarded.credential("member", "olga", role="admin") for _ in range(2)]
    guarded.take("maintain:mine", credential=keys[0], owner="maintenance", metadata={"maintenance": True})
    page = open_key(signed_in(look(guarded), keys[1]), "maintain:mine")
    start(page, "End maintenance…")
    do(page, "End it")
    expect(page.get_by_role("status")).to_contain_text("The maintenance has ended")
    assert guarded.status("maintain:mine", credential=keys[0])["state"] == "free"


@pytest.mark.parametrize(
    ("status", "problem", "words"),
    [
        (403, {"detail": "you may not", "hint": "ask an admin"}, ["you may not", "hint: ask an admin"]),
        (429, {"detail": "too many", "retryAfter": 7}, ["too many", "asks for 7 s of patience"]),
        (503, {"detail": "no answer", "applied": None}, ["no answer", "not known"]),
        (409, {"detail": "id in use"}, ["id in use"]),
    ],
)
def test_refusals_are_shown_in_the_words_of_the_service_and_nothing_is_repeated(
    local: Serving, look: Looking, status: int, problem: dict[str, object], words: list[str]
) -> None:
    """Each refusal keeps the dialog open with what the service said; whether to try again is for people to decide."""
    key = f"refused:{status}"
    local.take(key)
    page = open_key(look(local), key)
    start(page, "Release by force…")
    sent = changes(page)
    page.route("**/force-release", lambda route: route.fulfill(status=status, json={"status": status, **problem}))
    do(page, "Release by force", reason="stuck")
    alert = page.get_by_role("dialog").get_by_role("alert")
    for word in words:
        expect(alert).to_contain_text(word)
    page.clock.install()
    page.clock.run_for("01:00")
    assert len(sent) == 1
    assert local.status(key)["held"]


def test_without_leave_to_act_nothing_can_be_done(tmp_path: Path, look: Looking) -> None:
    """SEC15: read-only unless asked. No button is there, and what a page sends all the same is refused."""
    with serving(tmp_path, ui="read") as service:
        granted = service.take("only:look")
        page = open_key(look(service), "only:look")
        expect(page.get_by_text("This dashboard only looks")).to_be_visible()
        expect(page.get_by_role("button", name=re.compile("force|maintenance"))).to_have_count(0)
        forced = page.evaluate(
            """async (number) => {
                const session = await (await fetch('/ui/session')).json();
                const headers = {'content-type': 'application/json', 'leased-csrf': session.csrfToken};
                const body = JSON.stringify({key: 'only:look', fencingToken: number});
                const answer = await fetch('/v1/locks/force-release', {method: 'POST', headers, body});
                return [answer.status, (await answer.json()).code];
            }""",
            granted["fencingToken"],
        )
        assert forced == [403, "LOCK_ACCESS_DENIED"]
        assert service.status("only:look")["held"]
