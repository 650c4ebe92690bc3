"""Programs of `examples/`, started as their pages say, and what they print."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.until import until

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


class Program:
    """One run of a program, in a process of its own."""

    def __init__(self, path: Path, *arguments: str, within: Path, number: int) -> None:
        self._out = within / f"{path.stem}-{number}.out"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LEASED_")}
        with self._out.open("w") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", str(path), *arguments],
                cwd=within,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def said(self) -> str:
        """All that it has printed."""
        return self._out.read_text()

    def says(self, text: str) -> None:
        """Return once it has printed this."""

        def heard() -> bool:
            found = text in self.said()
            assert found or self._process.poll() is None, f"it ended without saying {text!r}: {self.said()}"
            return found

        until(heard, what=f"a program says {text!r}", seconds=60)

    def press_enter(self) -> None:
        """As whoever sits before it."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def ends(self) -> tuple[int, str]:
        """Its exit status, and all that it has printed."""
        status = self._process.wait(60)
        return status, self.said()

    def kill(self) -> None:
        """`kill -9`."""
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        """`kill`."""
        self._process.terminate()

    def pause(self) -> None:
        """As Ctrl-Z does, but nothing can be caught."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """As `fg` does."""
        os.kill(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it, if it has not ended."""
        self.kill()
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except BrokenPipeError:  # what was pressed last was never read
                self._process.stdin = None


class Example:
    """The program of one example, on data and locks of this test alone."""

    def __init__(self, stack: ExitStack, path: Path, within: Path) -> None:
        self.within = within
        self._stack = stack
        self._path = path
        self._started = 0

    def start(self, *arguments: str) -> Program:
        """Start it, and go on."""
        self._started += 1
        program = Program(self._path, *arguments, within=self.within, number=self._started)
        self._stack.callback(program.close)
        return program

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run it to its end."""
        return self.start(*arguments).ends()

    def until_it_says(self, text: str, *arguments: str) -> str:
        """Start it again and again, as a schedule does, until it says this."""
        said = [""]

        def heard() -> bool:
            said.append(self.run(*arguments)[1])
            return text in said[-1]

        until(heard, what=f"a run says {text!r}", seconds=60)
        return said[-1]


@pytest.fixture
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Example]:
    """The example that the test names by its parameter."""
    with ExitStack() as stack:
        yield Example(stack, EXAMPLES / request.param, tmp_path)
