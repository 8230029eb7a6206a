"""A terminal for programs that draw with lines: all its frames, and its content at the end.

An erased line begins a new drawing: the content before it is a frame. Lines are as long as they were written. Tests
check whether they fit.
"""

import re

TOKEN = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n]+)|\x1b")
COLORS = re.compile(r"\x1b\[[0-9;]*m")


class Screen:
    """The terminal. The cursor reaches the last `rows` lines. Older lines stay as they are."""

    def __init__(self, output: str, rows: int) -> None:
        self.rows = rows
        self.lines = [""]
        self.frames: list[list[str]] = []
        self.is_cursor_shown = True
        self._row = self._column = 0
        self._is_erasing = False
        for token in TOKEN.finditer(output):
            assert token[0] != "\x1b", f"unknown sequence {output[token.start() :][:16]!r}"
            self._take(token)

    def _take(self, token: re.Match[str]) -> None:
        parameter, letter, back, down, words = token.groups()
        if letter:
            self._control(parameter, letter)
        elif back:
            self._column = 0
        elif down:
            self._row += 1
            self.lines += [""] * (self._row + 1 - len(self.lines))
        else:
            self._is_erasing = False
            line = self.lines[self._row].ljust(self._column)
            self.lines[self._row] = line[: self._column] + words + line[self._column + len(words) :]
            self._column += len(words)

    def _control(self, parameter: str, letter: str) -> None:
        if parameter == "?25":
            self.is_cursor_shown = letter == "h"
        elif (parameter, letter) == ("2", "K"):
            self._erase()
        elif letter == "A":
            self._row = max(0, len(self.lines) - self.rows, self._row - int(parameter or 1))
        else:
            assert letter == "m", f"unknown sequence {parameter}{letter}"  # colours

    def _erase(self) -> None:
        if not self._is_erasing:
            self.frames.append(list(self.lines))
        self._is_erasing = True
        self.lines[self._row] = ""


def plain(output: str) -> str:
    """The output without colours, with line ends as in a file."""
    return COLORS.sub("", output).replace("\r\n", "\n")
