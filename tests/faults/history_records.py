"""The records of a run. They do not use the dispatcher's code."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from msgspec import Struct

Key: TypeAlias = tuple[int, int, int]  # task, attempt, launch


class Write(Struct, frozen=True):
    """A create or delete of a Job or Pod, and the API server's answer.

    is_ours: whether a program of ours sent it.
    key: (task, attempt, launch) of the Job of a create; otherwise None.
    options: the DeleteOptions of a delete.
    """

    verb: str
    resource: str
    name: str
    user: str
    is_ours: bool
    code: int
    received_at: datetime
    answered_at: datetime
    key: Key | None = None
    options: Mapping[str, object] = {}

    @property
    def is_done(self) -> bool:
        return self.code < 300

    def __str__(self) -> str:
        return f"{self.verb} {self.resource} {self.name} ({self.code}, by {self.user}, {self.received_at:%H:%M:%S.%f})"


class Life(Struct, frozen=True):
    """The time in which a Job is unfinished: from its create until it is Complete, Failed or gone.

    began, ended: in the units of one log. `ended` is None while the Job is unfinished.
    """

    key: Key
    name: str
    began: float
    ended: float | None = None

    def overlaps(self, later: "Life") -> bool:
        return self.ended is None or self.ended > later.began


class Start(Struct, frozen=True):
    """An accepted start. `ended_at` is None while its token is live."""

    key: Key
    pod: str
    token: str
    started_at: datetime
    ended_at: datetime | None = None


class Row(Struct, frozen=True):
    id: int
    status: str
    attempt: int
    launch: int
    max_failures: int
    token: str | None = None
    error: str | None = None


class Window(Struct, frozen=True):
    """A time in which no write is allowed, and the reason."""

    why: str
    begin: datetime
    end: datetime


class History(Struct, frozen=True):
    """One run.

    starts: accepted starts by the table of launches.
    accepted: accepted starts by the played containers.
    """

    writes: Sequence[Write]
    lives: Sequence[Life]
    starts: Sequence[Start]
    rows: Sequence[Row]
    accepted: Sequence[Start] = ()

    def traffic(self) -> dict[str, int]:
        done = [write for write in self.writes if write.is_ours and write.is_done and write.resource == "jobs"]
        creates = sum(write.verb == "create" for write in done)
        counts = {"rows": len(self.rows), "starts": len(self.starts)}
        return counts | {"creates": creates, "deletes": len(done) - creates}


class Bounds(Struct, frozen=True):
    """What a test requires and allows.

    least: minimum of each count of `traffic()`.
    faults: hits by name of the fault; 0 is a violation.
    late_posts: allowed creates that came late.
    cap: maximum of unfinished Jobs; None: not checked.
    over_cap: allowed Jobs above the cap.
    quiet: windows without writes of ours.
    reasons: why a row may be unfinished, by row id.
    retried: ids of rows that their submitter retried.
    """

    least: Mapping[str, int]
    faults: Mapping[str, int]
    late_posts: int = 0
    cap: int | None = None
    over_cap: int = 0
    quiet: Sequence[Window] = ()
    reasons: Mapping[int, str] = {}
    retried: Collection[int] = ()
