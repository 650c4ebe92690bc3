"""The dashboard without a mouse: everything that can be done with one, can be done with keys."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import expect

from tests.web.world import Look, Serving

Looking = Callable[..., Look]


def test_from_the_filter_to_a_forced_release_and_back_with_keys_alone(local: Serving, look: Looking) -> None:
    """`/`, arrows, Enter, f, Tab, Escape."""
    tokens = {name: local.take(f"typed:{name}") for name in "abc"}
    page = look(local).open()
    expect(page.get_by_role("grid")).to_be_visible()
    keyboard = page.keyboard
    keyboard.press("/")
    keyboard.type("typed:")
    expect(page.locator(".line")).to_have_count(3)
    page.keyboard.press("Tab")
    while page.evaluate("document.activeElement.getAttribute('role')") != "grid":
        page.keyboard.press("Tab")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"):
        keyboard.press(key)
    active = page.locator('[role=row][aria-selected="true"]')
    expect(active).to_contain_text("typed:b")
    pointed = page.get_by_role("grid").get_attribute("aria-activedescendant")
    assert pointed == active.get_attribute("id")
    keyboard.press("Enter")
    expect(page.get_by_role("heading", name="typed:b")).to_be_visible()
    expect(page.get_by_role("button", name="Release by force…")).to_be_visible()
    keyboard.press("f")
    dialog = page.get_by_role("dialog", name="Release by force")
    expect(dialog.get_by_label("Reason")).to_be_focused()
    keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    keyboard.press("f")
    expect(dialog.get_by_label("Reason")).to_be_focused()  # people do not type before they see where
    keyboard.type("typed, not clicked")
    keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("Released by force")
    expect(page.get_by_role("button", name="Hold for maintenance…")).to_be_visible()
    keyboard.press("m")
    expect(page.get_by_role("dialog", name="Hold for maintenance")).to_be_visible()
    keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    keyboard.press("Escape")
    expect(page.get_by_role("grid")).to_be_visible()
    expect(page.get_by_label("Key begins with")).to_have_value("typed:")
    assert local.status("typed:a")["fencingToken"] == tokens["a"]["fencingToken"]


def test_help_names_the_keys_and_gives_the_focus_back(local: Serving, look: Looking) -> None:
    """`?` opens it, Escape closes it, and one is where one was."""
    page = look(local).open()
    expect(page.get_by_role("grid")).to_be_visible()
    page.get_by_role("link", name="Overview").focus()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard and signs")
    expect(dialog).to_contain_text("filter the keys")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("link", name="Overview")).to_be_focused()


def test_escape_empties_the_filter_and_then_leaves_it(local: Serving, look: Looking) -> None:
    """The table has the keyboard after that."""
    page = look(local).open()
    field = page.get_by_label("Key begins with")
    expect(field).to_be_visible()
    page.keyboard.press("/")
    expect(field).to_be_focused()
    page.keyboard.type("x")
    page.keyboard.press("Escape")
    expect(field).to_have_value("")
    page.keyboard.press("Escape")
    expect(page.get_by_role("grid")).to_be_focused()


def test_numbers_lead_to_the_views_and_the_first_link_past_the_menu(local: Serving, look: Looking) -> None:
    """1 to 5 in the order of the menu; the first Tab offers to skip it."""
    page = look(local).open()
    expect(page.get_by_role("grid")).to_be_visible()
    for number, title in (("2", "The last hour"), ("3", "Denials and audit"), ("4", "Rules"), ("5", "Store")):
        page.keyboard.press(number)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("Store")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    assert page.url.endswith("#/store")


def test_every_focus_can_be_seen(local: Serving, look: Looking) -> None:
    """Whatever Tab stops at has an outline."""
    local.take("focus:one")
    page = look(local).open("key/focus%3Aone")
    expect(page.get_by_role("button", name="Release by force…")).to_be_visible()
    stops = 0
    while True:
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break
        stops += 1
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", page.evaluate("document.activeElement.outerHTML.slice(0, 200)")
        assert stops < 60, "the keyboard is caught somewhere"
    assert stops >= 8
