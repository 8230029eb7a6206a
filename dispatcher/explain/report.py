"""What the janitor brings over into the database: the changes of reasons since its last call. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from dispatcher.explain.published import Reasons
from dispatcher.explain.status import InstallationStatus, QueueStatus

ROWS_A_CALL: Final = 200
GONE_A_CALL: Final = 1000


class ToldRow(Struct, frozen=True, array_like=True):
    """The reason of one row."""

    task: int
    attempt: int
    reason: str
    since: datetime
    message: str


class Report(Struct, frozen=True, omit_defaults=True):
    """The argument of `janitor_tell`.

    as_of: time of the cycle.
    queues: the state of all queues; None: as it was.
    queues_left_out: queues that the ConfigMap had no room for. They stay as they were.
    rows: rows with a new reason.
    gone: rows without a reason.
    """

    as_of: datetime
    queues: Sequence[QueueStatus] | None = None
    queues_left_out: int = 0
    rows: Sequence[ToldRow] = ()
    gone: Sequence[int] = ()


def rows_of(reasons: Reasons) -> dict[int, ToldRow]:
    """The rows, each with its message. Somebody else may have written the reasons: a wrong place has no message."""
    words = reasons.messages
    return {
        id_: ToldRow(id_, attempt, reason, since, words[at] if 0 <= at < len(words) else "")
        for id_, attempt, reason, since, at in reasons.rows
    }


def plan_report(
    known: Mapping[int, ToldRow], wanted: Mapping[int, ToldRow], status: InstallationStatus, told: datetime | None
) -> Report | None:
    """The next call; None: nothing has changed.

    known: the rows in the database.
    wanted: the rows that the dispatcher tells.
    told: `as_of` of the last call.
    """
    rows = [row for id_, row in wanted.items() if known.get(id_) != row][:ROWS_A_CALL]
    gone = [id_ for id_ in known if id_ not in wanted][:GONE_A_CALL]
    is_new = status.as_of != told
    if not (rows or gone or is_new):
        return None
    return Report(status.as_of, status.queues if is_new else None, status.queues_left_out, rows, gone)


def after(known: Mapping[int, ToldRow], report: Report) -> dict[int, ToldRow]:
    """The rows in the database after the call."""
    gone = set(report.gone)
    return {id_: row for id_, row in known.items() if id_ not in gone} | {row.task: row for row in report.rows}
