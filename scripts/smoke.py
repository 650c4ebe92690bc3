"""Tries an installed `leased` in an environment with nothing else in it; changes nothing outside a temporary directory.

Run by a Python in whose environment only the wheel is installed: both faces lock on the memory store and on SQLite, the
command works, and no module was imported that neither the standard library nor `leased` provides. With the name of an
extra it tries that one, where the wheel was installed with it; with `dist` what was built, and imports nothing.
"""

import asyncio
import os
import pty
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import urllib.request
import zipfile
from importlib.util import find_spec
from pathlib import Path

PATIENCE = 60.0
UNAVAILABLE = 69
STORES = {
    "redis": "redis://127.0.0.1:1",
    "postgres": "postgresql://127.0.0.1:1/x",
    "mysql": "mysql://127.0.0.1:1/x",
    "http": "http://127.0.0.1:1",
    "dynamodb": "dynamodb://127.0.0.1:1/smoke",
    "etcd": "etcd://127.0.0.1:1",
    "nats": "nats://127.0.0.1:1",
}
"""Extra to a URL at which nobody listens: with the driver that is what the command says, without it the extra."""


def check(condition: object, claim: str) -> None:
    """End with a message unless the condition is true."""
    if not condition:
        sys.exit(f"smoke test failed: {claim}")


def blocking(url: str) -> int:
    """Lock by the blocking face; returns the fencing token."""
    import leased

    with leased.connect(url) as locks:
        with locks.lock("smoke", ttl="10s") as held:
            check(locks.lock("smoke").try_acquire() is None, f"a second claim was granted ({url})")
            held.ensure_held()
            fencing_token = held.fencing_token
        check(not locks.status("smoke").held, f"the key is still held after the block ({url})")
    return fencing_token


async def concurrent(url: str) -> int:
    """Lock by the asyncio face; returns the fencing token."""
    import leased.aio

    async with leased.aio.connect(url) as locks:
        async with locks.lock("smoke", ttl="10s") as held:
            check(await locks.lock("smoke").try_acquire() is None, f"a second claim was granted ({url})")
            held.ensure_held()
            fencing_token = held.fencing_token
        check(not (await locks.status("smoke")).held, f"the key is still held after the block ({url})")
    return fencing_token


def program() -> str:
    """The installed command."""
    return str(Path(sysconfig.get_path("scripts"), "leased"))


