"""API keys: makes them, reads them, checks them against what is stored of them; it stores and looks up nothing.

A key reads `lk_<id>_<secret>`. The id is public: lists, logs and the audit show it, and it is how a key is looked up.
The secret is random, so a plain keyed hash of it is as good as a slow one.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import re
import secrets
import stat
from dataclasses import dataclass, field

from leased.errors import StoreNotUsable

PREFIX = "lk_"
ID_LENGTH = 12
"""Hexadecimal digits of an id."""

SECRET_LENGTH = 40
"""Hexadecimal digits of a secret: 160 random bits."""

PEPPER_LENGTH = 32
"""Bytes of the key of the hash."""

FORM = (
    f"it reads lk_, {ID_LENGTH} letters and digits, _, and {SECRET_LENGTH} more; copy all of it, and no blank or quote"
)
"""What to tell whoever sent less, or more, than a key."""

_KEY = re.compile(rf"lk_([0-9a-f]{{{ID_LENGTH}}})_([0-9a-f]{{{SECRET_LENGTH}}})")
_NOBODY = bytes(PEPPER_LENGTH)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key in its parts."""

    id: str
    secret: str = field(repr=False)

    @property
    def text(self) -> str:
        """The key as its user has it. It is shown once."""
        return f"{PREFIX}{self.id}_{self.secret}"


def new_key() -> ApiKey:
    """A new key."""
    return ApiKey(secrets.token_hex(ID_LENGTH // 2), secrets.token_hex(SECRET_LENGTH // 2))


def read_key(text: str) -> ApiKey | None:
    """The parts of a key, or `None` if this is none."""
    found = _KEY.fullmatch(text)
    return None if found is None else ApiKey(found[1], found[2])


class Hasher:
    """The keyed hash under which keys are stored. Its own key, the pepper, is kept apart from them; where it is
    `public`, everybody knows it."""

    def __init__(self, pepper: bytes, *, public: bool = False) -> None:
        if len(pepper) < PEPPER_LENGTH:
            message = f"the key of the hash has {len(pepper)} bytes, less than {PEPPER_LENGTH}"
            raise StoreNotUsable(message, hint="give the file that was made with the registry: --registry-key")
        self._pepper = pepper
        self._secret = secrets.token_bytes(PEPPER_LENGTH) if public else pepper

    @property
    def mark(self) -> str:
        """By which a registry knows that keys in it were hashed like this; it tells nothing of the pepper."""
        return hmac.digest(self._pepper, b"registry of leased", "sha256").hex()

    def key_for(self, purpose: bytes) -> bytes:
        """A secret key for something else, the same for all who have this pepper; if that is public, of this object
        alone."""
        return hmac.digest(self._secret, purpose, "sha256")

    def digest(self, key: ApiKey) -> bytes:
        """What is stored of a key. It covers the id, so that it cannot be moved to another one."""
        return hmac.digest(self._pepper, key.text.encode(), "sha256")

    def matches(self, key: ApiKey, stored: bytes | None) -> bool:
        """Whether this is the key of which that was stored; takes the same time for every answer, also for `None`."""
        equal = hmac.compare_digest(self.digest(key), _NOBODY if stored is None else stored)
        return equal and stored is not None


def key_beside(registry: str) -> str:
    """Where the pepper of a registry file is, unless another file is named for it."""
    return f"{registry}.key"


def pepper_beside(registry: str) -> bytes:
    """The pepper of a registry file, from the file beside it, which is made first if there is none.

    Raises `StoreNotUsable` where others could read it, or it is not what was written.
    """
    path = key_beside(registry)
    with contextlib.suppress(FileExistsError):
        _make(path)
    return _read(path, os.O_NOFOLLOW)


def pepper_in(path: str, *, make: bool) -> bytes:
    """The pepper in a file that replicas have in common; `make`: whether it is made where there is none.

    Raises `StoreNotUsable` as `pepper_beside` does. The file may be a link, as mounted secrets are.
    """
    if make:
        with contextlib.suppress(FileExistsError):
            _make(path)
    return _read(path, 0)


def _read(path: str, flags: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
        with open(descriptor, "rb") as file:
            state = os.fstat(descriptor)
            pepper = file.read(PEPPER_LENGTH + 1)
    except OSError as error:
        hint = "run as the user it belongs to; without it no API key is valid any more"
        if error.errno == errno.ENOENT:
            hint = "copy it from where the registry was made; 'leased keys create' makes it with a new registry"
        raise StoreNotUsable(
            f"{path}, which belongs to the registry, cannot be read: {error.strerror}", hint=hint
        ) from error
    if not stat.S_ISREG(state.st_mode) or state.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise StoreNotUsable(f"{path} can be used by others", hint=f"chmod 600 {path}; if others had it, make new keys")
    if len(pepper) != PEPPER_LENGTH:
        raise StoreNotUsable(
            f"{path} does not hold {PEPPER_LENGTH} bytes: it was damaged", hint="restore it from a backup"
        )
    return pepper


def _make(path: str) -> None:
    """Write a new pepper, complete before it has its name: who comes at the same time finds all of it, or none."""
    draft = f"{path}.{secrets.token_hex(6)}"
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(secrets.token_bytes(PEPPER_LENGTH))
                file.flush()
                os.fsync(descriptor)
            os.link(draft, path)
        finally:
            os.unlink(draft)
    except FileExistsError:
        raise
    except OSError as error:
        raise StoreNotUsable(
            f"{path}, which belongs to the registry, cannot be written: {error.strerror}",
            hint="choose a directory that this user may write",
        ) from error
