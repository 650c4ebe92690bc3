"""A terminal of tmux with a shell in it, for tests: types keys, reads the screen. It judges nothing."""

import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.cli.driving import eventually

READY = "READY"
PATIENCE = 20.0


class Tmux:
    """One window of a tmux server of its own. Its shell has the environment that is given and nothing else."""

    def __init__(self, directory: Path, *, environment: Mapping[str, str], width: int = 100, height: int = 20) -> None:
        self._directory = directory
        self._socket = directory / "tmux"
        given = [f"{name}={value}" for name, value in {**environment, "PS1": f"{READY}-$? "}.items() if name != "TERM"]
        shell = shlex.join(["env", "-i", "TERM=tmux-256color", *given, "bash", "--norc", "--noprofile", "-i"])
        size = ["-x", str(width), "-y", str(height)]
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, "-c", str(directory), shell)
        self.see(rf"{READY}-0")

    def type(self, *keys: str) -> None:
        """Press these keys, by tmux's names for them or as text."""
        self._tmux("send-keys", *keys)

    def line(self, text: str) -> None:
        """Type a line and Enter."""
        self._tmux("send-keys", "-l", text)
        self._tmux("send-keys", "Enter")

    def paste(self, text: str) -> None:
        """Send this text in one piece, as a paste does."""
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer")

    def screen(self, *, styles: bool = False) -> str:
        """What is on the screen now, with its styles as escapes or as bare text; wrapped lines are one again."""
        found = self._tmux("capture-pane", "-p", "-J", *(["-e"] if styles else []))  # pads lines with blanks
        return "\n".join(line.rstrip(" ") for line in found.split("\n"))

    def see(self, pattern: str, *, within: float = PATIENCE) -> str:
        """The screen as soon as it shows the pattern."""
        found = [""]

        def shown() -> bool:
            found[0] = self.screen()
            return re.search(pattern, found[0], re.MULTILINE) is not None

        try:
            eventually(shown, f"{pattern!r} is on the screen", within=within)
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{found[0]}") from None
        return found[0]

    def resize(self, *, width: int, height: int) -> None:
        """Make the window that large."""
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def ask(self, form: str) -> str:
        """What tmux says of the window in this form."""
        return self._tmux("display-message", "-p", form).strip()

    def close(self) -> None:
        """End the server and all in it."""
        self._tmux("kill-server", check=False)

    def _tmux(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
            cwd=self._directory,
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout
