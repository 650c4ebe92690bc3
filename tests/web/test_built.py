"""The dashboard in the package: built from the source beside it, small, and without anything of others."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from tests.servers import found
from tests.web.world import ROOT, WEB, module, needed

BUILT = ROOT / "src" / "leased" / "server" / "dashboard"
MAX_SCRIPT = 80_000


def node(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of Node in `web`."""
    try:
        program = str(found.node_program())
    except found.ServerMissing:
        program = needed(shutil.which("node"), what="node", command="make setup")
    return subprocess.run([program, *arguments], cwd=WEB, capture_output=True, text=True, timeout=120, check=False)


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_what_is_in_the_package_is_what_the_source_builds(tmp_path: Path) -> None:
    """Byte for byte; `make web` builds it anew."""
    made = node(module("vite/bin/vite.js"), "build", "--outDir", str(tmp_path / "built"), "--logLevel", "warn")
    assert made.returncode == 0, made.stderr
    fresh, kept = files(tmp_path / "built"), files(BUILT)
    assert sorted(fresh) == sorted(kept)
    assert [name for name in kept if kept[name] != fresh[name]] == []


def test_its_types_are_right() -> None:
    """TypeScript, as strict as it gets, has nothing to say."""
    checked = node(module("typescript/bin/tsc"), "--noEmit")
    assert checked.returncode == 0, checked.stdout


def test_it_is_small_and_has_nothing_inline_or_from_elsewhere() -> None:
    """The policy that is sent with it forbids scripts and styles in the page, and whatever is not the service's own."""
    kept = files(BUILT)
    page = kept["index.html"].decode()
    assert re.findall(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=", page) == []
    for place in re.findall(r'(?:src|href)="([^"]+)"', page):
        assert place.removeprefix("/ui/") in kept
    scripts = [name for name in kept if name.endswith(".js")]
    assert sum(len(kept[name]) for name in scripts) < MAX_SCRIPT
    addresses = {
        address
        for name in kept
        for address in re.findall(rb"https?://[^\s\"'`)>]+", kept[name])
        if b"www.w3.org" not in address  # names of XML, which nobody asks
    }
    assert addresses == set()


def test_its_lock_file_pins_everything_and_names_no_registry() -> None:
    """Each package by version and hash."""
    lock = (WEB / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert lock.count('"integrity"') == lock.count('"node_modules/')
