"""The pytest plugin, used as its users do: in the tests of somebody else."""

import subprocess
import sys

import pytest

import leased
import leased.aio

pytest_plugins = ["pytester"]

PLUGIN = ("-p", "no:leased", "-p", "leased.testing.plugin", "-p", "no:randomly", "-p", "no:xdist", "-W", "error")
"""By name, whether or not the installed package has announced it."""


def test_a_test_gets_a_store_of_its_own_for_both_faces(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside the test, and only there, the default of both faces is one new memory store, whatever LEASED_URL says."""
    monkeypatch.setenv("LEASED_URL", "nonsense:nowhere")
    pytester.makepyfile(
        """
        import asyncio
        import leased, leased.aio, pytest

        @leased.lock("job")
        def job():
            return leased.current_fencing_token()

        @pytest.mark.parametrize("again", [1, 2])
        def test_own_store(leased_memory, again):
            assert leased.get_default() is leased_memory
            assert leased_memory.list() == []
            leased.lock("left behind").acquire().hand_over()
            assert [status.key for status in leased_memory.list()] == ["left behind"]
            assert job() is not None

        def test_both_faces_exclude_each_other(leased_memory, leased_aio_memory):
            async def use():
                assert leased.aio.get_default() is leased_aio_memory
                async with leased.aio.lock("job"):
                    with pytest.raises(leased.LockNotAcquired):
                        job()
            asyncio.run(use())
            assert job() is not None

        def test_without(request):
            with pytest.raises(leased.InvalidRequest):
                leased.get_default()
        """
    )
    pytester.runpytest_inprocess(*PLUGIN).assert_outcomes(passed=4)


def test_leases_run_out_when_the_clock_is_moved(pytester: pytest.Pytester) -> None:
    """`leased_clock.move` ends leases, renewed ones too, and the waits of threads and tasks, without sleeping."""
    pytester.makepyfile(
        """
        import asyncio, threading
        import leased, pytest

        def test_blocking(leased_memory, leased_clock):
            first = leased_memory.lock("import", ttl="30s").acquire()
            leased_clock.move(20)
            assert first.remaining() < 10
            leased_clock.move(10)
            assert first.lost_reason == "expired"
            with leased.lock("import") as second:
                assert second.fencing_token > first.fencing_token
                assert not first.release()

        def test_async(leased_aio_memory, leased_clock):
            async def use():
                first = await leased_aio_memory.lock("import", ttl="30s").acquire()
                leased_clock.move(30)
                assert first.lost
                async with leased_aio_memory.lock("import"):
                    assert not await first.release()
            asyncio.run(use())

        def test_a_block_that_was_stopped_for_too_long(leased_memory, leased_clock):
            with pytest.raises(leased.LockLost):
                with leased.lock("import", ttl="30s"):
                    leased_clock.move(31)

        def wait_until(condition):
            for _ in range(5_000):
                if condition():
                    return
                threading.Event().wait(0.001)
            raise AssertionError("it did not happen")

        def test_a_waiting_thread(leased_memory, leased_clock):
            outcome = []
            def wait():
                try:
                    leased_memory.lock("import", wait="1h").acquire()
                except leased.LockTimeout as error:
                    outcome.append(error)
            held = leased_memory.lock("import", ttl="2h").acquire()
            thread = threading.Thread(target=wait, daemon=True)
            thread.start()
            wait_until(lambda: leased_memory._client().env.lines.waiting("import"))
            leased_clock.move(3_600)
            thread.join(5)
            assert outcome and outcome[0].timeout == 3_600
            held.release()

        def test_a_waiting_task(leased_aio_memory, leased_clock):
            async def use():
                held = await leased_aio_memory.lock("import", ttl="30s").acquire()
                waiting = asyncio.create_task(leased_aio_memory.lock("import", wait="1h").acquire())
                for _ in range(20):
                    await asyncio.sleep(0)
                assert not waiting.done()
                leased_clock.move(31)
                await (await asyncio.wait_for(waiting, 5)).release()
                assert held.lost
            asyncio.run(use())
        """
    )
    pytester.runpytest_inprocess(*PLUGIN).assert_outcomes(passed=5)


def test_every_test_has_it_where_the_ini_file_says_so(pytester: pytest.Pytester) -> None:
    """With `leased_memory = true` no test has to ask, and no two meet."""
    pytester.makeini("[pytest]\nleased_memory = true\n")
    pytester.makepyfile(
        """
        import leased, pytest

        @pytest.mark.parametrize("again", range(3))
        def test_no_fixture_in_sight(again):
            assert leased.get_default().list() == []
            leased.lock("left behind").acquire().hand_over()
        """
    )
    pytester.runpytest_inprocess(*PLUGIN).assert_outcomes(passed=3)


def test_defaults_come_back(pytester: pytest.Pytester) -> None:
    """After a test that failed the process default is what it was."""
    pytester.makepyfile(
        """
        def test_that_fails(leased_memory, leased_aio_memory):
            with leased_memory.lock("import"):
                assert not leased_memory
        """
    )
    with leased.connect("memory:mine") as mine, leased.using_default(mine):
        pytester.runpytest_inprocess(*PLUGIN).assert_outcomes(failed=1)
        assert leased.get_default() is mine


def test_an_unused_plugin_costs_nothing() -> None:
    """Loading the plugin loads neither asyncio, nor Hypothesis, nor the contract suite, nor a store."""
    code = (
        "import sys; import pytest; before = set(sys.modules); import leased.testing.plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "leased.testing.plugin" in loaded
    unwanted = {"asyncio", "hypothesis", "sqlite3", "leased.aio", "leased.stores"}
    assert not unwanted & set(loaded)
    assert [name for name in loaded if name.startswith("leased.testing.")] == ["leased.testing.plugin"]
