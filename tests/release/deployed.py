"""Reads what is in `deploy/`: instructions of the Dockerfile, YAML documents, sections of a unit. It judges nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


class _Strict(yaml.SafeLoader):  # type: ignore[misc]
    """Refuses what YAML forbids and its reader lets pass: one name twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names = [self.construct_object(name, deep=True) for name, _ in node.value]
        assert len(names) == len(set(map(str, names))), f"{node.start_mark}: one name twice"
        return super().construct_mapping(node, deep=deep)


def documents(name: str) -> list[Any]:
    """All documents of a YAML file."""
    return list(yaml.load_all((DEPLOY / name).read_text(), Loader=_Strict))


def kind(name: str) -> Any:
    """The one object of this kind in the Kubernetes example."""
    (found,) = [one for one in documents("kubernetes.yaml") if one["kind"] == name]
    return found


def instructions() -> list[tuple[str, str]]:
    """Instruction and arguments, in order, of the Dockerfile."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines if line.strip())]


def image_environment() -> dict[str, str]:
    """Variables of the image."""
    found: dict[str, str] = {}
    for word, rest in instructions():
        if word == "ENV":
            found |= dict(pair.split("=", 1) for pair in rest.split())
    return found


def healthcheck() -> list[str]:
    """The command of the image's health check."""
    (text,) = [rest for word, rest in instructions() if word == "HEALTHCHECK"]
    return list(json.loads(text.partition("CMD ")[2]))


def unit() -> dict[str, list[tuple[str, str]]]:
    """Section to its settings, in order, of the systemd unit."""
    found: dict[str, list[tuple[str, str]]] = {}
    section = ""
    for line in (DEPLOY / "leased.service").read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(section, []).append((name, value))
    return found


def values(section: str, name: str) -> list[str]:
    """All values of a setting of the unit."""
    return [value for known, value in unit()[section] if known == name]


def pod_environment(**secrets: str) -> dict[str, str]:
    """Variables of the service's container, with what the secret's keys hold."""
    found = {}
    for one in container()["env"]:
        source = one.get("valueFrom")
        found[one["name"]] = (
            one["value"] if source is None else secrets[source["secretKeyRef"]["key"].replace("-", "_")]
        )
    return found


def pod() -> Any:
    """The pod of the Deployment."""
    return kind("Deployment")["spec"]["template"]["spec"]


def container() -> Any:
    """The container of the service."""
    (found,) = pod()["containers"]
    return found


def paths_in(text: str) -> Iterator[str]:
    """Paths of this project that a text names."""
    yield from re.findall(r"\b(?:docs|deploy|scripts)/[\w./-]*\w", text)
