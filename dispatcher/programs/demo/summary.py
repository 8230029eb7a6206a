"""The end of a demo: what became of each task, and the next steps. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from rich.table import Table

from dispatcher.programs.demo.view import STATES, DemoView, Row, first_line, outcome

MOST_ROWS: Final = 40
WORDS: Final = {
    "ExitedWithoutReport": "its container ended, and did not say what became of the row (docs/author.md)",
    "LaunchesExhausted": "its Pods never started",
    "FailuresExhausted": "it failed as often as it may",
    "NeverFits": "no node is large enough for it, even an empty one",
    "NoRoomNow": "the nodes are full",
    "Poison": "the API server refuses its Job",
}


class Demo(Struct, frozen=True):
    """Facts about a demo for its next steps.

    command: the command line that starts `dispatcher` again.
    database_url: the URL for a submitter.
    templates: the folder of the templates.
    kubeconfig: the file for the cluster.
    api_url: where the dispatcher answers.
    statements: SQL to try.
    is_kept: the demo still runs.
    """

    command: str
    database_url: str
    templates: str
    kubeconfig: str
    api_url: str
    statements: Sequence[str]
    is_kept: bool


def table(view: DemoView, shows: Mapping[int, str], reasons: Mapping[int, str]) -> Table:
    """One line per task. Of many tasks only those with an entry in `shows`, and those that did not succeed."""
    made = Table(box=None, header_style="bold", padding=(0, 1), expand=True)
    for name in ("task", "queue", "status"):
        made.add_column(name, no_wrap=True)
    made.add_column("runs", justify="right")
    made.add_column("on", no_wrap=True)
    made.add_column("what it shows, and what came of it", ratio=1, overflow="fold")
    for row in chosen(view.rows, shows):
        words = "; ".join(part for part in (shows.get(row.id, ""), result_of(row, reasons)) if part)
        made.add_row(str(row.id), row.queue, row.status, str(runs(row)), row.node or "", words)
    return made


def why(view: DemoView, row: Row) -> str:
    """Why the row waits: the reasons of its queue."""
    codes = sorted({reason for queue, reason in view.reasons or {} if queue == row.queue and reason != "Launched"})
    return "; ".join(f"{code}: {WORDS[code]}" if code in WORDS else code for code in codes)


def chosen(rows: Sequence[Row], shows: Mapping[int, str]) -> list[Row]:
    if len(rows) <= MOST_ROWS:
        return list(rows)
    return [row for row in rows if row.id in list(shows)[:MOST_ROWS] or row.status != "succeeded"][:MOST_ROWS]


def runs(row: Row) -> int:
    return row.attempt if row.node or row.status in {"succeeded", "failed"} else row.attempt - 1


def result_of(row: Row, reasons: Mapping[int, str]) -> str:
    if row.status == "waiting":
        return reasons.get(row.id, first_line(row.error))
    return outcome(row).removeprefix(": ")


def counts(view: DemoView, seconds: float) -> str:
    """`20 tasks in 9 s: 17 succeeded, 1 cancelled, 2 waiting`"""
    states = view.states
    listed = ", ".join(f"{states[state]} {state}" for state in reversed(STATES) if states[state])
    return f"{len(view.rows)} tasks in {seconds:.0f} s: {listed or 'none'}"


def next_steps(demo: Demo) -> list[str]:
    lines = []
    if demo.is_kept:
        lines += [
            "Everything goes on until Ctrl-C. Insert rows of your own:",
            f"  psql '{demo.database_url}'",
            *(f"  {statement}" for statement in demo.statements),
            "Ask why a row waits, and what became of it:",
            f"  {demo.command} explain --url {demo.api_url} 5",
            f"Templates, read again when they change: {demo.templates}",
            f"The cluster: {demo.kubeconfig}",
        ]
    else:
        lines += [
            f"To stay and try it yourself:   {demo.command} demo --keep",
            f"With your own rows, template:  {demo.command} demo --sql FILE --template FILE",
        ]
    return [
        *lines,
        "Next page: docs/submitter.md to submit, docs/author.md to write tasks, docs/operator.md to install",
    ]