def command(*arguments: str) -> str:
    """Output of the installed `leased` command, which has to succeed."""
    done = subprocess.run([program(), *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)
    check(done.returncode == 0, f"`leased {' '.join(arguments)}` ended with {done.returncode}: {done.stderr}")
    return done.stdout


def refusal(url: str) -> str:
    """What the command says of a store that it cannot reach."""
    asked = [program(), "--timeout", "2", "--url", url, "status", "smoke"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE, check=False)
    check(done.returncode == UNAVAILABLE, f"{url} ended with {done.returncode}: {done.stderr}")
    check("Traceback" not in done.stderr, f"{url}: {done.stderr}")
    return done.stderr


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


def alone(directory: str) -> None:
    """What works with nothing but the wheel, and what is said of the rest."""
    import leased

    for url in ("memory:", f"sqlite:{directory}/locks.db"):
        first, second = blocking(url), asyncio.run(concurrent(url))
        check(first < second, f"fencing tokens do not rise: {first}, {second} ({url})")
    version = command("--version")
    check(version.strip().endswith(leased.__version__), f"--version says {version!r}")
    names = re.findall(r"^    ([a-z-]+)  ", command("--help"), re.MULTILINE)
    check({"run", "top", "force-release", "config"} <= set(names), f"the help names the commands {names}")
    for name in names:
        check(command(name, "--help").startswith(f"usage: leased {name} "), f"leased {name} --help")
    command("run", "smoke", "--", "true")
    command("doctor")
    command("top", "--once")
    for extra, url in STORES.items():
        said = refusal(url)
        check(extra == "http" or f"leased[{extra}]" in said, f"without the extra {extra} it says: {said}")
    page = Path(sysconfig.get_path("data"), "share/man/man1/leased.1")
    check(page.exists() and ".TH LEASED 1" in page.read_text(), f"no manual page at {page}")
    check(not strangers(), f"imported from outside: {strangers()}")


def with_extra(extra: str, directory: str) -> None:
    """One use of what an extra brings."""
    if extra in STORES:
        said = refusal(STORES[extra])
        check("pip install" not in said, f"with the extra {extra} it says: {said}")
    elif extra == "cli":
        watch()
    elif extra == "server":
        serve(directory)
    elif extra == "sqlite":
        check(find_spec("apsw"), "no apsw")
        blocking(f"sqlite:{directory}/locks.db")
    else:
        sys.exit(f"smoke test failed: nothing is tried with the extra {extra}; say what in scripts/smoke.py")


def watch() -> None:
    """Watch locks on a terminal, and quit."""
    pid, terminal = pty.fork()
    if not pid:
        os.execve(program(), ["leased", "top"], {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "24"})
    seen, give_up_at = b"", time.monotonic() + PATIENCE
    while b"is held or closed" not in seen:
        check(time.monotonic() < give_up_at, f"leased top shows {seen!r}")
        try:
            seen += os.read(terminal, 4096)
        except OSError:
            check(condition=False, claim=f"leased top ended: {seen!r}")
    os.write(terminal, b"q")
    while os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        check(condition=False, claim="leased top does not quit")


def serve(directory: str) -> None:
    """Start the service, ask whether it runs, and end it in order; its pages, where they are built in."""
    import leased

    started = [program(), "serve", "--port", "0", "--store", f"sqlite:{directory}/locks.db"]
    with subprocess.Popen(started, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        url = re.findall(r"serves (http://\S+) ", said)
        check(url, f"leased serve says {said!r}")
        pages = ["/healthz", "/readyz", "/openapi.json"]
        pages += ["/ui/"] if any(Path(str(leased.__file__)).parent.rglob("index.html")) else []
        for page in pages:
            with urllib.request.urlopen(url[0] + page, timeout=PATIENCE) as answer:
                check(answer.status == 200, f"{page} answers {answer.status}")
        process.terminate()
        check(process.wait(PATIENCE) == 0, "leased serve does not end in order")


def built(directory: Path) -> None:
    """What is in the wheel and in the sdist, and that both have the version that they are called by."""
    (wheel,), (source,) = directory.glob("*.whl"), directory.glob("*.tar.gz")
    name = source.name.removesuffix(".tar.gz")
    version = name.removeprefix("leased-")
    in_wheel = zipfile.ZipFile(wheel).namelist()
    with tarfile.open(source) as archive:
        in_source = [one.removeprefix(f"{name}/") for one in archive.getnames()]
    files = {path.relative_to("src").as_posix() for path in Path("src/leased").rglob("*") if path.is_file()}
    wanted = {path for path in files if "__pycache__" not in path}
    wanted.add(f"leased-{version}.data/data/share/man/man1/leased.1")
    missing = sorted(wanted - set(in_wheel))
    check(not missing, f"not in {wheel.name}: {missing}")
    check(all(one.startswith(("leased/", f"leased-{version}.")) for one in in_wheel), f"strangers in {wheel.name}")
    for path in ("man/leased.1", "deploy/Dockerfile", "src/leased/__init__.py", "tests/test_layers.py", "README.md"):
        check(path in in_source, f"{path} is not in {source.name}")


def main(arguments: list[str]) -> None:
    """Try everything once."""
    if arguments[:1] == ["dist"]:
        built(Path("dist"))
        return
    import leased

    where = Path(str(leased.__file__)).resolve()
    check(where.is_relative_to(Path(sysconfig.get_path("purelib")).resolve()), f"{where} is not the installed wheel")
    with tempfile.TemporaryDirectory(prefix="leased-smoke-") as directory:
        os.environ.pop("LEASED_URL", None)
        os.environ["XDG_STATE_HOME"] = directory
        os.environ["HOME"] = directory
        if arguments:
            with_extra(arguments[0], directory)
        else:
            alone(directory)
    what = f"leased[{arguments[0]}]" if arguments else "leased"
    print(f"smoke test passed: {what} {leased.__version__} on Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main(sys.argv[1:])
