"""API keys: random, stored as a keyed hash alone, compared in constant time; the pepper is a private file."""

import os
import re
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from leased.errors import StoreNotUsable
from leased.server.keys import PEPPER_LENGTH, SECRET_LENGTH, ApiKey, Hasher, new_key, pepper_beside, read_key
from leased.server.registries import Place, open_registry
from leased.server.registry_sqlite import SqliteRegistry
from tests.server.access.test_registry import credential, line


def test_keys_are_long_random_and_different() -> None:
    """SEC1: at least 128 random bits, none twice, and every digit of every place is used."""
    assert SECRET_LENGTH * 4 >= 128
    made = [new_key() for _ in range(10_000)]
    assert len({key.secret for key in made}) == len({key.id for key in made}) == len(made)
    for place in range(SECRET_LENGTH):
        assert len({key.secret[place] for key in made}) == 16


def test_a_key_is_read_as_it_was_written() -> None:
    """V5: `lk_<id>_<secret>`, and nothing that only looks like it."""
    key = new_key()
    assert re.fullmatch(r"lk_[0-9a-f]{12}_[0-9a-f]{40}", key.text)
    assert read_key(key.text) == key
    for wrong in (
        "",
        "lk_",
        key.text[:-1],
        key.text + "0",
        key.text + "\n",
        key.text.upper(),
        key.text.replace("_", "-"),
        " " + key.text,
        f"lk_{key.id}_",
        f"lk__{key.secret}",
        "lk_" + "٣" * 12 + "_" + key.secret,
    ):
        assert read_key(wrong) is None


def test_a_key_does_not_show_its_secret() -> None:
    """SEC3: neither the repr of a key nor that of a hasher holds a secret."""
    key, hasher = new_key(), Hasher(bytes(range(32)))
    assert key.secret not in repr(key)
    assert "\\x00\\x01" not in repr(hasher)


def test_only_the_key_itself_matches() -> None:
    """SEC2: another secret, another id, another pepper, or no stored hash: no."""
    hasher, key = Hasher(b"p" * 32), new_key()
    stored = hasher.digest(key)
    assert key.secret.encode() not in stored
    assert hasher.matches(key, stored)
    assert not hasher.matches(ApiKey(key.id, new_key().secret), stored)
    assert not hasher.matches(ApiKey(new_key().id, key.secret), stored)
    assert not hasher.matches(key, None)
    assert not hasher.matches(key, b"")
    assert not Hasher(b"q" * 32).matches(key, stored)


def test_a_hasher_needs_a_pepper() -> None:
    """SEC2: a hash without a real key is refused."""
    with pytest.raises(StoreNotUsable):
        Hasher(b"short")


def test_the_pepper_is_made_once_and_private(tmp_path: Path) -> None:
    """SEC16: 0600 whatever the umask, the same at every start."""
    registry = str(tmp_path / "registry.db")
    before = os.umask(0)
    try:
        pepper = pepper_beside(registry)
    finally:
        os.umask(before)
    file = tmp_path / "registry.db.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert pepper_beside(registry) == pepper == file.read_bytes()
    assert len(pepper) == PEPPER_LENGTH
    assert [path.name for path in tmp_path.iterdir()] == ["registry.db.key"]


def test_those_who_start_at_once_have_one_pepper(tmp_path: Path) -> None:
    """SEC2: whoever comes first makes it, and nobody reads half of it."""
    found: list[bytes] = []
    start = threading.Barrier(8)

    def run() -> None:
        start.wait()
        found.append(pepper_beside(str(tmp_path / "registry.db")))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_pepper_that_others_may_read_is_refused(tmp_path: Path) -> None:
    """SEC2: the message says what to do."""
    pepper_beside(str(tmp_path / "registry.db"))
    (tmp_path / "registry.db.key").chmod(0o640)
    with pytest.raises(StoreNotUsable, match="chmod 600"):
        pepper_beside(str(tmp_path / "registry.db"))


def test_a_damaged_pepper_is_refused(tmp_path: Path) -> None:
    """SEC2: an empty or cut file makes no hash; nothing is silently made anew."""
    file = tmp_path / "registry.db.key"
    file.write_bytes(b"x")
    file.chmod(0o600)
    with pytest.raises(StoreNotUsable, match="restore it from a backup"):
        pepper_beside(str(tmp_path / "registry.db"))
    with pytest.raises(StoreNotUsable, match="choose a directory"):
        pepper_beside(str(tmp_path / "missing" / "registry.db"))


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """SEC16: whoever may write the directory cannot make the service read another file."""
    (tmp_path / "secret").write_bytes(b"x" * 32)
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "registry.db.key").symlink_to(tmp_path / "secret")
    with pytest.raises(StoreNotUsable):
        pepper_beside(str(tmp_path / "registry.db"))


async def registry_with(path: Path, *, credentials: int) -> None:
    """A registry file that has so many API keys, without a key file beside it."""
    registry = SqliteRegistry(str(path))
    for number in range(credentials):
        await registry.add_credential(credential(f"{number:012}"), line("create"))
    await registry.audit("p")
    await registry.close()


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("begin", [False, True])
async def test_a_key_file_that_was_lost_is_not_made_anew(tmp_path: Path, begin: bool, named: bool) -> None:
    """SEC2: under a new key none of the API keys that are there would be valid, without a word: it is refused instead,
    naming the file, what it is, how to get it back and how to begin anew on purpose; and that works."""
    path, key = tmp_path / "registry.db", tmp_path / ("elsewhere" if named else "registry.db.key")
    await registry_with(path, credentials=1)
    place = Place(str(path), str(key) if named else "")
    with pytest.raises(StoreNotUsable) as refused:
        open_registry(place, begin=begin)
    assert not key.exists()
    if begin or not named:
        assert f"{key} is missing" in refused.value.message
        assert str(path) in refused.value.message
        assert refused.value.hint is not None
        assert "backup" in refused.value.hint
        command = refused.value.hint[refused.value.hint.index("(umask") :]
        subprocess.run(["/bin/sh", "-c", command], check=True)
        await open_registry(place, begin=begin).registry.close()


async def test_a_registry_without_api_keys_gets_a_key_file(tmp_path: Path) -> None:
    """SEC2: a registry that is new, or has only rules and an audit log, loses nothing by it."""
    await registry_with(tmp_path / "empty.db", credentials=0)
    for name in ("empty.db", "new.db"):
        await open_registry(Place(str(tmp_path / name)), begin=False).registry.close()
        assert (tmp_path / f"{name}.key").stat().st_size == PEPPER_LENGTH


def test_of_a_file_that_is_no_registry_nothing_is_made(tmp_path: Path) -> None:
    """SEC2: the file of another program gets no key file beside it, and the refusal names it."""
    path = tmp_path / "notes.txt"
    path.write_text("no registry, " * 100)
    with pytest.raises(StoreNotUsable, match=re.escape(str(path))):
        open_registry(Place(str(path)), begin=True)
    assert [one.name for one in tmp_path.iterdir()] == ["notes.txt"]
