"""What a demo has to show at one moment, and what has happened between two of them. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from dispatcher.model.verdicts import PARKED

ENDED: Final = frozenset({"succeeded", "failed", "cancelled"})
CROWD: Final = 50
STATES: Final = ("waiting", "processing", "succeeded", "failed", "cancelled")


class Row(Struct, frozen=True):
    """A task, as its submitter sees it; `seconds`: how long its last run took."""

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
    """Cores of a node: there, and asked for by what runs; how many Pods ask."""

    name: str
    cores: float
    used: float
    pods: int


class DemoView(Struct, frozen=True):
    """`reasons`: waiting rows by queue and reason; `parked`: rows that wait for a person. None: not known now."""

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
        """Nothing will happen any more unless somebody does something."""
        states = self.states
        return self.reasons is not None and not states["processing"] and states["waiting"] == self.parked

    def waiting_for(self, queue: str) -> str:
        """`3 JobCap, 1 in line`; empty: nothing waits there. Rows of a queue that is full are not judged: in line."""
        told = {reason: count for (where, reason), count in (self.reasons or {}).items() if where == queue and count}
        waiting = sum((row.queue, row.status) == (queue, "waiting") for row in self.rows)
        words = [f"{count} {reason}" for reason, count in sorted(told.items()) if reason != "Launched"]
        in_line = waiting - sum(told.values())
        return ", ".join([*words, f"{in_line} in line"] if self.reasons and in_line > 0 else words)


def news(before: DemoView, after: DemoView) -> list[str]:
    """What became of rows, in plain words; what comes in crowds is counted."""
    known = {row.id: row for row in before.rows}
    new = [row for row in after.rows if row.id not in known and row.status == "waiting"]
    told = [f"{len(new)} tasks are inserted"] if len(new) > CROWD else []
    rest = [row for row in after.rows if not told or row.id in known or row.status != "waiting"]
    told += [words for row in rest if (words := tell(known.get(row.id), row))]
    return told + [words for words in parked(after) if words not in parked(before)]


def parked(view: DemoView) -> list[str]:
    """Rows that a person has to look at."""
    told = sorted((queue, reason, count) for (queue, reason), count in (view.reasons or {}).items() if reason in PARKED)
    return [f"{count} parked in queue {queue}: {reason}" for queue, reason, count in told if count]


def tell(was: Row | None, row: Row) -> str:
    if was is not None and (was.status, was.attempt) == (row.status, row.attempt):
        return ""
    about = f"task {row.id} ({row.queue})"
    if row.status == "waiting":
        return f"{about} waits for attempt {row.attempt}: {first_line(row.error)}" if was else f"{about} is inserted"
    if row.status == "processing":
        return f"{about} runs on {row.node}"
    return f"{about} {row.status}{outcome(row)}"


def outcome(row: Row) -> str:
    """Of a row that ended: what it came to."""
    if row.status != "succeeded":
        return f": {first_line(row.error)}" if row.error else ""
    told = row.result if isinstance(row.result, dict) else {}
    return ": " + ", ".join(f"{key} {value}" for key, value in told.items()) if told else ""


def first_line(text: str | None) -> str:
    return (text or "").strip().splitlines()[0][:120] if (text or "").strip() else ""
