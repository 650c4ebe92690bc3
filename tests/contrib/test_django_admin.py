"""The page of Django's admin that lists locks, in a real project on PostgreSQL, over HTTP as a browser has it."""

from __future__ import annotations

import html
import http.client
import json
import os
import re
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest

import leased
from tests.contrib.test_django import postgres
from tests.servers.ports import Port
from tests.servers.process import Server
from tests.until import until

ROOT = Path(__file__).parents[2]
LOCKS = "/admin/leased/lock/"
EVIL = "<script>alert('x')</script>\"&#39;\u202egpj"
SETUP = """
import django; django.setup()
from django.core.management import call_command
from django.contrib.auth.models import Permission, User
call_command("migrate", verbosity=0)
call_command("makemigrations", "--check", "--dry-run", verbosity=0)
User.objects.create_superuser("root", password="secret")
for name, rights in (("viewer", ["view_lock"]), ("releaser", ["view_lock", "force_release_lock"]), ("nobody", [])):
    user = User.objects.create_user(name, password="secret", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="leased", codename__in=rights))
"""


class Project:
    """A Django project with its own database, served on this machine; its locks are in that database."""

    def __init__(self, stack: ExitStack, server: Server, **leased_settings: Any) -> None:
        name = f"admin_{secrets.token_hex(4)}"
        administrator = stack.enter_context(psycopg.connect(server.url, autocommit=True))
        administrator.execute(f"CREATE DATABASE {name}".encode())
        stack.callback(administrator.execute, f"DROP DATABASE {name} WITH (FORCE)".encode())
        self.store = f"{server.url.rpartition('/')[0]}/{name}"
        given = {"TEST_LEASED": json.dumps(leased_settings)} if leased_settings else {}
        environment = {
            **os.environ,
            **given,
            "TEST_DATABASE": json.dumps({**postgres(server), "NAME": name}),
            "DJANGO_SETTINGS_MODULE": "tests.contrib.django_admin_settings",
        }
        subprocess.run([sys.executable, "-W", "error", "-c", SETUP], cwd=ROOT, env=environment, timeout=120, check=True)
        reserved = Port()
        stack.callback(reserved.release)
        self.port = reserved.number
        command = [sys.executable, "-W", "error", "-m", "django", "runserver", "--noreload", f"127.0.0.1:{self.port}"]
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._program = subprocess.Popen(command, cwd=ROOT, env=environment, **quiet)
        stack.callback(self._program.wait)
        stack.callback(self._program.kill)
        until(self._answers, what="the project listens", seconds=60)

    def _answers(self) -> bool:
        assert self._program.poll() is None
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
        except ConnectionRefusedError:
            return False
        return True


