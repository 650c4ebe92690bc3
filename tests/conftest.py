"""Settings every test shares. Fixtures live beside the tests that use them."""

import gc
import os
import signal

from hypothesis import HealthCheck, settings

# Servers are there for every test that asks for one, and are started when the first does.
pytest_plugins = ["tests.servers.fixtures"]

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("explore", parent=settings.get_profile("ci"), derandomize=False, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# A test run that was started in the background inherits ignored signals, and every program it starts would as well.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """What is there before the first test stays to the end: no collection of garbage has to look at it again.

    Without this each one takes some 0.1 s, and tests that collect after every one of hundreds of steps take minutes.
    """
    gc.collect()
    gc.freeze()
