"""The end of a demo: what became of each task, and the next steps. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from rich.table import Table
from rich.text import Text

from dispatcher.model.texts import for_terminal
from dispatcher.programs.demo.view import STATUSES, DemoView, Row, State, outcome
from dispatcher.programs.demo.words import row_in_words

MOST_ROWS: Final = 40


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


def chosen(rows: Sequence[Row], shows: Mapping[int, str]) -> list[Row]:
    if len(rows) <= MOST_ROWS:
        return list(rows)
    return [row for row in rows if row.id in list(shows)[:MOST_ROWS] or row.status != "succeeded"][:MOST_ROWS]


def runs(row: Row) -> int:
    return row.attempt if row.node or row.status in {"succeeded", "failed"} else row.attempt - 1


def counts(view: DemoView, seconds: float) -> str:
    """`20 tasks in 9 s: 17 succeeded, 1 cancelled, 2 waiting`"""
    statuses = view.statuses
    listed = ", ".join(f"{statuses[status]:,} {status}" for status in reversed(STATUSES) if statuses[status])
    return f"{len(view.rows):,} tasks in {seconds:.0f} s: {listed or 'none'}"


def ending(view: DemoView, demo: Demo) -> str:
    """`19 ended, 1 needs you: type …`, with a command that works at this moment."""
    parked = [row for row in view.rows if row.state is State.NEEDS_YOU]
    if not parked:
        return f"{view.ended:,} ended, nothing waits for you"
    needs = f"{len(parked):,} needs you" if len(parked) == 1 else f"{len(parked):,} need you"
    ask = f'demo psql -c "SELECT dispatch.task_cancel({parked[0].id})"' if demo.is_kept else "demo --keep"
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
            "Look at its Jobs:",
            f"  kubectl --kubeconfig {demo.kubeconfig} get jobs,pods",
            f"The database, for any other client: {demo.database_url}",
            f"Templates, read again when they change: {demo.templates}",
        ]
    else:
        lines = [
            f"To stay and try it yourself:   {demo.command} demo --keep",
            f"All options, as your own rows: {demo.command} demo --help",
        ]
    return [
        *lines,
        "Next page: docs/submitter.md to submit, docs/author.md to write tasks, docs/install.md to install",
    ]


def pinned(demo: Demo) -> list[str]:
    """The lines that are always to be seen."""
    lines = [f"In a browser: {demo.api_url}/"]
    return [*lines, f"SQL, in another terminal: {demo.command} demo psql"] if demo.is_kept else lines
