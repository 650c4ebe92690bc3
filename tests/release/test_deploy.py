"""The files in `deploy/` fit the program: every command, extra, setting, path and route in them exists."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest
from psycopg import sql

import leased
from leased.cli.parser import build
from leased.server.settings import PREFIX, read_settings
from tests.release.deployed import (
    DEPLOY,
    ROOT,
    container,
    documents,
    healthcheck,
    image_environment,
    instructions,
    kind,
    paths_in,
    pod,
    pod_environment,
    unit,
    values,
)
from tests.server.talking import JSON, ask, until
from tests.servers.process import Server

IMAGE_USER = 10001
DRAIN = 10
URL = "postgresql://leased:secret@db.example.com/leased"
FILES = ["Dockerfile", "compose.yaml", "kubernetes.yaml", "leased.service"]


def settings_of(environment: Mapping[str, str]) -> Mapping[str, str]:
    """The settings of the service among these variables, which it must know and accept together."""
    found = {name: value for name, value in environment.items() if name.startswith(PREFIX)}
    read_settings(found)
    return found


@pytest.mark.parametrize("name", FILES)
def test_paths_and_commands_exist(name: str) -> None:
    """What a comment tells one to read or to type can be read and typed."""
    text = (DEPLOY / name).read_text()
    for path in paths_in(text):
        assert (ROOT / path).exists() or path == "deploy/.env", path
    for words in re.findall(r"run --rm locks (.+)$", text, re.MULTILINE):
        build().parse_args(words.split())


def test_the_image_is_built_of_what_there_is() -> None:
    """Extras are those of the package, what is copied is let through, and one version of Python is in both stages."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    arguments = dict(rest.split("=", 1) for word, rest in instructions() if word == "ARG")
    assert set(arguments["EXTRAS"].split(",")) <= extras.keys()
    assert {"server", "postgres"} <= set(arguments["EXTRAS"].split(","))
    assert {rest.split(" AS ")[0] for word, rest in instructions() if word == "FROM"} == {"python:${PYTHON}-slim"}
    python = f"Programming Language :: Python :: {arguments['PYTHON']}"
    assert python in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    copied = [rest for word, rest in instructions() if word == "COPY" and not rest.startswith("--from=build")]
    assert copied == ["dist/*.whl /tmp/"]
    assert (DEPLOY / "Dockerfile.dockerignore").read_text().split() == ["*", "!dist/*.whl"]


def test_the_image_runs_as_nobody_and_serves_only_with_credentials() -> None:
    """It has a user of its own, ends by TERM, and refuses to serve others without a registry."""
    found = dict(instructions())
    assert found["USER"] == f"{IMAGE_USER}:{IMAGE_USER}"
    assert found["STOPSIGNAL"] == "SIGTERM"
    assert (found["ENTRYPOINT"], found["CMD"]) == ('["leased"]', '["serve"]')
    assert found["EXPOSE"] == image_environment()["LEASED_SERVE_PORT"]
    with pytest.raises(ValueError, match="without credentials the service listens on a loopback address only"):
        settings_of(image_environment())
    assert settings_of({**image_environment(), "LEASED_SERVE_REGISTRY": "registry.db"})


def test_the_health_check_of_the_image_works(service_server: Server) -> None:
    """It succeeds with a service that runs, and fails without one."""
    _, *arguments = healthcheck()
    for port, status in ((str(service_server.port), 0), ("1", 1)):
        environment = {"PATH": os.environ["PATH"], "LEASED_SERVE_PORT": port}
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, timeout=20, check=False
        )
        assert done.returncode == status


