"""`leased serve` as a process: what it says, how it ends, TLS, and what it refuses to do."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.server.talking import Caller, ask, until
from tests.servers import certificates
from tests.servers.process import Place

PATIENCE = 30.0


@contextmanager
def serving(directory: Path, *options: str, **variables: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, once it has said where it serves, and that URL."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "PYTHONWARNINGS": "error", **variables}
    process = subprocess.Popen(
        [sys.executable, "-m", "leased", "serve", "--port", "0", *options],
        stderr=subprocess.PIPE,
        env=environment,
        cwd=directory,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        found = re.search(r"serves (\S+)", said)
        assert found is not None, said + process.stderr.read()
        yield process, found[1]
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def take(url: str, key: str = "k", **more: Any) -> Any:
    return ask(port_of(url), "/v1/locks/acquire", {"key": key, "ttlMs": 600_000, **more}).json


def ready(url: str) -> None:
    until(lambda: ask(port_of(url), "/readyz").status == 200, what="a ready service")


def test_without_any_configuration_it_serves_a_file_of_this_user(tmp_path: Path) -> None:
    """§7: on the loopback address, over an embedded SQLite file, without credentials, saying so."""
    with serving(tmp_path) as (process, url):
        assert url.startswith("http://127.0.0.1:")
        assert process.stderr is not None
        assert "nobody is asked for credentials" in process.stderr.readline()
        ready(url)
        assert take(url)["acquired"] is True
        assert (tmp_path / ".local/state/leased/locks.db").exists()


def test_its_store_can_be_named_as_every_other_setting(tmp_path: Path) -> None:
    """7: `LEASED_SERVE_STORE` counts, before the store of the command line's other uses and after the option."""
    named = {"LEASED_SERVE_STORE": f"sqlite:{tmp_path / 'named.db'}", "LEASED_URL": f"sqlite:{tmp_path / 'other.db'}"}
    for options, file in (((), "named.db"), (("--store", f"sqlite:{tmp_path / 'option.db'}"), "option.db")):
        with serving(tmp_path, *options, **named) as (_, url):
            assert take(url)["acquired"] is True
            assert (tmp_path / file).exists()
    assert not (tmp_path / "other.db").exists()


def last_words(process: subprocess.Popen[str]) -> str:
    """What it says until its end."""
    assert process.stderr is not None
    process.send_signal(signal.SIGTERM)
    return process.stderr.read()


def test_a_registry_that_lets_nobody_in_is_told_of(tmp_path: Path) -> None:
    """A name that is misspelled makes a new registry, in which nobody has a key; one with keys is not spoken of."""
    missing, used = tmp_path / "mistyped.db", tmp_path / "used.db"
    with serving(tmp_path, "--store", "memory:", "--registry", str(missing)) as (process, url):
        ready(url)
        assert f"nobody can use it yet: {missing} has no API keys" in last_words(process)
    make = ["keys", "create", "--registry", str(used), "--project", "shop", "--kind", "function", "--name", "app"]
    subprocess.run([sys.executable, "-m", "leased", *make], check=True, capture_output=True, timeout=PATIENCE)
    with serving(tmp_path, "--store", "memory:", "--registry", str(used)) as (process, url):
        ready(url)
        assert "nobody can use it yet" not in last_words(process)


def test_term_ends_it_in_order(tmp_path: Path) -> None:
    """V4: waiters are told to ask elsewhere, the process ends by itself, and what was held is held afterwards."""
    store = f"sqlite:{tmp_path}/locks.db"
    with serving(tmp_path, "--store", store) as (process, url):
        ready(url)
        granted = take(url)
        caller = Caller(port_of(url), "/v1/locks/acquire", {"key": "k", "ttlMs": 60_000, "waitMs": 60_000})
        until(lambda: ask(port_of(url), "/v1/locks/status?key=k").json["waiters"] == 1, what="the waiter")
        process.send_signal(signal.SIGTERM)
        answer = caller.answer()
        assert (answer.status, answer.json["applied"], answer.headers["retry-after"]) == (503, False, "1")
        assert process.wait(PATIENCE) == 0
    with serving(tmp_path, "--store", store) as (process, url):
        ready(url)
        body = {"key": "k", "token": granted["token"]}
        assert ask(port_of(url), "/v1/locks/release", body).json == {"released": True}


def test_an_interrupt_ends_it_without_a_word(tmp_path: Path) -> None:
    """Ctrl-C is how one ends it on a terminal: no traceback, status 0."""
    with serving(tmp_path, "--store", "memory:") as (process, url):
        ready(url)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_killed_without_warning_it_loses_nothing(tmp_path: Path) -> None:
    """A lease that was answered for is there after the process was killed: its commit was durable."""
    store = f"sqlite:{tmp_path}/locks.db"
    with serving(tmp_path, "--store", store) as (process, url):
        ready(url)
        token = take(url)["token"]
        process.kill()
        process.wait(PATIENCE)
    with serving(tmp_path, "--store", store) as (_, url):
        ready(url)
        assert take(url)["acquired"] is False
        assert ask(port_of(url), "/v1/locks/look", {"key": "k", "token": token}).json["held"] is True


