"""Every view of the dashboard over a real service, while keys change and others wait."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Route, expect

from tests.web.world import Look, Serving

Looking = Callable[..., Look]

KEYS = 500
WAITERS = 50


@pytest.fixture(scope="module")
def busy(local: Serving) -> Iterator[Serving]:
    """500 keys that change, and one for which 50 wait."""
    with local.changing(KEYS, pause=0.01):  # so seldom that the holds of each key are followed
        local.ask("/v1/overview")  # by now all those that came at once are read; among so many, some keys are skipped
        local.take("nightly:report", owner="reports", metadata={"run": 42})
        with local.waiting("nightly:report", WAITERS):
            yield local


def test_the_table_shows_all_keys_and_what_becomes_of_them(busy: Serving, look: Looking) -> None:
    """Issue 8: thousands of keys, filtered by prefix, owner and state; what happens shows by itself."""
    seen = look(busy)
    seen.page.clock.install()
    page = seen.open()
    page.clock.resume()
    grid = page.get_by_role("grid", name="Keys")
    expect(page.get_by_text("Local mode: nobody is asked for credentials")).to_be_visible()
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    expect(grid).to_have_attribute("aria-rowcount", re.compile(r"^([2-9]\d\d|\d{4,})$"))
    assert page.locator(".line").count() < 60, "rows that nobody sees are not drawn"
    page.get_by_label("Key begins with").fill("fresh:")
    expect(page.get_by_text("No key fits")).to_be_visible()
    granted = busy.take("fresh:one", owner="someone")
    row = grid.get_by_role("row").filter(has_text="fresh:one")
    expect(row).to_contain_text("held")
    expect(row).to_contain_text("someone")
    busy.release("fresh:one", granted["token"])
    expect(row).to_contain_text("released")
    page.clock.fast_forward("00:11")
    expect(row).to_have_count(0)
    page.get_by_label("Key begins with").fill("nightly:")
    expect(grid.get_by_role("row").filter(has_text="nightly:report")).to_contain_text(f"{WAITERS}")
    page.get_by_label("Key begins with").fill("")
    page.get_by_label("Owner or machine").fill("REPORTS")
    expect(page.locator(".line")).to_have_count(1)


def test_states_are_told_in_words(busy: Serving, look: Looking) -> None:
    """Held, renewing, at risk, closed, maintenance, expired and released are words with a shape, not colours only."""
    page = look(busy).open()
    page.get_by_label("Key begins with").fill("state:")
    busy.take("state:held")
    renewed = busy.take("state:renewing", ttlMs=60_000)
    busy.take("state:maintenance", metadata={"maintenance": True, "reason": "disk"})
    closed = busy.take("state:closed", holdAtLeastMs=600_000)
    row = page.locator(".line")
    expect(row).to_have_count(4)
    body = {"key": "state:renewing", "token": renewed["token"], "ttlMs": 90_000}
    assert busy.ask("/v1/locks/renew", body)["renewed"]
    busy.release("state:closed", closed["token"])
    for word in ("held", "renewing", "maintenance", "closed"):
        expect(page.locator(".line .stage", has_text=re.compile(f"^{word}$"))).to_have_count(1)
    busy.take("state:short", ttlMs=9_000)
    short = row.filter(has_text="state:short")
    expect(short).to_contain_text("at risk")
    expect(short).to_contain_text("expired")
    page.get_by_role("button", name=re.compile("^Maintenance")).click()
    expect(row).to_have_count(1)


def test_an_answer_that_comes_late_is_no_renewal(local: Serving, look: Looking) -> None:
    """M7: over a network that is slow now and then nobody seems to renew what nobody renews."""
    local.take("late:one", ttlMs=600_000)
    page = look(local).open()
    page.get_by_label("Key begins with").fill("late:")
    row = page.locator(".line", has_text="late:one")
    expect(row).to_contain_text("held")

    def late(route: Route) -> None:
        answer = route.fetch()
        page.wait_for_timeout(800)
        route.fulfill(response=answer)

    page.route("**/v1/locks?*", late)
    with page.expect_response("**/v1/locks?*"):
        pass
    page.unroute("**/v1/locks?*")
    with page.expect_response("**/v1/locks?*"):
        pass
    expect(page.get_by_role("button", name=re.compile("^Renewing"))).to_have_text("Renewing 0")
    expect(row).to_contain_text("held")


def test_it_sorts_by_any_column(local: Serving, look: Looking) -> None:
    """Up and down, and it says so to those who do not see the arrow."""
    page = look(local).open()
    page.get_by_label("Key begins with").fill("sorted:")
    for name, owner in (("a", "y"), ("b", "x"), ("c", "z")):
        local.take(f"sorted:{name}", owner=owner)
    keys = page.locator(".line .cell-key")
    expect(keys).to_have_text(["sorted:a", "sorted:b", "sorted:c"])
    page.get_by_role("button", name="Owner").click()
    expect(keys).to_have_text(["sorted:b", "sorted:a", "sorted:c"])
    page.get_by_role("button", name="Owner").click()
    expect(keys).to_have_text(["sorted:c", "sorted:a", "sorted:b"])
    expect(page.get_by_role("columnheader", name="Owner")).to_have_attribute("aria-sort", "descending")


def test_one_key_shows_who_holds_it_who_waits_and_what_was_before(busy: Serving, look: Looking) -> None:
    """Holder, metadata, fencing token, waiters in order, history of recent holds, contention."""
    first = busy.take("nightly:import", owner="before")
    busy.release("nightly:import", first["token"])
    busy.take("nightly:import", owner="imports", metadata={"table": "orders"})
    page = look(busy).open("key/nightly%3Aimport")
    expect(page.get_by_role("heading", name="nightly:import")).to_be_visible()
    number = str(busy.status("nightly:import")["fencingToken"])
    expect(page.get_by_role("definition").filter(has_text=re.compile(f"^{number}$")).first).to_be_visible()
    expect(page.get_by_text("orders")).to_be_visible()
    with busy.waiting("nightly:import", 3):
        places = page.get_by_role("region", name="Waiting, in order").locator("tbody tr")
        expect(places).to_have_count(3)
        expect(places.nth(1)).to_contain_text("waiter-01")
        expect(places.nth(1)).to_contain_text("app-1:101 billing.py")
    expect(page.get_by_text("Nobody waits for it")).to_be_visible()
    holds = page.get_by_role("region", name="Recent holds").locator("tbody tr")
    expect(holds).to_have_count(2)
    expect(holds.nth(0)).to_contain_text("goes on")
    expect(holds.nth(1)).to_contain_text("released")
    expect(page.get_by_role("img", name=re.compile("^Asked in vain"))).to_be_visible()


def test_contention_is_there_although_nobody_looked(local: Serving, look: Looking) -> None:
    """Issue 8: the plot of a key shows what was before the page was opened."""
    local.take("wanted:one")
    for _ in range(3):
        assert not local.ask("/v1/locks/acquire", {"key": "wanted:one", "ttlMs": 60_000})["acquired"]
    page = look(local).open("key/wanted%3Aone")
    plot = page.get_by_role("img", name=re.compile("^Asked in vain"))
    expect(plot).to_have_attribute("aria-label", re.compile(r"asked in vain [03].*waiting 0"))
    page.locator(".plot", has_text="Asked in vain").get_by_text("As a table").click()
    counts = page.locator(".plot", has_text="Asked in vain").locator("tbody td:nth-of-type(1)").all_inner_texts()
    assert sum(int(count) for count in counts) == 3


def test_from_which_machine_a_key_is_held(local: Serving, look: Looking) -> None:
    """Issue 8, M12: in the table, of one key, in the dialog that ends it; and one finds all that a machine holds."""
    here = {"host": "web-3", "pid": 4711, "program": "charge.py"}
    local.take("machine:a", client="charge.py@web-3:4711", metadata=here)
    local.take("machine:b", client="other", metadata={"host": "web-4"})
    local.take("machine:c", client="nobody says", metadata={"host": 7, "pid": "x"})
    page = look(local).open()
    page.get_by_label("Key begins with").fill("machine:")
    row = page.locator(".line", has_text="machine:a")
    expect(row.locator(".holder")).to_have_text("charge.pyweb-3:4711")
    expect(page.locator(".line", has_text="machine:c").locator(".cell-heldBy")).to_have_text("nobody says")
    page.get_by_label("Owner or machine").fill("WEB-3")
    expect(page.locator(".line")).to_have_count(1)
    row.get_by_role("link").click()
    fact = page.locator(".card dt", has_text=re.compile("^Machine$")).locator("+ dd")
    expect(fact).to_have_text("web-3:4711 charge.py")
    page.get_by_role("button", name="Release by force…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("dt", has_text="Machine").locator("+ dd")).to_have_text("web-3:4711 charge.py")
    since = dialog.locator("dt", has_text="Since").locator("+ dd")
    expect(since).to_have_text(re.compile(r"^(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d$"))


def test_the_first_hundred_who_wait_are_shown_in_order(busy: Serving, look: Looking) -> None:
    """Issue 8: 50 wait; each has his place."""
    page = look(busy).open("key/nightly%3Areport")
    places = page.get_by_role("region", name="Waiting, in order").locator("tbody tr")
    expect(places).to_have_count(WAITERS)
    expect(places.nth(WAITERS - 1)).to_contain_text(f"waiter-{WAITERS - 1:02}")


def test_the_last_hour_is_plotted(busy: Serving, look: Looking) -> None:
    """Held, waiting, percentiles, refusals: each plot can be read with the arrow keys and as a table."""
    page = look(busy).open("overview")
    plot = page.get_by_role("img", name=re.compile("^Held and waiting"))
    expect(plot).to_have_attribute("aria-label", re.compile(r"held \d.*waiting \d"))
    expect(page.locator(".plot")).to_have_count(5)
    plot.press("Home")
    figure = page.locator(".plot").first
    figure.get_by_text("As a table").click()
    expect(figure.get_by_role("columnheader", name="waiting")).to_be_visible()


def test_the_store_is_described_in_plain_words(local: Serving, look: Looking) -> None:
    """What it gives, from the assurance of the store."""
    page = look(local).open("store")
    expect(page.get_by_text("Within one process of the service")).to_be_visible()
    expect(page.get_by_text("nothing survives the process")).to_be_visible()


def test_what_only_credentials_bring_says_so_in_the_local_mode(local: Serving, look: Looking) -> None:
    """No audit, no rules: the views say why."""
    seen = look(local)
    expect(seen.open("denials").get_by_text("There is none in the local mode")).to_be_visible()
    expect(seen.open("rules").get_by_text("There are none in the local mode")).to_be_visible()


def test_a_page_that_nobody_sees_asks_nothing(local: Serving, look: Looking) -> None:
    """A hidden tab closes its stream of events and stops its timer; seen again, it catches up."""
    seen = look(local)
    seen.page.clock.install()
    page = seen.open()
    page.clock.resume()
    page.get_by_label("Key begins with").fill("while:")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    asked: list[str] = []
    hide = """(state) => {
        Object.defineProperty(document, 'visibilityState', {value: state, configurable: true});
        document.dispatchEvent(new Event('visibilitychange'));
    }"""
    page.evaluate(hide, "hidden")
    expect(page.get_by_text("live", exact=True)).to_have_count(0)
    page.on("request", lambda request: asked.append(request.url))
    local.take("while:hidden")
    page.clock.run_for("05:00")
    assert asked == []
    page.evaluate(hide, "visible")
    expect(page.locator(".line", has_text="while:hidden")).to_have_count(1)
