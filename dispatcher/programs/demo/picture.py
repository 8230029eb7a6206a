"""Draws a view as a picture in the terminal. Pure: rich prints it."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dispatcher.programs.demo.view import STATES, DemoView, NodeLoad

WIDE: Final = 110
"""From this width on the news stand to the right of the nodes."""
NEWS: Final = 8
BAR: Final = 10
COLORS: Final = {
    "waiting": "yellow", "processing": "cyan", "succeeded": "green", "failed": "red", "cancelled": "magenta",
}  # fmt: skip


def draw(view: DemoView, lines: Sequence[str], seconds: float, width: int) -> RenderableType:
    """The picture. `lines`: the news, oldest first. `seconds`: since the start."""
    lower: RenderableType = Group(nodes(view), news(lines))
    if width >= WIDE:
        columns = Table.grid(expand=True, padding=(0, 1))
        columns.add_column(ratio=2)
        columns.add_column(ratio=3)
        columns.add_row(nodes(view), news(lines))
        lower = columns
    return Group(progress(view, seconds, width), queues(view, width), lower)


def progress(view: DemoView, seconds: float, width: int) -> RenderableType:
    total, left = len(view.rows), len(view.rows) - view.ended
    line = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=max(total, 1), completed=view.ended, width=max(10, min(40, width - 36)))
    line.add_row("tasks ended", bar, f"{view.ended}/{total}", Text(f"{left} left, {seconds:.0f} s", style="dim"))
    return line


def queues(view: DemoView, width: int) -> RenderableType:
    """One line per queue. In a narrow terminal the names of the states are short."""
    table = Table(expand=True, box=None, header_style="bold", padding=(0, 1))
    table.add_column("queue", no_wrap=True)
    for state in STATES:
        table.add_column(state if width >= WIDE - 20 else state[:4], justify="right", style=COLORS[state])
    table.add_column("waits for", ratio=1, overflow="fold")
    for queue in sorted({row.queue for row in view.rows}):
        rows = [row for row in view.rows if row.queue == queue]
        counts = [sum(row.status == state for row in rows) for state in STATES]
        table.add_row(queue, *(str(count or "·") for count in counts), view.waiting_for(queue))
    return Panel(table, title="rows", title_align="left", border_style="dim")


def nodes(view: DemoView) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    for node in view.nodes:
        table.add_row(node.name, load(node), f"{node.pods} running")
    return Panel(table, title="nodes", title_align="left", border_style="dim")


def load(node: NodeLoad) -> Text:
    """The requested part of the node's cores, as a bar and in numbers."""
    full = round(BAR * min(1, node.used / node.cores)) if node.cores else 0
    return Text("█" * full + "░" * (BAR - full) + f" {node.used:g}/{node.cores:g} cpu")


def news(lines: Sequence[str]) -> RenderableType:
    newest = lines[-NEWS:]
    text = Text("\n".join(newest) + "\n" * (NEWS - len(newest)), no_wrap=True, overflow="ellipsis")
    return Panel(text, title="what happens", title_align="left", border_style="dim")
