"""What happens in a demo, as lines: the changes from one view to the next. Pure."""

from typing import Final

from dispatcher.model.texts import for_terminal
from dispatcher.model.verdicts import HoldReason
from dispatcher.programs.demo.view import DemoView, Row, State, error_line, outcome

MOST_INSERTED: Final = 50


class News:
    """Takes views as they come. What it has told and what is still true, it does not tell again."""

    def __init__(self) -> None:
        self._before = DemoView()
        self._needing: set[tuple[int, int]] = set()
        self._away: set[str] = set()

    def take(self, view: DemoView) -> list[str]:
        """The news since the view before."""
        before, self._before = self._before, view
        return [*changes(before, view), *self._needs(view), *roomless(before, view), *self._servers(before, view)]

    def _needs(self, view: DemoView) -> list[str]:
        """One line for each row that needs a person, once for each attempt."""
        lines = []
        for row in view.rows:
            if row.state is State.NEEDS_YOU and row.cause and (row.id, row.attempt) not in self._needing:
                self._needing.add((row.id, row.attempt))
                lines.append(f"{about(row)} needs you: {for_terminal(row.cause.message)}")
        return lines

    def _servers(self, before: DemoView, view: DemoView) -> list[str]:
        """One line for each server that has gone away, or is back. At the start the last ones still come up."""
        back = sorted(self._away - {*view.away})
        gone = sorted({*view.away} - {*before.away}) if before.rows else []
        self._away = (self._away | {*gone}) - {*back}
        return [*(f"{name} does not answer" for name in gone), *(f"{name} answers again" for name in back)]


def changes(before: DemoView, after: DemoView) -> list[str]:
    """One line for each change of a row. Many new rows are one line with their number."""
    known = {row.id: row for row in before.rows}
    new = [row for row in after.rows if row.id not in known and row.status == "waiting"]
    lines = [f"{len(new):,} tasks are inserted"] if len(new) > MOST_INSERTED else []
    rest = [row for row in after.rows if not lines or row.id in known or row.status != "waiting"]
    return lines + [f"{about(row)} {words}" for row in rest if (words := change(known.get(row.id), row))]


def about(row: Row) -> str:
    return f"task {row.id} ({for_terminal(row.queue)})"


def change(was: Row | None, row: Row) -> str:
    """What became of the row; empty if status and attempt are unchanged."""
    if was is not None and (was.status, was.attempt) == (row.status, row.attempt):
        return ""
    if row.status == "waiting" and row.attempt == 1:
        return "is inserted"
    if row.status == "waiting":
        told = error_line(row.error)
        return f"failed, and is tried again (attempt {row.attempt})" + (f": {told}" if told else "")
    if row.status == "processing":
        again = f", attempt {row.attempt}" if row.attempt > 1 else ""
        return f"runs on {for_terminal(row.node or '')}{again}"
    told = outcome(row)
    return f"{row.status}: {told}" if told else row.status


def roomless(before: DemoView, after: DemoView) -> list[str]:
    """One line for each queue whose rows wait for room on a node, and did not before."""
    queues = sorted(full(after) - full(before))
    return [f"the nodes are full: rows of queue {queue} wait for room" for queue in queues]


def full(view: DemoView) -> set[str]:
    return {queue.queue for queue in view.queues or () if queue.reasons.get(HoldReason.NO_ROOM_NOW)}