def test_the_compose_example_fits_together() -> None:
    """Its services name each other, its volumes exist, it gives more time to end than the service takes."""
    (compose,) = documents("compose.yaml")
    locks, database = compose["services"]["locks"], compose["services"]["database"]
    assert (DEPLOY / locks["build"]["context"] / locks["build"]["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    assert build().parse_args(locks["command"]).command == "serve"
    environment = {
        name: re.sub(r"\$\{[A-Z_]+:\?[^}]*\}", "secret", value) for name, value in locks["environment"].items()
    }
    settings = settings_of({**image_environment(), **environment})
    for name in ("STORE", "REGISTRY"):
        user, host = re.findall(r"^postgresql://(\w+):secret@(\w+)/", settings[PREFIX + name])[0]
        assert (user, host in compose["services"]) == (database["environment"]["POSTGRES_USER"], True)
        assert settings[PREFIX + name].endswith(f"/{database['environment']['POSTGRES_DB']}")
    key = settings[f"{PREFIX}REGISTRY_KEY"]
    mounted = dict(volume.split(":", 1) for volume in [*locks["volumes"], *database["volumes"]])
    assert mounted.keys() == compose["volumes"].keys()
    assert key.startswith(f"{mounted['keys']}/")
    assert set(locks["depends_on"]) <= compose["services"].keys()
    assert "healthcheck" in database
    assert int(locks["stop_grace_period"].removesuffix("s")) > DRAIN
    (port,) = locks["ports"]
    assert port == f"127.0.0.1:8370:{image_environment()['LEASED_SERVE_PORT']}"


def test_the_kubernetes_example_fits_together() -> None:
    """Selectors find the pods, ports and volumes are those that are named, and a replica may go at any time."""
    service, budget, deployment = kind("Service"), kind("PodDisruptionBudget"), kind("Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selectors = [
        service["spec"]["selector"],
        *(one["spec"]["selector"]["matchLabels"] for one in (budget, deployment)),
        *(one["labelSelector"]["matchLabels"] for one in pod()["topologySpreadConstraints"]),
    ]
    assert selectors == [labels] * 4
    assert budget["spec"]["minAvailable"] < deployment["spec"]["replicas"]
    assert service["spec"]["ports"][0]["targetPort"] == container()["ports"][0]["name"]
    assert str(container()["ports"][0]["containerPort"]) == pod_environment(database_url=URL)["LEASED_SERVE_PORT"]
    volumes = {one["name"] for one in pod()["volumes"]}
    used = {mount["name"] for one in [*pod()["initContainers"], container()] for mount in one["volumeMounts"]}
    assert used == volumes
    images = {one["image"] for one in [*pod()["initContainers"], container()]}
    assert images == {f"registry.example.com/leased:{leased.__version__}"}
    wait = int(container()["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod()["terminationGracePeriodSeconds"] > wait + DRAIN


def test_the_kubernetes_example_is_confined() -> None:
    """No root, no capabilities, no writable image, no token of the cluster; the user of the image."""
    context = pod()["securityContext"]
    assert context["runAsNonRoot"] is True
    assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (IMAGE_USER,) * 3
    assert pod()["automountServiceAccountToken"] is pod()["enableServiceLinks"] is False
    for one in [*pod()["initContainers"], container()]:
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert one["resources"]["limits"]["memory"]


def test_no_secret_is_written_down() -> None:
    """URLs with passwords come from a secret, or from a variable that has no default."""
    for one in container()["env"]:
        assert ("valueFrom" in one) is (one["name"] in {"LEASED_SERVE_STORE", "LEASED_SERVE_REGISTRY"})
    assert {one["kind"] for one in documents("kubernetes.yaml")} == {"Service", "PodDisruptionBudget", "Deployment"}
    (compose,) = documents("compose.yaml")
    secrets = [
        value
        for one in compose["services"].values()
        for name, value in one["environment"].items()
        if "PASSWORD" in name or "://" in value
    ]
    assert len(secrets) == 3
    assert all("${DATABASE_PASSWORD:?" in value for value in secrets)


def test_the_kubernetes_example_serves(postgres_server: Server, tmp_path: Path) -> None:
    """Two replicas with the settings of the manifest, its probes, its way of copying the key, and the first API key as
    the page makes it; a lock of one is seen by the other."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("LEASED_")},
        **pod_environment(database_url=new_database(postgres_server)),
        "LEASED_SERVE_REGISTRY_KEY": copied_key(tmp_path),
        "LEASED_SERVE_PORT": "0",
        "LEASED_SERVE_HOST": "127.0.0.1",
        "HOME": str(tmp_path),
    }
    create = ["keys", "create", "--name", "olga", "--role", "owner", "--json"]
    created = subprocess.run(
        [sys.executable, "-m", "leased", *create], env=environment, capture_output=True, timeout=60, check=True
    )
    headers = {**JSON, "Authorization": f"Bearer {json.loads(created.stdout)['key']}"}
    with replica(environment) as first, replica(environment) as second:
        for _, port in (first, second):
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                path = container()[probe]["httpGet"]["path"]
                until(lambda port=port, path=path: ask(port, path).status == 200, what=f"{probe} at {path}")  # type: ignore[misc]
        taken = ask(first[1], "/v1/locks/acquire", {"key": "job", "ttlMs": 60_000}, headers=headers).json
        assert taken["acquired"] is True
        seen = ask(second[1], "/v1/locks/status?key=job", headers=headers).json
        assert (seen["held"], seen["fencingToken"]) == (True, taken["fencingToken"])
        for process, _ in (first, second):
            process.send_signal(signal.SIGTERM)
            assert process.wait(DRAIN + 5) == 0


def new_database(server: Server) -> str:
    """The URL of a database that nobody has used."""
    name = f"deployed_{os.urandom(6).hex()}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return f"{server.url.rpartition('/')[0]}/{name}"


def copied_key(directory: Path) -> str:
    """The key file as the manifest's first container makes it from a secret that its group can read."""
    subprocess.run(copying(directory), check=True, timeout=20)
    return str(directory / "run" / "registry.key")


def copying(directory: Path) -> list[str]:
    """The command of the manifest's first container, with its two volumes in this directory."""
    secret, run = directory / "secret", directory / "run"
    secret.mkdir()
    run.mkdir()
    (secret / "registry.key").write_bytes(os.urandom(32))
    (secret / "registry.key").chmod(0o440)
    (first,) = pod()["initContainers"]
    return [part.replace("/secret/", f"{secret}/").replace("/run/leased/", f"{run}/") for part in first["command"]]


def test_the_key_is_copied_again_into_a_pod_that_goes_on() -> None:
    """Kubernetes runs the first container anew with the sandbox of a pod: the key of before is there, not writable."""
    with TemporaryDirectory() as name:  # not `tmp_path`, which is closed to other users
        directory = Path(name)
        command, copy = copying(directory), directory / "run" / "registry.key"
        who: dict[str, Any] = {}
        if os.geteuid() == 0:
            who = {"user": IMAGE_USER, "group": IMAGE_USER, "extra_groups": []}
            directory.chmod(0o711)
            for path in directory.rglob("*"):
                os.chown(path, IMAGE_USER, IMAGE_USER)
        for _ in range(2):
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False, **who)
            assert (done.returncode, done.stderr) == (0, "")
            assert copy.read_bytes() == (directory / "secret" / "registry.key").read_bytes()
            assert stat.S_IMODE(copy.stat().st_mode) == 0o400


@contextmanager
def replica(environment: Mapping[str, str]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process of the service as the manifest starts it, and its port."""
    command = [sys.executable, "-m", "leased", *container()["args"]]
    process = subprocess.Popen(command, env=dict(environment), stderr=subprocess.PIPE, text=True)
    try:
        yield process, port_of(process)
    finally:
        process.kill()
        process.communicate()


def port_of(process: subprocess.Popen[str]) -> int:
    """Where a service says that it serves."""
    assert process.stderr is not None
    said = process.stderr.readline()
    found = re.search(r"serves http://127\.0\.0\.1:(\d+) ", said)
    assert found is not None, said
    return int(found[1])


def test_the_unit_runs_the_service_with_settings_that_work() -> None:
    """Its command and settings are known; its files are where its user may write; it has time to end in order."""
    (start,) = values("Service", "ExecStart")
    program, *arguments = start.split()
    assert Path(program).name == "leased"
    assert build().parse_args(arguments).command == "serve"
    settings = settings_of(dict(one.split("=", 1) for one in values("Service", "Environment")))
    state = f"/var/lib/{values('Service', 'StateDirectory')[0]}/"
    assert settings["LEASED_SERVE_STORE"].startswith(f"sqlite:{state}")
    assert settings["LEASED_SERVE_REGISTRY"].startswith(state)
    assert int(values("Service", "TimeoutStopSec")[0]) > DRAIN
    assert "pid" not in values("Service", "ProcSubset"), "the boot id is in /proc/sys"
    single = [name for name, _ in unit()["Service"]]
    assert {name for name in single if single.count(name) > 1} == {"Environment", "SystemCallFilter"}


@pytest.mark.skipif(  # never in CI: there it has to be installed, or the test fails
    shutil.which("systemd-analyze") is None and os.environ.get("CI") != "true",
    reason="systemd is not installed: apt-get install systemd",
)
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """It knows every setting, finds the manual page, and calls the exposure of the service low."""
    program = tmp_path / "leased"
    program.symlink_to("/bin/true")
    (tmp_path / "man1").mkdir()
    shutil.copy(ROOT / "man" / "leased.1", tmp_path / "man1")
    copy = tmp_path / "leased.service"
    copy.write_text((DEPLOY / "leased.service").read_text().replace("/opt/leased/bin/leased", str(program)))
    environment = {"PATH": os.environ["PATH"], "MANPATH": str(tmp_path), "SYSTEMD_LOG_LEVEL": "warning"}
    for arguments in (["verify"], ["security", "--offline=yes", "--threshold=20"]):
        done = subprocess.run(
            ["systemd-analyze", *arguments, str(copy)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "leased.service:" not in done.stderr
