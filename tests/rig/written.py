"""Compares `docs/rights.md` with the rights that exist.

A difference is a right that is not written, or a written right that is gone.
"""

import difflib

from docs.make_rights import PAGE


def differences(made: str) -> str:
    """Differences between `made` and the part of the page with the same heading; empty: none."""
    heading = made.splitlines()[0]
    written = ["## " + part for part in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]]
    (kept,) = [part for part in written if part.startswith(heading + "\n")] or [""]
    lines = difflib.unified_diff(lines_of(kept), lines_of(made), "written", "real", n=0, lineterm="")
    found = "\n".join(lines)
    return f"rights differ from docs/rights.md: judge each, then run `make docs`\n{found}" if found else ""


def lines_of(part: str) -> list[str]:
    return [line for line in part.splitlines() if line]
