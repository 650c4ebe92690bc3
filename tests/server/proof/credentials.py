"""A registry file with API keys of every kind, made by the command line as its users make them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.server.talking import JSON

PATIENCE = 60.0
_KINDS = {
    "owner": ("--kind", "member", "--role", "owner"),
    "admin": ("--kind", "member", "--role", "admin"),
    "member": ("--kind", "member"),
    "function": ("--kind", "function"),
    "service": ("--kind", "service", "--scope", "locks.manage"),
}
_PLENTY = {"project_requests": "100000000", "member_attempts": "100000000", "failed_logins": "100000000"}


class Credentials:
    """One key of each kind, all of one project, made when first asked for."""

    def __init__(self, folder: Path, *, project: str = "proof") -> None:
        """The registry is a file in this folder."""
        self.registry = folder / "registry.db"
        self._project = project
        self._keys: dict[str, str] = {}

    def settings(self, *, plenty: bool = False) -> dict[str, str]:
        """Settings of a service that uses them, by name; with `plenty` of everything that is limited."""
        return {"registry": str(self.registry), **(_PLENTY if plenty else {})}

    def key(self, kind: str, *, name: str = "") -> str:
        """The API key of that kind; each name has one of its own."""
        name = name or kind
        if name not in self._keys:
            options = ["--registry", str(self.registry), "--project", self._project, "--name", name, *_KINDS[kind]]
            made = subprocess.run(
                [sys.executable, "-m", "leased", "keys", "create", *options, "--json"],
                env={"PATH": os.environ["PATH"]},
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=True,
            )
            self._keys[name] = json.loads(made.stdout)["key"]
        return self._keys[name]

    def headers(self, kind: str, *, name: str = "") -> dict[str, str]:
        """The headers of a request by the owner of that key; a `stranger` has none."""
        return {**JSON, **({} if kind == "stranger" else {"Authorization": f"Bearer {self.key(kind, name=name)}"})}
