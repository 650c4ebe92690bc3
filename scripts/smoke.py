"""Tries an installed `leased` in an environment with nothing else in it; changes nothing outside a temporary directory.

Run by a Python in whose environment only the wheel is installed: both faces lock on the memory store and on SQLite, the
command works, and no module was imported that neither the standard library nor `leased` provides.
"""

import asyncio
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import leased
import leased.aio


def check(condition: object, claim: str) -> None:
    """End with a message unless the condition is true."""
    if not condition:
        sys.exit(f"smoke test failed: {claim}")


def blocking(url: str) -> int:
    """Lock by the blocking face; returns the fencing token."""
    with leased.connect(url) as locks:
        with locks.lock("smoke", ttl="10s") as held:
            check(locks.lock("smoke").try_acquire() is None, f"a second claim was granted ({url})")
            held.ensure_held()
            fencing_token = held.fencing_token
        check(not locks.status("smoke").held, f"the key is still held after the block ({url})")
    return fencing_token


async def concurrent(url: str) -> int:
    """Lock by the asyncio face; returns the fencing token."""
    async with leased.aio.connect(url) as locks:
        async with locks.lock("smoke", ttl="10s") as held:
            check(await locks.lock("smoke").try_acquire() is None, f"a second claim was granted ({url})")
            held.ensure_held()
            fencing_token = held.fencing_token
        check(not (await locks.status("smoke")).held, f"the key is still held after the block ({url})")
    return fencing_token


def command(*arguments: str) -> str:
    """Output of the installed `leased` command, which has to succeed."""
    program = Path(sysconfig.get_path("scripts"), "leased")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)
    check(done.returncode == 0, f"`leased {' '.join(arguments)}` ended with {done.returncode}: {done.stderr}")
    return done.stdout


def strangers() -> list[str]:
    """Imported modules that come from neither the standard library nor leased."""
    installed = Path(sysconfig.get_path("purelib")).resolve()
    return sorted(
        name
        for name, module in sys.modules.items()
        if name.split(".")[0] != "leased"
        and (path := getattr(module, "__file__", None))
        and Path(path).resolve().is_relative_to(installed)
    )


def main() -> None:
    """Try everything once."""
    where = Path(str(leased.__file__)).resolve()
    check(where.is_relative_to(Path(sysconfig.get_path("purelib")).resolve()), f"{where} is not the installed wheel")
    with tempfile.TemporaryDirectory(prefix="leased-smoke-") as directory:
        for url in ("memory:", f"sqlite:{directory}/locks.db"):
            first, second = blocking(url), asyncio.run(concurrent(url))
            check(first < second, f"fencing tokens do not rise: {first}, {second} ({url})")
        os.environ.pop("LEASED_URL", None)
        os.environ["XDG_STATE_HOME"] = directory
        os.environ["HOME"] = directory
        version = command("--version")
        check(version.strip().endswith(leased.__version__), f"--version says {version!r}")
        command("run", "smoke", "--", "true")
    check(not strangers(), f"imported from outside: {strangers()}")
    print(f"smoke test passed: leased {leased.__version__} on Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
