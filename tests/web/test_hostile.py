"""Names that are not what they look like: everywhere they are text, and all of it can be seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.web.test_sign_in import signed_in
from tests.web.world import Look, Serving

Looking = Callable[..., Look]

MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'><b>bold</b>&lt;i&gt;"
NAMES = {
    "markup": MARKUP,
    "script URL": "javascript:alert(3)//%0aalert(4)",
    "turned around": "invoice\u202egpj.exe\u202c\u2066\u2067x",
    "invisible": "pay\u200broll\ufeff\u200d\u3164\U000e0041",
    "spaces": " pay  roll\u00a0",
    "lines": "one\u2028two\u2029three\ufffe\ufff9",
    "long": "k" * 242,
    "wide": "\U0001f9e8" * 100 + "漢字",
    "template": "${7*7}{{7*7}}%s%n../../etc",
    "half a pair": "é" * 60 + "\u0301" * 80,
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_keys_owners_and_metadata_are_text(guarded: Serving, look: Looking, name: str) -> None:
    """C174: as key, owner, metadata and reason; in the table, the view of the key, its dialog and the audit log."""
    credential = guarded.credential("function", "app")
    guarded.take(name, credential=credential, owner=name, metadata={name[:40]: name[:60], **machine(name)})
    seen = signed_in(look(guarded), guarded.credential("member", "olga", role="owner"))
    page = seen.page
    link = "#/key/" + quote(name, safe="!*'()")
    row = page.locator(".line").filter(has=page.locator(f"a[href={json.dumps(link)}]"))
    expect(row).to_have_count(1)
    box = row.bounding_box()
    assert box is not None
    assert (box["width"], box["height"]) == (1280, 38), "a row stays a row"
    row.get_by_role("link").click()
    expect(page.locator(".key-name")).to_be_visible()
    assert shown(page, ".key-name") == name
    assert shown(page, ".card .facts dd:nth-of-type(2)") == name
    assert shown(page, ".metadata dd:first-of-type") == name[:60]
    assert shown(page, ".card .facts dd:nth-of-type(3)") == f"{name[:30]}:-1 {name[:15]}"
    page.get_by_role("button", name="Release by force…").click()
    assert shown(page, "dialog .facts dd:first-of-type") == name
    page.get_by_role("dialog").get_by_label("Reason").fill(name[:200])
    page.get_by_role("dialog").get_by_role("button", name="Release by force", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("Released by force")
    seen.open("denials")
    expect(page.get_by_role("region", name="Audit log")).to_be_visible()
    assert page.evaluate("document.querySelectorAll('main img, main script, main b, main i, iframe').length") == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out of the page"


def machine(name: str) -> dict[str, object]:
    """What a holder may say of itself."""
    return {"host": name[:30], "pid": -1, "program": name[:15]}


def shown(page: Page, selector: str) -> str:
    """The text at a place, with what was written out as a code point put back."""
    found: str = page.locator(selector).first.evaluate(
        """(element) => {
            const copy = element.cloneNode(true);
            for (const odd of copy.querySelectorAll('.odd')) {
                odd.textContent = String.fromCodePoint(parseInt(odd.textContent.slice(2), 16));
            }
            return copy.textContent;
        }"""
    )
    return found


def test_what_cannot_be_seen_is_written_out(guarded: Serving, look: Looking) -> None:
    """Two keys that look the same do not: the marks that turn a line around and what has no width are named."""
    credential = guarded.credential("function", "app")
    for key in ("twin:a\u202eb", "twin:a\u200bb", "twin:a\u00a0b"):
        guarded.take(key, credential=credential)
    page = signed_in(look(guarded), guarded.credential("member", "olga", role="owner")).page
    page.get_by_label("Key begins with").fill("twin:")
    expect(page.locator(".line .cell-key")).to_have_text(["twin:aU+00A0b", "twin:aU+200Bb", "twin:aU+202Eb"])
    title = page.locator(".line a").last.get_attribute("title")
    assert title == "twin:a⟨U+202E⟩b"


def test_a_place_that_is_none_leads_to_the_table(local: Serving, look: Looking) -> None:
    """Whatever stands after the `#`: a broken escape, another view's name, markup."""
    seen = look(local)
    for place in ("key/%E0%A4%A", "nowhere", "key/", "<script>", "../../x"):
        expect(seen.open(place).get_by_role("grid")).to_be_visible()
        seen.page.goto("about:blank")