def run(directory: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "leased", "serve", *options],
        env={"PATH": os.environ["PATH"], "HOME": str(directory), **environment},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_what_it_cannot_do_is_told_with_the_next_step(tmp_path: Path) -> None:
    """Usage 64, unavailable 69; a stranger's address needs credentials; a port that is taken is told as such."""
    for options, status, words in (
        (("--host", "0.0.0.0"), 64, "--insecure"),
        (("--port", "x"), 64, "port 'x' is no whole number"),
        (("--store", "nonsense"), 64, "has no scheme"),
        (("--store", "sqlite:/nowhere/at/all/x.db", "--tls-key", "k"), 64, "TLS needs a certificate"),
    ):
        done = run(tmp_path, *options)
        assert (done.returncode, words in done.stderr) == (status, True), done.stderr
    assert run(tmp_path, LEASED_SERVE_PROT="1").returncode == 64
    with serving(tmp_path) as (_, url):
        done = run(tmp_path, "--port", str(port_of(url)))
        assert (done.returncode, "in use" in done.stderr) == (69, True), done.stderr


def test_a_url_left_over_from_a_client_is_named(tmp_path: Path) -> None:
    """A service with credentials over another service is refused, and where LEASED_URL named that one it says so."""
    there = "http://127.0.0.1:9"
    done = run(tmp_path, "--registry", "r.db", LEASED_URL=there)
    assert (done.returncode, "LEASED_URL names" in done.stderr) == (64, True), done.stderr
    assert "hint: unset it, or name the store by --store\n" in done.stderr
    done = run(tmp_path, "--registry", "r.db", "--store", there, LEASED_URL=there)
    assert (done.returncode, "LEASED_URL" in done.stderr) == (64, False), done.stderr


def test_tls_and_client_certificates(tmp_path: Path) -> None:
    """§12: https with a certificate; with an authority for clients, none is served without one of its certificates."""
    place = Place(0, 0, tmp_path)
    certificates.write(place)
    authority, certificate, key = (
        str(file(place)) for file in (certificates.authority_file, certificates.certificate_file, certificates.key_file)
    )
    options = ("--tls-certificate", certificate, "--tls-key", key)
    trusting = ssl.create_default_context(cafile=authority)
    with serving(tmp_path, "--store", "memory:", *options) as (_, url):
        assert url.startswith("https://127.0.0.1:")
        assert status_of(url, trusting) == {"status": "ok"}
        assert refuses(url, ssl.create_default_context())
    with serving(tmp_path, "--store", "memory:", *options, "--tls-client-authority", authority) as (_, url):
        assert refuses(url, trusting)
        trusting.load_cert_chain(certificate, key)
        assert status_of(url, trusting) == {"status": "ok"}


def test_a_certificate_that_cannot_be_used_is_told_before_anything_is_served(tmp_path: Path) -> None:
    """§12: without its key, or missing, a certificate is told as a mistake, with the next step."""
    place = Place(0, 0, tmp_path)
    certificates.write(place)
    for certificate in (str(certificates.certificate_file(place)), "nowhere.pem"):
        done = run(tmp_path, "--store", "memory:", "--port", "0", "--tls-certificate", certificate)
        assert done.returncode == 64, done.stderr
        assert f"{certificate} cannot be used as a certificate" in done.stderr
        assert "--tls-key" in done.stderr


def test_what_others_could_read_on_the_way_is_said(tmp_path: Path) -> None:
    """§12: secure defaults or a loud warning: an address of the network without TLS is warned of, loopback is not."""
    options = ("--store", "memory:", "--insecure", "--host")
    for host, warned in (("0.0.0.0", True), ("127.0.0.1", False)):
        with serving(tmp_path, *options, host) as (process, _):
            assert process.stderr is not None
            assert "nobody is asked" in process.stderr.readline()
            if warned:
                assert "there is no TLS" in process.stderr.readline()
            process.send_signal(signal.SIGTERM)
            assert "TLS" not in process.stderr.read()


def status_of(url: str, trusting: ssl.SSLContext) -> Any:
    with urllib.request.urlopen(f"{url}/healthz", context=trusting, timeout=PATIENCE) as answer:
        return json.load(answer)


def refuses(url: str, trusting: ssl.SSLContext) -> bool:
    try:
        status_of(url, trusting)
    except OSError:
        return True
    return False