class Browser:
    """What a browser does for one user: cookies, forms with their hidden fields, and following where it is sent."""

    def __init__(self, project: Project, user: str | None) -> None:
        self._port = project.port
        self._cookies: dict[str, str] = {}
        if user is not None:
            self.get("/admin/login/")
            status, _ = self.post("/admin/login/", [("username", user), ("password", "secret"), ("next", "/admin/")])
            assert status == 302

    def get(self, path: str) -> tuple[int, str]:
        """Status and page."""
        return self._ask("GET", path, "")

    def post(self, path: str, fields: list[tuple[str, str]], *, forged: bool = False) -> tuple[int, str]:
        """Send a form; `forged`: as another site would have it sent."""
        own = [] if forged else [("csrfmiddlewaretoken", self._cookies.get("csrftoken", ""))]
        return self._ask("POST", path, urlencode([*own, *fields]))

    def _ask(self, method: str, path: str, body: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            cookies = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
            headers = {"Cookie": cookies, "Content-Type": "application/x-www-form-urlencoded"}
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            for header in answer.headers.get_all("Set-Cookie", []):
                name, _, value = header.partition(";")[0].partition("=")
                self._cookies[name] = value
            return answer.status, answer.read().decode()
        finally:
            connection.close()


def ticks(page: str) -> dict[str, str]:
    """What the boxes of the list carry, by what they are labelled."""
    found = re.findall(r'<input type="checkbox" name="lock" value="([^"]*)" aria-label="([^"]*)">', page)
    return {html.unescape(label): html.unescape(value) for value, label in found}


def hidden(page: str) -> list[tuple[str, str]]:
    """The hidden fields of the question, but for Django's own."""
    found = re.findall(r'<input type="hidden" name="(lock|sure)" value="([^"]*)">', page)
    return [(name, html.unescape(value)) for name, value in found]


@pytest.fixture(scope="module")
def project(postgres_server: Server) -> Iterator[Project]:
    """One project for all tests; each has keys of its own."""
    with ExitStack() as stack:
        yield Project(stack, postgres_server)


@pytest.fixture
def locks(project: Project) -> Iterator[leased.Locks]:
    """The locks that it lists."""
    with leased.connect(project.store) as found:
        yield found


def test_the_list_shows_what_is_held(project: Project, locks: leased.Locks) -> None:
    """P4: key, owner, held by, fencing token and time left, read from the store; those of a prefix where that is asked;
    what is free is not there, what is closed says so."""
    browser = Browser(project, "root")
    assert LOCKS in browser.get("/admin/")[1]
    with locks.lock("list:a", ttl=60, owner="run-7") as held, locks.lock("other", ttl=60):
        locks.lock("list:closed", ttl=60, hold_at_least=60).acquire().release()
        locks.lock("list:free", ttl=60).acquire().release()
        status, page = browser.get(f"{LOCKS}?prefix=list:")
        assert status == 200
        assert set(ticks(page)) == {"list:a", "list:closed"}
        cells = re.findall(r"<t[hd][^>]*>(?:<bdi>)?([^<]*)(?:</bdi>)?</t[hd]>", page)
        row = cells[cells.index("list:a") :]
        told = locks.status("list:a")
        assert row[1:4] == ["run-7", html.escape(told.held_by or ""), str(held.fencing_token)]
        assert re.fullmatch(r"(60\.0|5\d\.\d)&nbsp;s", row[4])
        assert "closed for " in page
        assert {"list:a", "other"} <= set(ticks(browser.get(LOCKS)[1]))
        assert held.token not in page


def test_a_release_asks_first_and_hits_what_was_shown(project: Project, locks: leased.Locks) -> None:
    """P4, L7: ticking asks whether one is sure and changes nothing; saying yes releases that lease. One that was taken
    by another meanwhile is left alone, and both are told; the release is in the admin's history."""
    browser = Browser(project, "releaser")
    held = locks.lock("release:a", ttl=60, owner="run-7").acquire()
    browser.get(LOCKS)
    value = ticks(browser.get(LOCKS)[1])["release:a"]
    assert value == f"{held.fencing_token}:release:a"
    status, question = browser.post(LOCKS, [("lock", value)])
    assert (status, hidden(question)) == (200, [("lock", value), ("sure", "yes")])
    assert "Release by force?" in question
    assert locks.status("release:a").fencing_token == held.fencing_token
    assert browser.post(LOCKS, hidden(question))[0] == 302
    assert "Released by force: release:a" in browser.get(LOCKS)[1]
    assert not locks.status("release:a").held
    assert held.renew().lost_reason == "force_released"
    with locks.lock("release:a", ttl=60) as successor:
        assert browser.post(LOCKS, hidden(question))[0] == 302
        assert "Left alone" in browser.get(LOCKS)[1]
        assert successor.renew()
    with psycopg.connect(project.store) as database:
        entries = database.execute(
            "SELECT object_id, change_message FROM django_admin_log WHERE object_id = 'release:a'"
        ).fetchall()
    assert entries == [("release:a", f"Released by force, fencing token {held.fencing_token}.")]


def test_a_page_is_bounded(project: Project, locks: leased.Locks) -> None:
    """P4: of many locks the first ones are shown, and it is said that there are more; no more than that one is read."""
    browser = Browser(project, "root")
    held = [locks.lock(f"many:{number:03}", ttl=60).acquire() for number in range(501)]
    page = browser.get(f"{LOCKS}?prefix=many:")[1]
    assert sorted(ticks(page)) == [one.key for one in held[:-1]]
    assert "There are more" in page
    held[0].release()
    page = browser.get(f"{LOCKS}?prefix=many:")[1]
    assert sorted(ticks(page)) == [one.key for one in held[1:]]
    assert "There are more" not in page
    for one in held[1:]:
        one.release()


def test_hostile_text_is_text(project: Project, locks: leased.Locks) -> None:
    """C: keys and owners are whatever somebody chose: shown as they are, and never as a part of the page."""
    browser = Browser(project, "root")
    held = locks.lock(EVIL, ttl=60, owner=EVIL).acquire()
    for page in (browser.get(LOCKS)[1], browser.get(f"{LOCKS}?{urlencode({'prefix': EVIL})}")[1]):
        assert "<script>alert" not in page
        assert page.count(f"<bdi>{html.escape(EVIL)}</bdi>") == 2
        assert ticks(page)[EVIL] == f"{held.fencing_token}:{EVIL}"
    _, question = browser.post(LOCKS, [("lock", f"{held.fencing_token}:{EVIL}")])
    assert "<script>alert" not in question
    browser.post(LOCKS, hidden(question))
    page = browser.get(LOCKS)[1]
    assert "Released by force: &lt;script&gt;" in page
    assert "<script>alert" not in page
    assert held.renew().lost_reason == "force_released"


def test_only_who_may(project: Project, locks: leased.Locks) -> None:
    """Seeing and releasing are permissions; without a login there is nothing, and other sites can have nothing done."""
    held = locks.lock("rights:a", ttl=60).acquire()
    value = f"{held.fencing_token}:rights:a"
    viewer, nobody, stranger = (Browser(project, user) for user in ("viewer", "nobody", None))
    status, page = viewer.get(LOCKS)
    assert (status, "rights:a" in page, ticks(page), "Release by force" in page) == (200, True, {}, False)
    assert viewer.post(LOCKS, [("lock", value), ("sure", "yes")])[0] == 403
    assert nobody.get(LOCKS)[0] == 403
    assert nobody.post(LOCKS, [("lock", value), ("sure", "yes")])[0] == 403
    assert stranger.get(LOCKS)[0] == 302
    releaser = Browser(project, "releaser")
    assert releaser.post(LOCKS, [("lock", value), ("sure", "yes")], forged=True)[0] == 403
    for page in ("add/", "rights:a/change/", "rights:a/delete/"):
        assert Browser(project, "root").get(LOCKS + page)[0] == 404
    assert held.renew()
    held.release()


@pytest.mark.parametrize("value", ["", "x", "1", "1:", ":k", "-1:k", "\u0661:k", "9" * 17 + ":k", "9999999999999999:k"])
def test_forms_that_were_damaged(project: Project, locks: leased.Locks, value: str) -> None:
    """Nothing is released, and it is said."""
    browser = Browser(project, "releaser")
    with locks.lock("k", ttl=60) as held:
        assert browser.post(LOCKS, [("lock", value), ("sure", "yes")])[0] == 302
        page = browser.get(LOCKS)[1]
        assert "damaged" in page or "Not released" in page
        assert held.renew()
    assert browser.post(LOCKS, [("sure", "yes")])[0] == 302
    assert "Nothing was chosen" in browser.get(LOCKS)[1]
    for prefix in ("%00", "x" * 300, "%ed%a0%80"):
        status, page = browser.get(f"{LOCKS}?prefix={prefix}")
        assert (status, "No key is held" in page) == (200, True)


def test_a_store_that_is_away(postgres_server: Server) -> None:
    """The page says so, without the store's secret, and the rest of the admin works."""
    with ExitStack() as stack:
        away = {"STORE": "redis://:hush@127.0.0.1:1/0", "OPTIONS": {"timeout": 0.5}}
        browser = Browser(Project(stack, postgres_server, **away), "root")
        status, page = browser.get(LOCKS)
        assert status == 503
        assert "errornote" in page
        assert "hush" not in page
        assert browser.get("/admin/")[0] == 200
