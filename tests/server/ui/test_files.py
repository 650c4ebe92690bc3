"""The files of the dashboard: each at its path, as it is in the package, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leased.server import ui
from tests.server.running import running
from tests.server.talking import ask


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A dashboard of a few files."""
    (tmp_path / "assets").mkdir()
    for name in ("index.html", "assets/index-kD8Z-PBa.js", "assets/index-BlghY9ma.css", "assets/plain.svg"):
        (tmp_path / name).write_text(f"this is {name}")
    (tmp_path / "secret.py").write_text("nobody sees this")
    monkeypatch.setattr(ui, "_FILES", tmp_path)
    ui._files.cache_clear()
    yield tmp_path
    ui._files.cache_clear()


def test_each_file_is_what_it_is(files: Path) -> None:
    """§7: types are told, names that change with their content are kept, all others are asked for again."""
    forever, each_time = "public, max-age=31536000, immutable", "no-cache"
    with running() as service:
        for path, name, kind, kept in (
            ("/ui/", "index.html", "text/html; charset=utf-8", each_time),
            ("/ui/assets/index-kD8Z-PBa.js", "assets/index-kD8Z-PBa.js", "text/javascript; charset=utf-8", forever),
            ("/ui/assets/index-BlghY9ma.css", "assets/index-BlghY9ma.css", "text/css; charset=utf-8", forever),
            ("/ui/assets/plain.svg", "assets/plain.svg", "image/svg+xml", each_time),
        ):
            answer = ask(service.port, path)
            assert (answer.status, answer.body.decode()) == (200, f"this is {name}")
            assert (answer.headers["content-type"], answer.headers["cache-control"]) == (kind, kept)
            assert ask(service.port, path, method="HEAD").headers["content-length"] == str(len(answer.body))


@pytest.mark.parametrize(
    "path",
    [
        "/ui/secret.py",
        "/ui/index.html",
        "/ui/assets",
        "/ui/assets/",
        "/ui/assets/../secret.py",
        "/ui/assets/%2e%2e/secret.py",
        "/ui//assets/plain.svg",
        "/ui/assets/plain%2esvg",
        "/ui/assets/plain.svg%00",
        "/UI/",
        "/uix",
    ],
)
def test_nothing_else_is_there(path: str, files: Path) -> None:
    """SEC15: a table of literal paths, read once, leads to nothing else."""
    with running() as service:
        assert ask(service.port, path).status == 404
        (files / "late.txt").write_text("x")
        assert ask(service.port, "/ui/late.txt").status == 404


def test_the_package_has_a_dashboard() -> None:
    """What a wheel holds is found, too: a page at least."""
    paths = [path for path, _, _ in ui._files()]
    assert "/ui/" in paths


def test_a_browser_is_led_to_the_dashboard(files: Path) -> None:
    """A browser at the bare address comes to the pages; a program is told that nothing is there, as without them."""
    browser = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}
    with running() as service:
        for method in ("GET", "HEAD"):
            answer = ask(service.port, "/", method=method, headers=browser)
            assert (answer.status, answer.headers["location"]) == (307, "/ui/")
        for path, method, headers in (("/", "GET", {}), ("/", "POST", browser), ("/nowhere", "GET", browser)):
            assert ask(service.port, path, method=method, headers=headers).status == 404
        assert ask(service.port, "/", headers={"Accept": "*/*"}).json["hint"] == "see /openapi.json"
    with running(ui="off") as service:
        assert ask(service.port, "/", headers=browser).status == 404
