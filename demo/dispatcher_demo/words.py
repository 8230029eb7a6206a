"""A demo in words for people who know no code: what rows and queues wait for, and the end with the next steps. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from rich.table import Table
from rich.text import Text

from dispatcher.model.reasons import ADVICE, ReasonInWords
from dispatcher.model.tasks import for_terminal
from dispatcher.model.verdicts import PARKED, HoldReason
from dispatcher_demo.observe import STATUSES, DemoRow, DemoView, QueueLoad, RowState, error_line, outcome

NOT_JUDGED: Final = "not judged yet"
SHORTEST_SECONDS: Final = 4.0
FEWEST_ENDS: Final = 5
STUCK: Final = ("Unschedulable", "ImagePull", "PodRefused", "Suspended")
"""Stages that keep the container of a Job from its start for longer than a moment."""
WAITS: Final[Mapping[HoldReason, str]] = {
    HoldReason.NOT_DUE: "until it is time",
    HoldReason.PAUSED: "because the queue is paused",
    HoldReason.FINISHING: "until the old container has ended",
    HoldReason.BACKOFF: "to be tried again",
    HoldReason.SUBMITTER_CAP: "for a free slot of the submitter",
    HoldReason.PENDING_PODS: "behind a Pod that has no node",
    HoldReason.NO_ROOM_NOW: "for room: the nodes are full",
    HoldReason.NEVER_FITS: "for a larger node",
    HoldReason.RATE_LIMITED: "for the next second",
    HoldReason.NEXT_CYCLE: "for the next look",
    HoldReason.IN_LINE: "in line",
}
"""Words after `3 wait`. The other reasons have numbers or words of their own."""


class Moment(Struct, frozen=True):
    """Number of ended rows of each queue at some second of the demo."""

    seconds: float
    ended: Mapping[str, int]


def moment_of(view: DemoView, seconds: float) -> Moment:
    ended: dict[str, int] = {}
    for row in view.rows:
        ended[row.queue] = ended.get(row.queue, 0) + row.is_ended
    return Moment(seconds, ended)


def seconds_left(history: Sequence[Moment], view: DemoView) -> dict[str, float]:
    """How long each queue takes at the pace of `history`, oldest first. A queue without a pace has no entry."""
    if len(history) < 2 or history[-1].seconds - history[0].seconds < SHORTEST_SECONDS:
        return {}
    first, last = history[0], history[-1]
    left = {}
    for queue, ended in last.ended.items():
        done = ended - first.ended.get(queue, 0)
        rest = sum(row.queue == queue and not row.is_ended and row.state is not RowState.NEEDS_YOU for row in view.rows)
        if done >= FEWEST_ENDS and rest:
            left[queue] = rest * (last.seconds - first.seconds) / done
    return left


def queue_in_words(load: QueueLoad, view: DemoView, left: float | None) -> str:
    """`9,896 wait for a free slot: 6 of 6 used, 2 start, about 14 min left`; empty: no row of it waits."""
    reasons = sorted(load.reasons.items(), key=lambda one: -one[1])
    told = [reason_in_words(reason, n, load, view) for reason, n in reasons if n]
    if load.unjudged:
        told.append(f"{load.unjudged:,} {NOT_JUDGED}")
    if told and left is not None:
        told.append(f"about {rounded(left)} left")
    return ", ".join(told)


def rounded(seconds: float) -> str:
    """`50 s`, `14 min`, `2 h`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{round(seconds / 3600)} h"


def reason_in_words(reason: HoldReason, n: int, load: QueueLoad, view: DemoView) -> str:
    wait = f"{n:,} waits" if n == 1 else f"{n:,} wait"
    if reason in PARKED - view.passing:
        return f"{n:,} {'needs' if n == 1 else 'need'} you"
    if reason is HoldReason.LAUNCHED:
        return f"{n:,} {'starts' if n == 1 else 'start'}"
    if reason is HoldReason.JOB_CAP:
        return f"{wait} for a free slot: {view.in_flight} of {view.max_jobs} used"
    if reason is HoldReason.QUEUE_CAP:
        return f"{wait} for a free slot of this queue: {load.in_flight} of {load.max_jobs} used"
    return f"{wait} {WAITS[reason]}" if reason in WAITS else f"{wait}: {ADVICE[reason].meaning}"


def row_in_words(row: DemoRow, shows: str = "") -> str:
    """Why the row waits, what it does, or what came of it. `shows`: its purpose."""
    if row.status == "waiting":
        told = cause_in_words(row.cause) if row.cause else NOT_JUDGED
        failed = error_line(row.error) if row.state is RowState.AGAIN else ""
        return f"{failed}; {told}" if failed else told
    if row.status == "processing":
        return running_in_words(row) or shows
    return outcome(row) or shows


