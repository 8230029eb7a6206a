"""The WHERE clauses of the functions that change a row (docs/protocol.md, sections 3 and 8), on small tuples.

`without` names the conditions that are left out, so that the model can show why each is needed. Production leaves out
none. `test_row_against_sql.py` compares these functions with those in `sql/`.

The model has no clock: whether a heartbeat is stale is an argument.
"""

from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Final, NamedTuple

WAITING: Final = 0
PROCESSING: Final = 1
SUCCEEDED: Final = 2
FAILED: Final = 3
CANCELLED: Final = 4
STATUSES: Final = ("waiting", "processing", "succeeded", "failed", "cancelled")
"""The names of the five in SQL."""
NONE: Final[AbstractSet[str]] = frozenset()


class Row(NamedTuple):
    """One row.

    uid, pod: Job uid and Pod of the container that holds the row, or held it last.
    token: the run token; 0 if there is none.
    second: whether another process of that Pod was refused.
    """

    status: int = WAITING
    attempt: int = 1
    launch: int = 0
    failures: int = 0
    uid: int = 0
    pod: int = 0
    token: int = 0
    cancel: int = 0
    process: int = 0
    second: int = 0


class Call(NamedTuple):
    """The arguments of a container's `task_start`.

    has_key: whether its start key fits.
    process: which process of its Pod calls; 0: it sends no run_id.
    """

    attempt: int
    launch: int
    uid: int
    pod: int = 0
    has_key: bool = True
    process: int = 0

    @property
    def token(self) -> int:
        """The run token of this start, if it is accepted. Each start has another token."""
        return self.uid * 2 + self.pod + 1


class StartAnswer(StrEnum):
    """The answer of `task_start`."""

    NOTHING = "nothing"
    NEW = "a new token"
    SAME = "its own token again"


def is_over(row: Row) -> bool:
    return row.status > PROCESSING


def start(row: Row, call: Call, max_failures: int, without: AbstractSet[str] = NONE) -> tuple[Row, StartAnswer]:
    if accepts(row, call, max_failures, without):
        held = {"status": PROCESSING, "launch": call.launch, "uid": call.uid, "pod": call.pod, "token": call.token}
        return row._replace(**held, process=call.process, second=0), StartAnswer.NEW
    if not is_asked_again(row, call, without):
        return row, StartAnswer.NOTHING
    if is_same_process(row, call, max_failures, without):
        return row, StartAnswer.SAME
    return (row if "again: second" in without else row._replace(second=1)), StartAnswer.NOTHING


def accepts(row: Row, call: Call, max_failures: int, without: AbstractSet[str]) -> bool:
    is_open = row.status == WAITING or (row.status == PROCESSING and max_failures > 1)
    if "start: status" in without:
        is_open = max_failures > 1 or row.status != PROCESSING
    if "start: max_failures" in without:
        is_open = is_open or row.status == PROCESSING
    return (
        is_open
        and call.has_key
        and (row.attempt == call.attempt or "start: attempt" in without)
        and (call.launch > row.launch or "start: launch" in without)
        and (not row.cancel or "start: cancel" in without)
    )


def is_asked_again(row: Row, call: Call, without: AbstractSet[str]) -> bool:
    """Whether the same Pod asks again, because the answer was lost."""
    return (
        row.status == PROCESSING
        and call.has_key
        and (row.attempt, row.launch) == (call.attempt, call.launch)
        and (row.uid == call.uid or "again: uid" in without)
        and (row.pod == call.pod or "again: pod" in without)
        and "again" not in without
    )


def is_same_process(row: Row, call: Call, max_failures: int, without: AbstractSet[str]) -> bool:
    """Without a run_id nobody can tell. So no such process gets a token again where one run is the most."""
    if not call.process:
        return max_failures > 1 or "again: no run_id" in without
    return row.process == call.process or "again: run_id" in without


def heartbeat(row: Row, token: int) -> str:
    if row.status != PROCESSING or row.token != token:
        return "lost"
    return "cancel" if row.cancel else "continue"


