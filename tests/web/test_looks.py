"""How the dashboard looks and reads: at three widths, by night and by day, and to those who do not see it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.server.talking import ask
from tests.web.test_sign_in import RULES, signed_in
from tests.web.world import ROOT, Look, Serving, module, serving

Looking = Callable[..., Look]

WIDTHS = {360: 740, 768: 1024, 1280: 800}
# With LEASED_PICTURES=DIRECTORY a run leaves its pictures there for people to look at; with the docs' directory of
# images, those that the docs show.
PICTURES = os.environ.get("LEASED_PICTURES")
OF_THE_DOCS = frozenset({"locks-1280", "key-1280", "force-1280", "locks-360"})


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Serving, str]]:
    """A service as operators see it at night, and the credential of an admin."""
    with serving(tmp_path_factory.mktemp("shop"), registry=True) as service:
        admin = service.credential("member", "olga", role="admin")
        app = service.credential("function", "shop")
        mia = service.credential("member", "mia", groups=[{"name": "ops", "kind": "team"}])
        rules = ask(service.port, "/v1/rule-set", RULES, method="PUT", headers=service.headers(admin))
        assert rules.status == 200, rules.body
        for place in range(1, 9):
            granted = service.take("invoice:4711", credential=app, owner=f"billing-{place}", ttlMs=20_000)
            service.release("invoice:4711", granted["token"], credential=app)
        batch = {**machine("app-3", "billing.py"), "batch": 17}
        service.take("invoice:4711", credential=app, owner="billing-9", metadata=batch)
        service.take(
            "invoice:4712",
            credential=app,
            owner="billing-2",
            ttlMs=86_000_000,
            metadata=machine("app-1", "billing.py"),
        )
        service.take(
            "import:orders",
            credential=mia,
            owner="mia-import",
            ttlMs=1_200_000,
            metadata=machine("mias-laptop.home.example", "import_orders.py"),
        )
        closed = service.take("cron:nightly-report", credential=app, ttlMs=30_000, holdAtLeastMs=3_000_000)
        service.release("cron:nightly-report", closed["token"], credential=app)
        reason = {"maintenance": True, "reason": "moving the disks of db-2"}
        service.take("migrate:orders", credential=admin, owner="maintenance", ttlMs=7_200_000, metadata=reason)
        for place in range(30):
            worker, ttl = f"worker-{place:02}", 600_000 + place * 9000
            host = machine(f"worker-{place:02}.fra.example", "worker.py")
            service.take(f"worker:{place:02}:slot", credential=app, owner=worker, ttlMs=ttl, metadata=host)
        tom = service.headers(service.credential("member", "tom"))
        refused = ask(service.port, "/v1/locks/acquire", {"key": "import:orders", "ttlMs": 9000}, headers=tom)
        assert refused.status == 403
        with service.waiting("invoice:4711", 6, credential=app):
            yield service, admin


def machine(host: str, program: str) -> dict[str, Any]:
    """What the library says of itself in the metadata of each lease."""
    return {"host": host, "pid": 1000 + len(host) * 7, "program": program}


VIEWS: dict[str, tuple[str, str]] = {
    "locks": ("locks", "[role=grid] .line"),
    "key": ("key/invoice%3A4711", "main:has(.timeline):has(.plot)"),
    "overview": ("overview", ".plot"),
    "denials": ("denials", "main table"),
    "rules": ("rules", "pre"),
    "store": ("store", ".facts"),
}


def at_rest(page: Page, view: str) -> None:
    """Wait until a view shows what it is about."""
    expect(page.locator(VIEWS[view][1]).first).to_be_visible()


def picture(page: Page, name: str, directory: Path) -> None:
    """Of the whole page, however long it is."""
    if PICTURES and not (PICTURES.startswith("docs") and name not in OF_THE_DOCS):
        directory = ROOT / PICTURES
    page.mouse.move(0, 0)
    whole = not name.startswith("force")
    page.screenshot(path=directory / f"{name}.png", animations="disabled", full_page=whole)
    if PICTURES and not PICTURES.startswith("docs"):  # by day, too
        page.emulate_media(color_scheme="light")
        page.screenshot(path=directory / f"{name}-light.png", animations="disabled", full_page=whole)
        page.emulate_media(color_scheme="dark")


def stir(service: Serving, page: Page, width: int) -> None:
    """Let something happen to keys while the table shows them: one is renewed, one comes to be at risk, two end."""
    app = service.credential("function", "night")
    keys = {name: f"etl:{name}-{width}" for name in ("customers", "orders", "stock", "prices")}
    more = {"owner": "etl", "metadata": machine("etl-2", "etl.py")}
    held = {name: service.take(key, credential=app, ttlMs=600_000, **more) for name, key in keys.items()}
    for key in keys.values():
        expect(page.locator(".line", has_text=key)).to_be_visible()
    for name, ttl in (("customers", 590_000), ("orders", 120_000)):  # shortened to less than a third of what it was
        body = {"key": keys[name], "token": held[name]["token"], "ttlMs": ttl}
        assert service.ask("/v1/locks/renew", body, credential=app)["renewed"]
    service.release(keys["stock"], held["stock"]["token"], credential=app)
    forced = {"key": keys["prices"], "fencingToken": held["prices"]["fencingToken"], "reason": "the host is gone"}
    assert service.ask("/v1/locks/force-release", forced, credential=service.owner)["released"]
    for word in ("renewing", "at risk", "released", "forced"):
        expect(page.locator(".line .stage", has_text=word).first).to_be_visible()


@pytest.mark.parametrize("width", WIDTHS)
def test_every_view_fits_at_every_width(shop: tuple[Serving, str], look: Looking, width: int, tmp_path: Path) -> None:
    """Nothing sticks out, and on a phone nothing that is to be hit is smaller than a finger."""
    service, admin = shop
    phone = width < 600
    seen = signed_in(look(service, width=width, height=WIDTHS[width], color_scheme="dark", has_touch=phone), admin)
    page = seen.page
    for view, (place, _) in VIEWS.items():
        seen.open(place)
        at_rest(page, view)
        if view == "locks":
            stir(service, page, width)
        picture(page, f"{view}-{width}", tmp_path)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
        assert page.evaluate("document.querySelector('main').scrollWidth <= innerWidth"), view
        if phone:
            assert small(page) == [], view
    seen.open("key/invoice%3A4711")
    page.get_by_role("button", name="Release by force…").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    picture(page, f"force-{width}", tmp_path)
    assert page.evaluate("document.querySelector('dialog').scrollWidth <= innerWidth")


def small(page: Page) -> list[str]:
    """What can be hit and is lower than 32 pixels, but for links within text and cells."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll('button, input:not([type=checkbox]), select, nav a')]
            .filter((one) => one.checkVisibility() && !one.closest('.grid-head'))
            .filter((one) => one.getBoundingClientRect().height < 32)
            .map((one) => one.outerHTML.slice(0, 120))"""
    )
    return found


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light"), (1280, "dark")])
def test_those_who_do_not_see_it_can_use_it(shop: tuple[Serving, str], look: Looking, width: int, scheme: str) -> None:
    """axe finds nothing in any view: labels, roles, order of headings, contrast. By night and by day only colours
    differ."""
    service, admin = shop
    rules = {"runOnly": ["color-contrast", "link-in-text-block"]} if (width, scheme) == (1280, "dark") else {}
    axe = Path(module("axe-core/axe.min.js")).read_text()
    first = look(service, width=width, height=WIDTHS[width], color_scheme=scheme)
    page = first.open()
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    assert judged(page, axe, rules) == []
    seen = signed_in(first, admin)
    for view, (place, _) in VIEWS.items():
        seen.open(place)
        at_rest(page, view)
        assert judged(page, axe, rules) == [], view
    seen.open("key/invoice%3A4711")
    page.get_by_role("button", name="Release by force…").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert judged(page, axe, rules) == []
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert judged(page, axe, rules) == []


def judged(page: Page, axe: str, rules: dict[str, Any]) -> list[str]:
    """What axe complains of, and where."""
    page.evaluate(f"window.axe || (() => {{ {axe} }})(); undefined")
    found: Any = page.evaluate("(rules) => axe.run(document, {resultTypes: ['violations'], ...rules})", rules)
    return [
        f"{one['id']}: {node['target']}: {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


def test_motion_is_left_out_where_it_is_not_wanted(shop: tuple[Serving, str], look: Looking) -> None:
    """Bars then step once a second."""
    service, admin = shop
    page = signed_in(look(service, reduced_motion="reduce"), admin).page
    bar = page.locator(".bar > span").first
    expect(bar).to_be_attached()
    assert bar.evaluate("(bar) => getComputedStyle(bar).transitionDuration") == "0s"


def test_states_differ_without_colour(shop: tuple[Serving, str], look: Looking) -> None:
    """Each word has a shape of its own."""
    service, admin = shop
    page = signed_in(look(service), admin).page
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    marks = page.locator("dialog .stage")
    shapes = marks.locator("path").evaluate_all("(all) => all.map((one) => one.getAttribute('d'))")
    words = marks.all_inner_texts()
    assert len(set(shapes)) == len(shapes) == len(set(words)) == 6
    assert all(re.fullmatch(r"[a-z ]+", word.strip()) for word in words)


def test_live_regions_do_not_chatter(shop: tuple[Serving, str], look: Looking) -> None:
    """While keys come and go nothing is announced: only what somebody did is."""
    service, admin = shop
    page = signed_in(look(service), admin).page
    at_rest(page, "locks")
    page.evaluate(
        """() => {
            window.said = 0;
            const live = document.querySelectorAll('[role=status], [role=alert], [aria-live]');
            const count = () => { window.said += 1; };
            const all = {subtree: true, childList: true, characterData: true};
            for (const one of live) new MutationObserver(count).observe(one, all);
        }"""
    )
    app = service.credential("function", "other")
    granted = service.take("cron:new", credential=app)
    expect(page.locator(".line", has_text="cron:new")).to_be_visible()
    service.release("cron:new", granted["token"], credential=app)
    expect(page.locator(".line.over", has_text="cron:new")).to_be_visible()
    assert page.evaluate("window.said") == 0
