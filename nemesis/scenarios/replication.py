"""What is done to a Valkey and its replica: cut one off from the other, promote it, and let the old one follow."""

from __future__ import annotations

from nemesis.stage import wait_until
from tests.servers.process import Server
from tests.servers.valkey import client_of

_WRONG = "nobody-knows-this"


def cut_off(replica: Server, *, primary: Server) -> None:
    """Let the replica learn nothing more; it tries to connect again in vain."""
    with client_of(replica.place) as asked, client_of(primary.place) as asking:
        asked.config_set("masterauth", _WRONG)
        asking.execute_command("CLIENT", "KILL", "TYPE", "replica")
        wait_until("the end of replication", lambda: not linked(replica))


def catch_up(replica: Server, *, primary: Server) -> None:
    """Wait until the replica has all that the primary has now."""
    with client_of(primary.place) as client:
        wanted = int(client.info("replication")["master_repl_offset"])

    def met() -> bool:
        with client_of(replica.place) as client:
            return int(client.info("replication")["slave_repl_offset"]) >= wanted

    wait_until("a replica that has everything", met)


def promote(replica: Server) -> None:
    """Make it a primary, with what it has."""
    with client_of(replica.place) as client:
        client.execute_command("REPLICAOF", "NO", "ONE")


def follow(server: Server, primary: Server) -> None:
    """Make a server the replica of another one, whatever it was; it forgets what it has."""
    with client_of(server.place) as client:
        client.execute_command("REPLICAOF", primary.host, primary.port)


def mend(server: Server) -> None:
    """Let it reach its primary again, once it has one."""
    with client_of(server.place) as client:
        client.config_set("masterauth", "")


def join(server: Server) -> None:
    """Let a replica reach its primary again, and wait until it has what that has."""
    mend(server)
    wait_until("replication", lambda: is_replica(server) and linked(server))


def is_replica(server: Server) -> bool:
    """Whether it follows another one."""
    with client_of(server.place) as client:
        return bool(client.info("replication")["role"] == "slave")


def linked(server: Server) -> bool:
    """Whether a replica reaches its primary."""
    with client_of(server.place) as client:
        return bool(client.info("replication").get("master_link_status") == "up")
