"""One Valkey from its wheel, or one Redis from Debian. It knows nothing of clusters and sentinels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from tests.servers.found import redis_program, valkey_program
from tests.servers.process import Place, Recipe, Server

Program = Literal["valkey", "redis"]


def start(
    program: Program = "valkey",
    *,
    settings: Mapping[str, str] | None = None,
    password: str | None = None,
    users: Sequence[str] = (),
) -> Server:
    """A running server that keeps nothing on disk, unless the settings (as in its configuration file) say so.

    `users` are lines of the access list, such as `"worker on >secret ~leased:* +@all"`; the user `default` stays.
    """
    lines = [f"{name} {value}" for name, value in (settings or {}).items()]
    lines += [f"user {line}" for line in users]
    if password is not None:
        lines += [f"requirepass {password}", f"masterauth {password}"]
    return Server(_recipe(program, lines=lines, password=password))


def append_only(fsync: Literal["always", "everysec", "no"] = "always") -> dict[str, str]:
    """Settings under which the data survives a restart; with "always" also a kill at any moment."""
    return {"appendonly": "yes", "appendfsync": fsync}


def _recipe(program: Program, *, lines: Sequence[str], password: str | None) -> Recipe:
    executable = redis_program() if program == "redis" else valkey_program()

    def command(place: Place) -> list[str]:
        configuration = place.directory / "server.conf"
        _write(configuration, [*_common_lines(place), *lines])
        return [str(executable), str(configuration)]

    def url(place: Place) -> str:
        login = f":{quote(password, safe='')}@" if password is not None else ""
        return f"{program}://{login}{place.host}:{place.port}/0"

    def answers(place: Place, pid: int) -> bool:
        from redis import Redis, RedisError

        client = Redis(place.host, place.port, password=password, socket_timeout=5)
        try:
            return bool(client.info("server")["process_id"] == pid)
        except RedisError:
            return False
        finally:
            client.close()

    return Recipe(program, command=command, url=url, answers=answers)


def _common_lines(place: Place) -> list[str]:
    return [
        f"bind {place.host}",
        f"port {place.port}",
        f"dir {place.data}",
        'save ""',
        "appendonly no",
        "daemonize no",
        "enable-debug-command yes",
    ]


def _write(path: Path, lines: Sequence[str]) -> None:
    # The server may write into its own configuration (sentinels do), so that only the first start makes it.
    if not path.exists():
        path.write_text("\n".join(lines) + "\n")
