"""The state that a demo shows at one moment, and the news between two such states. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from dispatcher.model.verdicts import PARKED, HoldReason

ENDED: Final = frozenset({"succeeded", "failed", "cancelled"})
MOST_INSERTED: Final = 50
STATES: Final = ("waiting", "processing", "succeeded", "failed", "cancelled")


class Row(Struct, frozen=True):
    """A task as its submitter sees it. `seconds`: the duration of its last run."""

    id: int
    queue: str
    status: str
    attempt: int = 1
    error: str | None = None
    result: Any = None
    node: str | None = None
    seconds: float | None = None

    @property
    def is_ended(self) -> bool:
        return self.status in ENDED


class NodeLoad(Struct, frozen=True):
    """The load of one node.

    cores: its allocatable cores.
    used: cores that the Pods on it request.
    pods: the number of these Pods.
    """

    name: str
    cores: float
    used: float
    pods: int


class DemoView(Struct, frozen=True):
    """The state of a demo.

    rows: all tasks.
    nodes: the nodes with their load.
    reasons: the number of waiting rows, by queue and reason. None: it is unknown at the moment.
    parked: the number of rows that wait for a person.
    """

    rows: Sequence[Row] = ()
    nodes: Sequence[NodeLoad] = ()
    reasons: Mapping[tuple[str, str], int] | None = None
    parked: int = 0

    @property
    def states(self) -> Counter[str]:
        return Counter(row.status for row in self.rows)

    @property
    def ended(self) -> int:
        return sum(row.is_ended for row in self.rows)

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens without a person."""
        states = self.states
        return self.reasons is not None and not states["processing"] and states["waiting"] == self.parked

    def waiting_for(self, queue: str) -> str:
        """A text like `3 JobCap, 1 in line`, or empty. Rows of a full queue are not judged: they are in line."""
        counts = {reason: count for (where, reason), count in (self.reasons or {}).items() if where == queue and count}
        waiting = sum((row.queue, row.status) == (queue, "waiting") for row in self.rows)
        words = [f"{count} {reason}" for reason, count in sorted(counts.items()) if reason != "Launched"]
        in_line = waiting - sum(counts.values())
        return ", ".join([*words, f"{in_line} in line"] if self.reasons and in_line > 0 else words)


def news(before: DemoView, after: DemoView) -> list[str]:
    """One line for each change of a row. Many new rows are one line with their number."""
    known = {row.id: row for row in before.rows}
    new = [row for row in after.rows if row.id not in known and row.status == "waiting"]
    lines = [f"{len(new)} tasks are inserted"] if len(new) > MOST_INSERTED else []
    rest = [row for row in after.rows if not lines or row.id in known or row.status != "waiting"]
    lines += [words for row in rest if (words := describe_change(known.get(row.id), row))]
    lines += [words for words in roomless(after) if words not in roomless(before)]
    return lines + [words for words in parked(after) if words not in parked(before)]


def roomless(view: DemoView) -> list[str]:
    """One line for each queue whose rows wait for room on a node."""
    reasons = sorted((view.reasons or {}).items())
    queues = [queue for (queue, why), n in reasons if n and why == HoldReason.NO_ROOM_NOW]
    return [f"the nodes are full: rows in queue {queue} wait ({HoldReason.NO_ROOM_NOW})" for queue in queues]


def parked(view: DemoView) -> list[str]:
    """One line for each queue and reason with parked rows."""
    counts = sorted((view.reasons or {}).items())
    return [f"{n} parked in queue {queue}: {why}" for (queue, why), n in counts if n and why in PARKED]


def describe_change(was: Row | None, row: Row) -> str:
    """One line, or empty if status and attempt are unchanged."""
    if was is not None and (was.status, was.attempt) == (row.status, row.attempt):
        return ""
    about = f"task {row.id} ({row.queue})"
    if row.status == "waiting":
        return f"{about} waits for attempt {row.attempt}: {first_line(row.error)}" if was else f"{about} is inserted"
    if row.status == "processing":
        return f"{about} runs on {row.node}"
    return f"{about} {row.status}{outcome(row)}"


def outcome(row: Row) -> str:
    """The result or error of a row that has ended, with `: ` before it, or empty."""
    if row.status != "succeeded":
        return f": {first_line(row.error)}" if row.error else ""
    result = row.result if isinstance(row.result, dict) else {}
    return ": " + ", ".join(f"{key} {value}" for key, value in result.items()) if result else ""


def first_line(text: str | None) -> str:
    return (text or "").strip().splitlines()[0][:120] if (text or "").strip() else ""
