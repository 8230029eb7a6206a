"""What a demo breaks on purpose, and what it tells of it. Pure."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from dispatcher.programs.demo.view import ENDED, DemoView, State

ENOUGH_ROWS: Final = 9
"""With fewer rows nothing runs when Postgres is killed."""
FEWEST_ENDED: Final = 6
FEWEST_LEFT: Final = 2


class Kill(Struct, frozen=True):
    """One `kill -9` of Postgres.

    seconds: when, since the start of the demo.
    rows: the statuses of all rows before, by id.
    running: the number of rows that ran.
    """

    seconds: float
    rows: dict[int, str]
    running: int


class Recovery(Struct, frozen=True):
    """What was there after a kill.

    seconds: from the kill until the rows could be read again.
    rows: the number of rows before.
    lost: ids of rows that are gone, or whose end is forgotten.
    running: the number of rows that ran.
    """

    seconds: float
    rows: int
    lost: Sequence[int]
    running: int


def is_time_to_kill(view: DemoView) -> bool:
    """Whether rows have ended and others run, so that there is something to lose; at the latest near the end."""
    has_begun = len(view.rows) >= ENOUGH_ROWS and view.ended >= FEWEST_ENDED
    left = len(view.rows) - view.ended - view.states[State.NEEDS_YOU]
    return has_begun and (bool(view.statuses["processing"]) or left <= FEWEST_LEFT) and not view.away


def kill_of(view: DemoView, seconds: float) -> Kill:
    return Kill(seconds, {row.id: row.status for row in view.rows}, view.statuses["processing"])


def recovery_of(kill: Kill, view: DemoView, seconds: float) -> Recovery:
    """Compares the rows before the kill with the rows of `view`, which were read after it."""
    now = {row.id: row for row in view.rows}
    lost = [
        id_
        for id_, status in kill.rows.items()
        if id_ not in now or (status in ENDED and now[id_].status != status and now[id_].attempt == 1)
    ]
    return Recovery(seconds - kill.seconds, len(kill.rows), lost, kill.running)


def killed_in_words(kill: Kill) -> str:
    running = {0: "none of them runs", 1: "1 of them runs"}.get(kill.running, f"{kill.running} of them run")
    return f"Postgres is killed now (kill -9), with {len(kill.rows):,} rows: {running}"


def recovery_in_words(recovery: Recovery) -> str:
    return f"Postgres is back after {recovery.seconds:.1f} s: {counted(recovery)}"


def counted(recovery: Recovery) -> str:
    kept = recovery.rows - len(recovery.lost)
    if recovery.lost:
        return f"{kept:,} of {recovery.rows:,} rows are there. Lost: {', '.join(map(str, recovery.lost))}"
    return f"{kept:,} of {recovery.rows:,} rows are there, nothing is lost"


def kills_in_words(recoveries: Sequence[Recovery]) -> list[str]:
    """One line at the end, if Postgres was killed."""
    if not recoveries:
        return []
    times = "once" if len(recoveries) == 1 else f"{len(recoveries)} times"
    last = recoveries[-1]
    running = {0: "while no row ran", 1: "while 1 row ran"}.get(last.running, f"while {last.running} rows ran")
    return [f"Postgres was killed {times} (kill -9), {running}: {counted(last)}"]