def finish(
    row: Row, token: int, outcome: str, max_failures: int, without: AbstractSet[str] = NONE
) -> tuple[Row, int | None]:
    """The row after `task_finish`, and the answer: the row's new status, or None for `lost`."""
    is_its = row.token == token or ("finish: token" in without and row.token)
    if not is_its or (row.status != PROCESSING and "finish: status" not in without):
        return row, None
    moved = reported(row, outcome, max_failures, without)
    return moved, moved.status


def reported(row: Row, outcome: str, max_failures: int, without: AbstractSet[str]) -> Row:
    if outcome == "succeeded":
        return ended(row, SUCCEEDED, without)
    if row.cancel and "finish: cancel" not in without:
        return ended(row, CANCELLED, without)
    if outcome == "retry" and (row.failures + 1 < max_failures or "finish: failures" in without):
        return next_attempt(row, row.failures + 1, without)
    return ended(row, FAILED, without)._replace(failures=row.failures + 1)


def cancel(row: Row, *, is_stale: bool, without: AbstractSet[str] = NONE) -> Row:
    if row.status == WAITING or (row.status == PROCESSING and is_stale):
        return ended(row, CANCELLED, without)
    return row._replace(cancel=1) if row.status == PROCESSING else row


def retry(row: Row, attempt: int | None = None, without: AbstractSet[str] = NONE) -> Row:
    return next_attempt(row, 0, without) if attempt in {None, row.attempt} else row


def ended(row: Row, status: int, without: AbstractSet[str] = NONE) -> Row:
    return row._replace(status=status, token=row.token if "token ends" in without else 0)


def next_attempt(row: Row, failures: int, without: AbstractSet[str] = NONE) -> Row:
    """The row that waits again. Only here `launch` falls, because `attempt` grows."""
    return Row(
        WAITING,
        row.attempt + ("next: attempt" not in without),
        row.launch if "next: launch" in without else 0,
        failures,
        token=row.token if "token ends" in without else 0,
        cancel=row.cancel if "next: cancel" in without else 0,
    )


class Return(NamedTuple):
    """The arguments of `janitor_return`: the row as it was read, and the failures to add."""

    attempt: int
    launch: int
    token: int
    failures: int


class End(NamedTuple):
    """The arguments of `janitor_end`.

    launch, uid: of the Job that decides; launch 0 without a Job.
    status: WAITING asks for a retry, which fails a row without failures left.
    """

    attempt: int
    launch: int
    uid: int
    status: int


def janitor_return(row: Row, asked: Return, max_failures: int, *, is_stale: bool, without: AbstractSet[str]) -> Row:
    is_same = (
        (row.attempt == asked.attempt or "return: attempt" in without)
        and (row.launch == asked.launch or "return: launch" in without)
        and (row.token == asked.token or "return: token" in without)
    )
    may = (not row.cancel or "return: cancel" in without) and (is_stale or "return: stale" in without)
    if row.status != PROCESSING or not is_same or not may:
        return row
    failures = row.failures + asked.failures
    if failures < max_failures:
        return next_attempt(row, failures, without)
    return ended(row, FAILED, without)._replace(failures=failures)


def janitor_end(row: Row, asked: End, max_failures: int, without: AbstractSet[str] = NONE) -> Row:
    is_judged = (row.launch == asked.launch or "end: launch" in without) and (
        row.uid == asked.uid or "end: uid" in without
    )
    is_open = (row.status == PROCESSING and is_judged) or row.status == WAITING
    if "end: status" in without:
        is_open = is_open or (is_over(row) and is_judged)
    if not is_open or (row.attempt != asked.attempt and "end: attempt" not in without):
        return row
    if asked.status == WAITING:
        return reported(row, "retry", max_failures, without)
    return ended(row, asked.status, without)


def janitor_cancel(row: Row, attempt: int, token: int, without: AbstractSet[str] = NONE) -> Row:
    is_same = (row.attempt == attempt or "end cancel: attempt" in without) and (
        row.token == token or "end cancel: token" in without
    )
    asked = row.cancel or "end cancel: asked" in without
    return ended(row, CANCELLED, without) if row.status == PROCESSING and is_same and asked else row
