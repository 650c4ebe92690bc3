"""The accounts that servers run as, since some refuse to be root. It makes none."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import IO


def account_for(name: str) -> str | None:
    """Who should run a server that refuses to be root: none if we are not root, else this account or `nobody`."""
    if os.geteuid() != 0:
        return None
    return name if name in {entry.pw_name for entry in pwd.getpwall()} else "nobody"


def own(path: Path, *, account: str | None) -> None:
    """Give a file or directory to the account."""
    if account is not None:
        shutil.chown(path, account, pwd.getpwnam(account).pw_gid)


def spawn(
    command: list[str], *, account: str | None, directory: Path, output: IO[bytes], environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, as this account; its output goes to the file."""
    entry = pwd.getpwnam(account) if account is not None else None
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd=directory,
        # No setting of the user changes what a server does.
        env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC", **environment},
        start_new_session=True,
        user=entry.pw_uid if entry else None,
        group=entry.pw_gid if entry else None,
        extra_groups=[] if entry else None,
    )
