"""Which store the command uses: `--url`, `LEASED_URL`, `leased.toml`, a file of this user. It opens no store."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from leased.checks import shown
from leased.errors import InvalidRequest, StoreNotUsable

FILE_NAME = "leased.toml"

_SECRET_IN_URL = re.compile(
    r"://[^/?#]*:[^/?#]+@|[?&;][^=&;]*(passw|pwd|secret|token|api_?key)[^=&;]*=[^&;]", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Place:
    """The store to use. `named_by` says which setting named it, `warnings` what is unwise about how; `chosen` is false
    for the one that is used where nobody named any."""

    url: str = field(repr=False)
    named_by: str
    warnings: tuple[str, ...] = ()
    chosen: bool = True

    def to_pass_on(self) -> str | None:
        """The URL by which another process, wherever it works, finds the same store; `None` if a secret is in it."""
        if has_secret(self.url):
            return None
        try:
            return _anchored(self.url, os.getcwd())
        except OSError:  # the working directory was deleted
            return self.url


def has_secret(url: str) -> bool:
    """Whether a secret stands in this URL."""
    return bool(_SECRET_IN_URL.search(url))


def find_place(option: str | None, environment: Mapping[str, str]) -> Place:
    """The store that the first of these names: the option, `LEASED_URL`, `leased.toml`, else a file of this user.

    Raises `InvalidRequest` for a file that cannot count, `StoreNotUsable` where the user has no place for files.
    """
    if option is not None:
        unwise = ("a password in an argument can be seen by everybody on this machine; use LEASED_URL or leased.toml",)
        return Place(option, "--url", unwise if has_secret(option) else ())
    if environment.get("LEASED_URL"):
        return Place(environment["LEASED_URL"], "LEASED_URL")
    path = _nearest_file()
    if path is not None:
        return _read(path)
    file = os.path.join(_state_directory(environment), "leased", "locks.db")
    return Place(f"sqlite:{quote(file)}", "the default for this user", chosen=False)


def _nearest_file() -> str | None:
    """`leased.toml` in the working directory or the nearest directory above it that has one."""
    try:
        directory = os.getcwd()
    except OSError:
        return None  # it was deleted
    while True:
        path = os.path.join(directory, FILE_NAME)
        if os.path.isfile(path):
            return path
        above = os.path.dirname(directory)
        if above == directory:
            return None
        directory = above


def _read(name: str) -> Place:
    """The store that this file names. A file that somebody else could have written is refused, never skipped: skipping
    it would mean another store, and two runs that do not know of each other."""
    import tomllib

    try:
        with open(name, "rb") as file:
            state = os.fstat(file.fileno())
            if state.st_uid not in {0, os.geteuid()} or state.st_mode & stat.S_IWOTH:
                raise InvalidRequest(
                    f"{name} belongs to, or can be changed by, another user",
                    hint="chown and chmod it, or name the store by --url or LEASED_URL",
                )
            settings = tomllib.load(file)
    except OSError as error:
        raise InvalidRequest(f"{name} cannot be read: {error.strerror}", hint="or pass --url") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{name} is not TOML: {error}") from error
    url = settings.get("url")
    if not isinstance(url, str) or not url:
        raise InvalidRequest(
            f"{name} names no store", hint='it needs a line such as url = "sqlite:/var/lib/locks/locks.db"'
        )
    warnings = [f"{name}: unknown setting {shown(key)!r}; known is url" for key in settings if key != "url"]
    if has_secret(url) and state.st_mode & (stat.S_IRGRP | stat.S_IROTH):
        warnings.append(f"{name} holds a password and can be read by others; chmod 600 it")
    return Place(_anchored(url, os.path.dirname(name)), name, tuple(warnings))


def _anchored(url: str, directory: str) -> str:
    """The URL of a file with a relative path, taken from the directory of the settings and not from wherever we are."""
    scheme, _, rest = url.partition(":")
    if scheme.lower() != "sqlite" or rest.startswith("/") or not rest:
        return url
    return f"{scheme}:{quote(directory)}/{rest}"


def _state_directory(environment: Mapping[str, str]) -> str:
    """Where this user's programs keep their state: `$XDG_STATE_HOME`, else a directory in the home directory, which is
    `$HOME` or, if that is not set (cron, containers), the one of the password database."""
    given = environment.get("XDG_STATE_HOME", "")
    if given.startswith("/"):
        return given
    home = environment.get("HOME") or _home_on_record()
    if not home.startswith("/"):
        raise StoreNotUsable(
            "there is no home directory to keep locks in", hint="name a store: --url sqlite:/PATH/locks.db"
        )
    inside = ("Library", "Application Support") if sys.platform == "darwin" else (".local", "state")
    return os.path.join(home, *inside)


def _home_on_record() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""
