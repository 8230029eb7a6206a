"""A terminal as far as a program that draws with lines needs one: what stood on it, and what stands there at the end.

Whoever erases a line begins to draw anew: what stood there until then is a frame. Lines are as long as they were
written; whether they fit is for the test to ask.
"""

import re

TOKEN = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n]+)|\x1b")
COLORS = re.compile(r"\x1b\[[0-9;]*m")


class Screen:
    """So many rows can be reached again by the cursor; what went out at the top stays as it was."""

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
    """Without colours, its lines ended as in a file."""
    return COLORS.sub("", output).replace("\r\n", "\n")
