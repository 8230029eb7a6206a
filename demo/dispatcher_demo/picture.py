"""Draws a view as lines for a terminal of some size. Pure: rich prints them."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from dispatcher.commands.options import span
from dispatcher.model.tasks import for_terminal
from dispatcher_demo.observe import DemoRow, DemoView, NodeLoad, RowState
from dispatcher_demo.words import queue_in_words, row_in_words

MOST_ROWS: Final = 12
"""Rows of the picture, at most."""
MOST_NEWS: Final = 10
MOST_QUEUES: Final = 4
TALL: Final = 30
"""From this height on, each part has a title, and each node a line."""
BAR: Final = 10
WIDEST_QUEUE: Final = 14
COLORS: Final[Mapping[RowState, str]] = {
    RowState.WAITING: "yellow", RowState.STARTING: "blue", RowState.RUNNING: "cyan", RowState.STOPPING: "magenta",
    RowState.AGAIN: "bold magenta", RowState.NEEDS_YOU: "bold reverse yellow", RowState.DONE: "green",
    RowState.FAILED: "bold red",
    RowState.CANCELLED: "magenta",
}  # fmt: skip


class Shown(Struct, frozen=True):
    """Everything that a picture shows.

    seconds: since the start.
    news: what happened, oldest first.
    moves: when each row moved last, as a growing number; rows that never moved have none.
    shows: the purpose of each sample.
    left: seconds until the rows of a queue have ended, if there is a pace.
    pinned: lines at the bottom that are always visible.
    """

    view: DemoView
    seconds: float = 0
    news: Sequence[str] = ()
    moves: Mapping[int, int] = {}
    shows: Mapping[int, str] = {}
    left: Mapping[str, float] = {}
    pinned: Sequence[str] = ()


class PicturePart(Struct, frozen=True):
    """Lines below a title."""

    title: str
    lines: Sequence[Text]


def draw(shown: Shown, width: int, height: int) -> list[Text]:
    """The picture: fewer than `height` lines, none wider than `width`."""
    view, pinned = shown.view, [Text(line, style="bold") for line in shown.pinned]
    is_tall = height >= TALL
    room = max(1, height - 2 - len(pinned) - 4 * is_tall)
    waits, loads = queues(shown)[:MOST_QUEUES], nodes(view.nodes, width if not is_tall else 0)
    others = min(len(waits) + len(loads) + 3, room // 2)
    moving = rows(shown, width, min(MOST_ROWS + 1, room - others))
    rest = room - len(moving)
    below = [*waits, *loads][:rest]
    told = news(shown.news, min(MOST_NEWS, rest - len(below)))
    parts = [
        PicturePart("rows", moving),
        PicturePart("what waits, and the nodes", below),
        PicturePart("what happens", told),
    ]
    body = [line for part in parts for line in ([title(part.title, width)] if is_tall else []) + [*part.lines]]
    lines = [headline(view, shown.seconds), *body, *pinned][: max(1, height - 1)]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def follow(moves: Mapping[int, int], before: DemoView, after: DemoView) -> dict[int, int]:
    """`moves`, with the rows that differ between the two views as the newest."""
    was = {row.id: (row.state, row.attempt) for row in before.rows}
    newest = max(moves.values(), default=0) + 1
    changed = {row.id: newest for row in after.rows if row.id in was and was[row.id] != (row.state, row.attempt)}
    return {**moves, **changed}


def newest(shown: Shown, most: int) -> list[DemoRow]:
    """The rows that need a person, then those that moved last, and of the others the newest; by id."""

    def rank(row: DemoRow) -> tuple[bool, int, int]:
        return row.state is RowState.NEEDS_YOU, shown.moves.get(row.id, 0), row.id

    return sorted(sorted(shown.view.rows, key=rank, reverse=True)[:most], key=lambda row: row.id)


def headline(view: DemoView, seconds: float) -> Text:
    """`11 of 20 ended  3 running  1 needs you  12 s`, and the servers that are away."""
    line = Text(f"{view.ended:,} of {len(view.rows):,} ended", style="bold")
    states = view.states
    for state in (
        RowState.NEEDS_YOU,
        RowState.RUNNING,
        RowState.STARTING,
        RowState.WAITING,
        RowState.AGAIN,
        RowState.FAILED,
    ):
        if states[state]:
            line.append("  ", style="not bold").append(f"{states[state]:,} {state}", style=COLORS[state])
    line.append(f"  {span(seconds)}", style="dim")
    for name in view.away:
        line.append(f"  {name} is away", style="bold red")
    return line


def rows(shown: Shown, width: int, most: int) -> list[Text]:
    """A line with the names of the columns, and one for each of the newest rows."""
    found = newest(shown, max(0, most - 1))
    if not found:
        return [Text("no row is there yet", style="dim")][:most]
    ids = max(4, *(len(str(row.id)) for row in found))
    queue = min(WIDEST_QUEUE, max(5, *(cell_len(row.queue) for row in found)))
    node = min(8, max(2, *(cell_len(row.node or "") for row in found)))
    lines = [Text(f"{'task':>{ids}} {'queue':{queue}} {'state':11} {'on':{node}} ", style="bold")]
    lines[0].append("why it waits, or what came of it")
    for row in found:
        line = Text(f"{row.id:>{ids}} {cell(row.queue, queue)} ")
        line.append(f"{row.state:11}", style=COLORS[row.state]).append(f" {cell(row.node or '', node)} ")
        told = row_in_words(row, shown.shows.get(row.id, ""))
        is_reason = row.status == "waiting" and row.state is not RowState.AGAIN
        lines.append(line.append(fitting(told, width - line.cell_len) if is_reason else told))
    return lines


def queues(shown: Shown) -> list[Text]:
    """One line for each queue with waiting rows, the longest line first."""
    view = shown.view
    if view.queues is None:
        return [Text("what the rows wait for is not known at the moment", style="dim")]
    told = [(queue, queue_in_words(queue, view, shown.left.get(queue.queue))) for queue in view.queues]
    ordered = sorted(told, key=lambda one: (-sum(one[0].reasons.values()), one[0].queue))
    return [
        Text(f"{for_terminal(queue.queue)}: ", style="bold").append(words, style="yellow")
        for queue, words in ordered
        if words
    ]


def nodes(loads: Sequence[NodeLoad], width: int) -> list[Text]:
    """The nodes side by side, as many as fit into `width`. With width 0 each has its own line."""
    told = [load(node) for node in loads]
    if not width or not told:
        return told
    line = Text("   ").join(told)
    return [line] if line.cell_len <= width else told[:2]


def load(node: NodeLoad) -> Text:
    """The requested part of the node's cores, as a bar and in numbers."""
    full = round(BAR * min(1, node.used / node.cores)) if node.cores else 0
    pods = "1 Pod" if node.pods == 1 else f"{node.pods} Pods"
    bar = "█" * full + "░" * (BAR - full)
    return (
        Text(f"{for_terminal(node.name)} ")
        .append(bar, style="cyan")
        .append(f" {node.used:g}/{node.cores:g} cpu, {pods}")
    )


def news(lines: Sequence[str], most: int) -> list[Text]:
    """The newest lines, and as many empty ones as keep the height."""
    told = [Text(line, style="dim") for line in lines[-most:]] if most > 0 else []
    return told + [Text()] * (most - len(told))


def title(words: str, width: int) -> Text:
    return Text(f"── {words} ".ljust(width, "─"), style="dim")


def fitting(told: str, width: int) -> str:
    """A reason, without its first part if it is too long: the detail says more than the meaning."""
    _, _, detail = told.partition(": ")
    return detail if detail and cell_len(told) > width else told


def cell(text: str, width: int) -> str:
    """The text in exactly `width` cells."""
    clean = for_terminal(text)
    return set_cell_size(clean, width) if cell_len(clean) <= width else f"{set_cell_size(clean, width - 1)}…"
