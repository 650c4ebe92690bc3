"""One Valkey from its wheel, or one Redis from Debian. It knows nothing of clusters and sentinels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import redis

from tests.servers import certificates
from tests.servers.found import redis_program, valkey_program
from tests.servers.moving_clock import MovingClock
from tests.servers.process import Place, Recipe, Server, no_environment, prepare_nothing

Program = Literal["valkey", "redis"]


def start(
    program: Program = "valkey",
    *,
    settings: Mapping[str, str] | None = None,
    password: str | None = None,
    users: Sequence[str] = (),
    replica_of: Server | None = None,
    tls: bool = False,
    clock: MovingClock | None = None,
) -> Server:
    """A running server that keeps nothing on disk, unless the settings (as in its configuration file) say so.

    `users` are lines of the access list, such as `"worker on >secret ~leased:* +@all"`; the user `default` stays. A
    replica is ready once it has what the other has. With TLS it listens for nothing else, and the URL names the
    authority; the Valkey from the wheel was built without. It also listens on the socket that `socket_of` names.
    """
    if clock is not None and program == "redis":
        raise ValueError("Debian's Redis hangs with a clock that moves; take Valkey")
    lines = [f"{name} {value}" for name, value in (settings or {}).items()]
    lines += [f"user {line}" for line in users]
    if password is not None:
        lines += [f'requirepass "{password}"', f'masterauth "{password}"']
    if replica_of is not None:
        lines.append(f"replicaof {replica_of.host} {replica_of.port}")
    return Server(recipe(program, lines=lines, password=password, tls=tls, clock=clock))


def append_only(fsync: Literal["always", "everysec", "no"] = "always") -> dict[str, str]:
    """Settings under which the data survives a restart; with "always" also a kill at any moment."""
    return {"appendonly": "yes", "appendfsync": fsync}


def socket_of(server: Server) -> Path:
    """The Unix socket on which this server listens as well."""
    return _socket(server.place)


def client_of(place: Place, *, password: str | None = None, tls: bool = False) -> redis.Redis:
    """A client that waits five seconds at most and tries nothing twice."""
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    return redis.Redis(
        place.host,
        place.port,
        password=password,
        socket_timeout=5,
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
        ssl=tls,
        ssl_ca_certs=str(certificates.authority_file(place)) if tls else None,
    )


def recipe(
    program: Program,
    *,
    lines: Sequence[str],
    password: str | None = None,
    tls: bool = False,
    clock: MovingClock | None = None,
    role: Literal["server", "node", "sentinel"] = "server",
) -> Recipe:
    """How to run one with these lines in its configuration file."""
    executable = redis_program() if program == "redis" else valkey_program()

    def command(place: Place) -> list[str]:
        configuration = place.data / "server.conf"
        if not configuration.exists():  # else what the server has written into it since would be lost
            common = _listening(place, tls=tls) + ([] if role == "sentinel" else _COMMON)
            if role == "node":
                common += ["cluster-enabled yes", f"cluster-port {place.second_port}"]
            configuration.write_text("\n".join([*common, *lines]) + "\n")
        return [str(executable), str(configuration), *(["--sentinel"] if role == "sentinel" else [])]

    def url(place: Place) -> str:
        login = f":{quote(password, safe='')}@" if password is not None else ""
        if tls:
            return f"rediss://{login}{place.host}:{place.port}/0?ssl_ca_certs={certificates.authority_file(place)}"
        return f"{program}://{login}{place.host}:{place.port}/0"

    def answers(place: Place, pid: int) -> bool:
        with client_of(place, password=password, tls=tls) as client:
            try:
                found = client.info()
            except redis.RedisError:
                return False
        return bool(found["process_id"] == pid and found.get("master_link_status", "up") == "up")

    def wall_clock(place: Place) -> float:
        with client_of(place, password=password, tls=tls) as client:
            seconds, microseconds = client.time()
        return float(seconds + microseconds / 1_000_000)

    return Recipe(
        program,
        command=command,
        url=url,
        answers=answers,
        wall_clock=wall_clock,
        prepare=certificates.write if tls else prepare_nothing,
        environment=clock.environment if clock else no_environment,
    )


_COMMON = ['save ""', "appendonly no", "enable-debug-command yes", "repl-diskless-sync-delay 0"]


def _listening(place: Place, *, tls: bool) -> list[str]:
    lines = [
        f"bind {place.host}",
        f"port {0 if tls else place.port}",
        f"unixsocket {_socket(place)}",
        f"dir {place.data}",
        "daemonize no",
    ]
    if tls:
        lines += [
            f"tls-port {place.port}",
            f"tls-ca-cert-file {certificates.authority_file(place)}",
            f"tls-cert-file {certificates.certificate_file(place)}",
            f"tls-key-file {certificates.key_file(place)}",
            "tls-auth-clients no",
        ]
    return lines


def _socket(place: Place) -> Path:
    return place.directory / "socket"
