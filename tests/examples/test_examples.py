"""Every example shows its point: two programs run, one is killed in the middle, one is paused beyond its lease."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest
import redis

import leased
from tests.examples.conftest import EXAMPLES, ROOT, Example
from tests.servers.process import Server

SHORT = ("--ttl", "1s")
BUSY, LOST = 75, 76


def of(program: str) -> pytest.MarkDecorator:
    """The example that a test is about."""
    return pytest.mark.parametrize("example", [program], indirect=True, ids=[program.partition("/")[0]])


def rows(example: Example, name: str, *, query: str) -> list[tuple[Any, ...]]:
    """What an example has written."""
    with closing(sqlite3.connect(example.within / name)) as database:
        return database.execute(query).fetchall()


@of("nightly_report/report.py")
def test_a_report_is_written_by_one_machine(example: Example) -> None:
    """While one machine is at it another one is skipped; and after it, for as long as clocks may be apart."""
    first = example.start("--by-hand")
    first.says("adds up")
    assert example.run() == (0, "skipped: it runs elsewhere, or has just run\n")
    first.press_enter()
    status, said = first.ends()
    assert (status, "written under fencing token" in said) == (0, True)
    assert example.run() == (0, "skipped: it runs elsewhere, or has just run\n")
    assert rows(example, "reports.db", query="SELECT total FROM report") == [(245,)]


@of("nightly_report/report.py")
def test_a_report_whose_machine_dies_is_written_by_the_next(example: Example) -> None:
    """A kill in the middle: nothing is written by it, and the key is free after the ttl."""
    terms = (*SHORT, "--hold-at-least", "0")
    first = example.start("--by-hand", *terms)
    first.says("adds up")
    first.kill()
    assert rows(example, "reports.db", query="SELECT total FROM report") == [(None,)]
    example.until_it_says("written under fencing token", *terms)
    assert rows(example, "reports.db", query="SELECT total FROM report") == [(245,)]


@of("nightly_report/report.py")
def test_a_report_of_a_paused_machine_is_refused(example: Example) -> None:
    """F1: paused beyond its lease, it does not overwrite what was written meanwhile."""
    terms = (*SHORT, "--hold-at-least", "0")
    first = example.start("--by-hand", *terms)
    first.says("adds up")
    first.pause()
    example.until_it_says("written under fencing token", *terms)
    written = rows(example, "reports.db", query="SELECT * FROM report")
    first.go_on()
    first.press_enter()
    status, said = first.ends()
    assert (status, "refused: " in said) == (1, True), said
    assert rows(example, "reports.db", query="SELECT * FROM report") == written


@of("charge_once/charge.py")
def test_two_charge_an_invoice_and_one_does(example: Example) -> None:
    """The second one waits, looks again and finds it done; another invoice is not held up."""
    first = example.start("42", "--by-hand")
    first.says("the provider has charged")
    second = example.start("42")
    assert "invoice 43 charged" in example.run("43")[1]
    first.press_enter()
    assert "invoice 42 charged under fencing token" in first.ends()[1]
    assert second.ends() == (0, "invoice 42 was charged before\n")
    assert rows(example, "charges.db", query="SELECT count(*) FROM charge") == [(2,)]


@of("charge_once/charge.py")
def test_a_kill_between_the_charge_and_its_record(example: Example) -> None:
    """Whoever takes over asks the provider again, by the same idempotency key: one charge there, one record here."""
    first = example.start("42", "--by-hand", *SHORT)
    first.says("the provider has charged")
    first.kill()
    assert rows(example, "charges.db", query="SELECT count(*) FROM charge") == [(0,)]
    status, said = example.run("42", *SHORT)
    assert (status, "invoice 42 charged under fencing token" in said) == (0, True), said
    for table in ("charge", "provider"):
        assert rows(example, "charges.db", query=f"SELECT count(*) FROM {table}") == [(1,)]


@of("charge_once/charge.py")
def test_a_paused_charge_is_not_written_twice(example: Example) -> None:
    """Paused beyond its lease, the first one finds that another one has charged, and says so."""
    first = example.start("42", "--by-hand", *SHORT)
    first.says("the provider has charged")
    first.pause()
    assert "invoice 42 charged under fencing token" in example.run("42", *SHORT)[1]
    first.go_on()
    first.press_enter()
    status, said = first.ends()
    assert (status, "invoice 42 was charged by another one meanwhile" in said) == (0, True), said
    for table in ("charge", "provider"):
        assert rows(example, "charges.db", query=f"SELECT count(*) FROM {table}") == [(1,)]


@of("charge_once/charge.py")
def test_a_charge_whose_lease_ran_out_is_told_as_its_own(example: Example) -> None:
    """Paused beyond its lease while nobody else came, it has charged, and does not say that another one has."""
    first = example.start("42", "--by-hand", *SHORT)
    first.says("the provider has charged")
    first.pause()
    with leased.connect(f"sqlite:{example.within / 'locks.db'}") as locks, locks.lock("invoice:42", wait=30):
        pass
    first.go_on()
    first.press_enter()
    status, said = first.ends()
    assert (status, "invoice 42 charged under fencing token" in said) == (0, True), said
    assert "by another one" not in said
    assert "its lease was over before it ended" in said


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
@of("import_per_user/import_user.py")
def test_one_import_per_user(example: Example, kind: str, valkey_server: Server) -> None:
    """One of two for a user is refused with who has it, another user is not held up, and a kill blocks for a ttl."""
    where = f"redis://{valkey_server.host}:{valkey_server.port}/10?leased_namespace=examples"
    store = ("--store", where if kind == "redis" else "sqlite:locks.db")
    first = example.start("ann", "--by-hand", *store, *SHORT)
    first.says("imports ann")
    status, said = example.run("ann", *store, *SHORT)
    assert (status, "'import:ann' is held by import_user.py@" in said) == (BUSY, True), said
    assert "imported bob" in example.run("bob", *store, *SHORT)[1]
    first.kill()
    example.until_it_says("imported ann", "ann", *store, *SHORT)


@of("cache_rebuild/cache.py")
def test_a_cache_is_made_by_one_and_served_by_all(example: Example, valkey_server: Server) -> None:
    """While it is made anew the old list is served; who dies over it is replaced; who was paused is refused."""
    url = f"redis://{valkey_server.host}:{valkey_server.port}/11"
    with closing(redis.Redis.from_url(url)) as client:
        client.flushdb()
        where, old = ("--redis", url, *SHORT), ("--max-age", "0")
        assert "made anew under fencing token" in example.run(*where)[1]
        assert "served the list" in example.run(*where)[1]
        killed = example.start(*where, *old, "--by-hand")
        killed.says("adds up prices")
        assert "served the old list" in example.run(*where, *old)[1]
        killed.kill()
        example.until_it_says("made anew", *where, *old)
        paused = example.start(*where, *old, "--by-hand")
        paused.says("adds up prices")
        paused.pause()
        example.until_it_says("made anew", *where, *old)
        made: Any = client.get("{prices}")
        paused.go_on()
        paused.press_enter()
        status, said = paused.ends()
        assert (status, "refused: " in said) == (1, True), said
        assert client.get("{prices}") == made


@of("cache_rebuild/cache.py")
def test_two_that_find_no_cache_make_it_once(example: Example, valkey_server: Server) -> None:
    """The second one waits, looks again under the lock and serves what the first one made; one that may not wait so
    long has nothing to serve, and says so by its exit status."""
    url = f"redis://{valkey_server.host}:{valkey_server.port}/12"
    with closing(redis.Redis.from_url(url)) as client:
        client.flushdb()
        first = example.start("--redis", url, "--by-hand")
        first.says("adds up prices")
        status, said = example.run("--redis", url, "--wait", "0.1s")
        assert (status, "nothing to serve" in said) == (BUSY, True), said
        second = example.start("--redis", url)
        second.says("finds no list")
        first.press_enter()
        status, said = first.ends()
        token = said.split()[-1]
        assert (status, f"made anew under fencing token {token}" in said) == (0, True), said
        status, said = second.ends()
        assert (status, f"served the list that was made under {token}" in said) == (0, True), said
        assert "adds up prices" not in said


@of("scheduler_leader/leader.py")
def test_a_leader_is_followed_by_the_next(example: Example) -> None:
    """One leads, the other stands by; told to end, the first hands over at once, although its ttl is long; killed, the
    next one leads after its ttl."""
    pace = ("--every", "0.02")
    first = example.start(*pace, "--ttl", "10m")
    first.says("started what was due")
    second = example.start(*pace, *SHORT)
    second.says("stands by")
    first.terminate()
    assert first.ends()[0] == 0
    second.says("started what was due")
    third = example.start(*pace, *SHORT)
    third.says("stands by")
    second.kill()
    third.says("started what was due")
    tokens = [token for (token,) in rows(example, "journal.db", query="SELECT fencing_token FROM journal ORDER BY at")]
    assert tokens == sorted(tokens)
    assert len(set(tokens)) == 3


@of("scheduler_leader/leader.py")
def test_a_paused_leader_starts_nothing(example: Example) -> None:
    """F1: paused between its look at the lease and its write, it is refused, and stands by again."""
    paused = example.start("--by-hand", *SHORT)
    paused.says("leads under")
    paused.pause()
    other = example.start("--every", "0.02", *SHORT)
    other.says("started what was due")
    paused.go_on()
    paused.press_enter()
    paused.says("leads no more: its write was refused")
    other.terminate()
    other.ends()
    assert len(set(rows(example, "journal.db", query="SELECT fencing_token FROM journal"))) == 1


@of("migration_on_deploy/deploy.py")
def test_instances_migrate_once_and_all_serve(example: Example) -> None:
    """The second one waits and finds nothing left to do."""
    first = example.start("--by-hand")
    first.says("applies migration 1")
    second = example.start()
    for number in (1, 2, 3):
        first.says(f"applies migration {number}")
        first.press_enter()
    assert "serves, after 3 migrations of its own, at version 3" in first.ends()[1]
    assert second.ends() == (0, "serves, after 0 migrations of its own, at version 3\n")


@of("migration_on_deploy/deploy.py")
def test_an_instance_that_dies_over_a_migration(example: Example) -> None:
    """A kill after the first one: the next instance goes on with the second."""
    first = example.start("--by-hand", *SHORT)
    first.says("applies migration 1")
    first.press_enter()
    first.says("applies migration 2")
    first.kill()
    status, said = example.run(*SHORT)
    assert (status, "serves, after 2 migrations of its own, at version 3" in said) == (0, True), said


@of("migration_on_deploy/deploy.py")
def test_a_paused_instance_migrates_nothing(example: Example) -> None:
    """F1: another one has migrated meanwhile; the first is refused in its transaction, and does not serve."""
    first = example.start("--by-hand", *SHORT)
    first.says("applies migration 1")
    first.pause()
    assert "serves, after 3 migrations" in example.run(*SHORT)[1]
    first.go_on()
    first.press_enter()
    status, said = first.ends()
    assert (status, "does not serve: its migration was refused" in said) == (LOST, True), said


@of("migration_on_deploy/deploy.py")
def test_an_instance_that_wakes_while_another_one_is_at_it(example: Example) -> None:
    """F1: the guard is raised before the version is read, so that the first one is refused also while the second one
    has written nothing yet: no migration is applied twice."""
    first = example.start("--by-hand", *SHORT)
    first.says("applies migration 1")
    first.pause()
    second = example.start("--by-hand", *SHORT)
    second.says("applies migration 1")
    first.go_on()
    first.press_enter()
    status, said = first.ends()
    assert (status, "does not serve" in said) == (LOST, True), said
    for number in (1, 2, 3):
        second.says(f"applies migration {number}")
        second.press_enter()
    assert "serves, after 3 migrations of its own, at version 3" in second.ends()[1]
    tokens = rows(example, "application.db", query="SELECT count(*), count(DISTINCT fencing_token) FROM migration")
    assert tokens == [(3, 1)]


@of("multi_step/steps.py")
def test_a_run_goes_on_at_once_where_it_stopped(example: Example) -> None:
    """O1: killed after its first step, with minutes of lease left; another run is refused, the same goes on."""
    first = example.start("monday", "--by-hand")
    first.press_enter()
    first.says("begins: work out prices")
    first.kill()
    status, said = example.run("tuesday")
    assert (status, "owner 'run:monday'" in said) == (BUSY, True), said
    status, said = example.run("monday")
    assert status == 0, said
    assert "was finished before: fetch the catalogue" in said
    assert said.endswith("the run is complete\n")
    tokens = [token for (token,) in rows(example, "steps.db", query="SELECT fencing_token FROM finished")]
    assert tokens[0] < tokens[1] == tokens[2]


@of("multi_step/steps.py")
def test_a_run_that_was_only_paused_is_refused(example: Example) -> None:
    """F1, O4: two processes of one run exist; the one that was taken over finishes nothing more."""
    first = example.start("monday", "--by-hand")
    first.says("begins: fetch the catalogue")
    first.pause()
    assert example.run("monday")[0] == 0
    first.go_on()
    first.press_enter()
    status, said = first.ends()
    assert (status, "stops, for the same run goes on elsewhere" in said) == (LOST, True), said
    assert rows(example, "steps.db", query="SELECT count(*) FROM finished") == [(3,)]


@of("multi_step/steps.py")
def test_a_paused_run_that_wakes_in_the_same_step(example: Example) -> None:
    """F1, O4: the guard is raised before it is read what is finished: the one that was taken over is refused also
    while the other one is still at that step: no step is finished twice."""
    first = example.start("monday", "--by-hand")
    first.says("begins: fetch the catalogue")
    first.pause()
    second = example.start("monday", "--by-hand")
    second.says("begins: fetch the catalogue")
    first.go_on()
    first.press_enter()
    status, said = first.ends()
    assert (status, "stops, for the same run goes on elsewhere" in said) == (LOST, True), said
    for step in ("fetch the catalogue", "work out prices", "publish"):
        second.says(f"begins: {step}")
        second.press_enter()
    status, said = second.ends()
    assert (status, said.count("finished: ")) == (0, 3), said
    tokens = rows(example, "steps.db", query="SELECT count(*), count(DISTINCT fencing_token) FROM finished")
    assert tokens == [(3, 1)]


def test_every_example_has_a_page_and_is_tested() -> None:
    """A folder has a README that names its program; the page of examples lists it; a test above runs it."""
    page = (ROOT / "docs" / "how-to" / "examples.md").read_text()
    tests = (ROOT / "tests" / "examples" / "test_examples.py").read_text()
    folders = [path for path in EXAMPLES.iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert len(folders) == 7
    for folder in folders:
        (program,) = folder.glob("*.py")
        assert f"python {program.name}" in (folder / "README.md").read_text()
        assert f"(../../examples/{folder.name}/)" in page
        assert f'"{folder.name}/{program.name}"' in tests
