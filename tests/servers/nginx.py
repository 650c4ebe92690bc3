"""nginx from Debian in front of lock services, as people put it there. It keeps nothing."""

from __future__ import annotations

import http.client
import signal
import time
from collections.abc import Sequence

from tests.servers.accounts import account_for
from tests.servers.found import nginx_program
from tests.servers.process import Place, Recipe, Server

PATIENCE = 5.0
RETRIES = "error timeout http_502 http_503"
"""When nginx asks the next service with the same request: not if the first one may have done something already."""

REPEATS = f"{RETRIES} non_idempotent"
"""The same, whether or not the first one may have done something."""

_CONFIGURATION = """
daemon off;
worker_processes 1;
pid {data}/pid;
error_log stderr warn;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_body_temp_path {data}/body;
    proxy_temp_path {data}/proxy;
    fastcgi_temp_path {data}/fastcgi;
    uwsgi_temp_path {data}/uwsgi;
    scgi_temp_path {data}/scgi;
    upstream service {{
        {upstreams}
        keepalive 32;
    }}
    server {{
        listen {host}:{port} backlog=4096;
        location = /nginx {{ return 200 "{data}"; }}
        location / {{
            proxy_pass http://service;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host {host};
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_connect_timeout 2s;
            proxy_read_timeout {idle_limit:.0f}ms;
            proxy_send_timeout {idle_limit:.0f}ms;
            proxy_next_upstream {retries};
        }}
    }}
}}
"""


def start(*services: Server, idle_limit: float = 30.0, retries: str = RETRIES) -> Server:
    """A running nginx that shares requests out among the services, and cuts what is silent for `idle_limit` seconds."""
    program = nginx_program()

    def prepare(place: Place) -> None:
        text = _CONFIGURATION.format(
            data=place.data,
            host=place.host,
            port=place.port,
            upstreams=_upstreams(services),
            idle_limit=idle_limit * 1000.0,
            retries=retries,
        )
        (place.data / "nginx.conf").write_text(text)

    def answers(place: Place, _pid: int) -> bool:
        connection = http.client.HTTPConnection(place.host, place.port, timeout=PATIENCE)
        try:
            connection.request("GET", "/nginx")
            return connection.getresponse().read() == str(place.data).encode()
        except OSError:
            return False
        finally:
            connection.close()

    return Server(
        Recipe(
            "nginx",
            command=lambda place: [str(program), "-e", "stderr", "-c", str(place.data / "nginx.conf")],
            url=lambda place: f"http://{place.host}:{place.port}",
            answers=answers,
            wall_clock=lambda _: time.time(),
            prepare=prepare,
            account=account_for("www-data"),
            close_signal=signal.SIGTERM,  # a master that is killed leaves its workers behind
        )
    )


def _upstreams(services: Sequence[Server]) -> str:
    """One that is away is asked again at the next request: it comes back soon."""
    return "\n        ".join(f"server {one.host}:{one.port} max_fails=0;" for one in services)