def cause_in_words(cause: ReasonInWords) -> str:
    if cause.reason is HoldReason.LAUNCHED and not any(word in cause.message for word in STUCK):
        return "its Job is made, its container starts"
    return for_terminal(cause.message)


def running_in_words(row: DemoRow) -> str:
    again = [f"attempt {row.attempt}"] if row.attempt > 1 else []
    progress = [] if row.progress is None else [f"{row.progress:.0%}"]
    note = [for_terminal(row.note)] if row.note else []
    return ", ".join([*again, *progress, *note])


MOST_ROWS: Final = 40


class Demo(Struct, frozen=True):
    """Facts about a demo for its next steps.

    command: the command line that starts `dispatcher` again.
    again: its words for the same demo, `demo` with the options that were given.
    database_url: the URL for a submitter.
    templates: the folder of the templates.
    kubeconfig: the file for the cluster.
    api_url: the address of the dispatcher's API.
    statements: SQL to try.
    is_kept: the demo still runs.
    """

    command: str
    again: str
    database_url: str
    templates: str
    kubeconfig: str
    api_url: str
    statements: Sequence[str]
    is_kept: bool


def table(view: DemoView, shows: Mapping[int, str]) -> Table:
    """One line per task. Of many tasks only those with an entry in `shows`, and those that did not succeed."""
    made = Table(box=None, header_style="bold", padding=(0, 1), expand=True)
    for name in ("task", "queue", "status"):
        made.add_column(name, no_wrap=True)
    made.add_column("runs", justify="right")
    made.add_column("on", no_wrap=True)
    made.add_column("what it shows, and what came of it", ratio=1, overflow="fold")
    for row in chosen(view.rows, shows):
        told = row_in_words(row) if row.status == "waiting" else outcome(row)
        words = "; ".join(part for part in (shows.get(row.id, ""), told) if part)
        cells = str(row.id), for_terminal(row.queue), row.status, str(runs(row)), for_terminal(row.node or ""), words
        made.add_row(*map(Text, cells))  # a text of others is no markup
    return made


def chosen(rows: Sequence[DemoRow], shows: Mapping[int, str]) -> list[DemoRow]:
    if len(rows) <= MOST_ROWS:
        return list(rows)
    return [row for row in rows if row.id in list(shows)[:MOST_ROWS] or row.status != "succeeded"][:MOST_ROWS]


def runs(row: DemoRow) -> int:
    return row.attempt if row.node or row.status in {"succeeded", "failed"} else row.attempt - 1


def counts(view: DemoView, seconds: float) -> str:
    """`20 tasks in 9 s: 17 succeeded, 1 cancelled, 2 waiting`"""
    statuses = view.statuses
    listed = ", ".join(f"{statuses[status]:,} {status}" for status in reversed(STATUSES) if statuses[status])
    return f"{len(view.rows):,} tasks in {seconds:.0f} s: {listed or 'none'}"


def ending(view: DemoView, demo: Demo) -> str:
    """`19 ended, 1 needs you: type …`, with a command that works at this moment."""
    parked = [row for row in view.rows if row.state is RowState.NEEDS_YOU]
    if not parked:
        return f"{view.ended:,} ended, nothing waits for you"
    needs = f"{len(parked):,} needs you" if len(parked) == 1 else f"{len(parked):,} need you"
    ask = f'demo psql -c "SELECT dispatch.task_cancel({parked[0].id})"' if demo.is_kept else f"{demo.again} --keep"
    return f"{view.ended:,} ended, {needs}: type {demo.command} {ask}"


def next_steps(demo: Demo, example: int) -> list[str]:
    """Commands that work now, or after the demo if it ends. `example`: the id of a row to ask about."""
    if demo.is_kept:
        lines = [
            "Everything goes on until q or Ctrl-C. Insert rows of your own, in another terminal:",
            f"  {demo.command} demo psql",
            *(f"  {statement}" for statement in demo.statements),
            "Ask why a row waits, and what became of it:",
            f"  {demo.command} explain --url {demo.api_url} {example}",
            f"The same for all rows, in a browser: {demo.api_url}/",
            "Look at its Jobs (a Job is kept only briefly: insert a row first):",
            f"  kubectl --kubeconfig {demo.kubeconfig} get jobs,pods",
            f"The database, for any other client: {demo.database_url}",
            f"Templates, read again when they change: {demo.templates}",
        ]
    else:
        lines = [
            f"To stay and try it yourself:   {demo.command} {demo.again} --keep",
            f"All options, as your own rows: {demo.command} demo --help",
        ]
    return [*lines, "Next page: docs/submitter.md to submit, docs/author.md to write tasks, docs/install.md to install"]


def pinned(demo: Demo) -> list[str]:
    """The lines that are always visible."""
    lines = [f"In a browser: {demo.api_url}/"]
    return [*lines, f"SQL, in another terminal: {demo.command} demo psql"] if demo.is_kept else lines
