"""The terminal of the live view: takes it over, draws lines, reads keys, gives it back as it was. It knows no locks."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from leased.cli.top_columns import cells_of
from leased.cli.top_keys import Keys

_STYLES = {
    "plain": "",
    "strong": "bold",
    "faint": "dim",
    "good": "green",
    "warning": "yellow",
    "bad": "bold red",
    "head": "bold",
}
_ESCAPE_IS_COMPLETE = 0.05
"""Seconds after which an escape that nothing follows was the key of that name."""

_ROOM = 4096

Lines: TypeAlias = Sequence[Sequence[tuple[str, str]]]
"""What is drawn: for each line its pieces, each a harmless text with the name of a style."""


class Screen:
    """The terminal on standard input and output. Between `enter` and `leave` it shows another screen than before, no
    cursor, and no echo of keys; signals by keys (Ctrl-C, Ctrl-Z) stay what they are."""

    def __init__(self, environment: Mapping[str, str], *, color: bool) -> None:
        from rich.console import Console

        self.descriptor = sys.stdin.fileno()
        self._console = Console(
            file=sys.stdout,
            force_terminal=True,
            no_color=not color,
            highlight=False,
            legacy_windows=False,
            _environ={name: value for name, value in environment.items() if name not in {"COLUMNS", "LINES"}},
        )
        self._keys = Keys()
        self._before: list[Any] | None = None

    @property
    def fine(self) -> bool:
        """Whether it shows characters beyond ASCII."""
        return self._console.encoding.startswith("utf")

    def size(self) -> tuple[int, int]:
        """Columns and lines, as they are now."""
        try:
            found = os.get_terminal_size(self.descriptor)
        except OSError:
            return 80, 24
        return found.columns or 80, found.lines or 24

    def enter(self) -> None:
        """Take the terminal over; again after it was stopped."""
        modes = termios.tcgetattr(self.descriptor)
        if self._before is None:
            self._before = termios.tcgetattr(self.descriptor)
        modes[0] &= ~termios.IXON  # a Ctrl-S by mistake would leave a picture that looks as if it went on
        modes[3] &= ~(termios.ECHO | termios.ICANON)
        modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self.descriptor, termios.TCSADRAIN, modes)
        self._console.set_alt_screen(enable=True)
        self._console.show_cursor(show=False)

    def leave(self) -> None:
        """Give the terminal back as it was before; harmless where it was given back, or has gone."""
        if self._before is None:
            return
        before, self._before = self._before, None
        with contextlib.suppress(OSError):
            self._console.show_cursor(show=True)
            self._console.set_alt_screen(enable=False)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self.descriptor, termios.TCSADRAIN, before)

    def draw(self, lines: Lines) -> None:
        """Show these lines, which fill the screen, in one write."""
        from rich.segment import ControlType, Segment
        from rich.style import Style

        styles = {name: Style.parse(words) for name, words in _STYLES.items()}

        def placed(line: Sequence[tuple[str, str]]) -> list[Segment]:
            """Each piece where it belongs, however wide the terminal takes those before it to be."""
            made: list[Segment] = []
            column = 1
            for text, style in line:
                if column > 1:
                    made.append(Segment(f"\x1b[{column}G", None, [(ControlType.CURSOR_MOVE_TO_COLUMN, column)]))
                made.append(Segment(text, styles[style]))
                column += cells_of(text)
            return made

        self._console.update_screen_lines([placed(line) for line in lines])

    def keys(self) -> list[str]:
        """The keys that were pressed and not read yet; never waits for one."""
        pressed: list[str] = []
        while select.select([self.descriptor], [], [], _ESCAPE_IS_COMPLETE if self._keys.begun else 0)[0]:
            data = os.read(self.descriptor, _ROOM)
            if not data:
                raise OSError("the terminal has gone")
            pressed += self._keys.feed(data)
        return [*pressed, *self._keys.feed(b"")]
