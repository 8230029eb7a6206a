"""Makes `docs/demo.svg`: one picture of a real `dispatcher demo`. Run as `python -m docs.make_picture`."""

import asyncio
import io
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.terminal_theme import DIMMED_MONOKAI

from dispatcher.programs.demo.picture import draw
from dispatcher.programs.demo.run import DemoRun, Options
from dispatcher.programs.demo.view import DemoView
from dispatcher.runtime.logs import configure_logs

WIDTH = 96
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', monospace"
SVG = f"""<svg class="rich-terminal" viewBox="0 0 {{width}} {{height}}" xmlns="http://www.w3.org/2000/svg">
<style>
.{{unique_id}}-matrix {{{{ font-family: {FONT}; font-size: {{char_height}}px; line-height: {{line_height}}px; }}}}
.{{unique_id}}-title {{{{ font-family: sans-serif; font-weight: bold; font-size: 18px; }}}}
{{styles}}
</style>
<defs>
<clipPath id="{{unique_id}}-clip-terminal">
<rect x="0" y="0" width="{{terminal_width}}" height="{{terminal_height}}" />
</clipPath>
{{lines}}
</defs>
{{chrome}}
<g transform="translate({{terminal_x}}, {{terminal_y}})" clip-path="url(#{{unique_id}}-clip-terminal)">
{{backgrounds}}
<g class="{{unique_id}}-matrix">
{{matrix}}
</g>
</g>
</svg>
"""


class RecordedDemo(DemoRun):
    """A demo that keeps all that it shows."""

    def __init__(self) -> None:
        super().__init__(Options(tasks=40), Console(file=io.StringIO(), width=WIDTH))
        self.frames: list[tuple[DemoView, list[str]]] = []

    def _show_view(self, view: DemoView, live: Live | None) -> None:
        super()._show_view(view, live)
        self.frames.append((view, list(self._news)))


def richness(frame: tuple[DemoView, list[str]]) -> tuple[int, int]:
    """How much a frame shows, for comparison: states and busy nodes, then how close it is to half of the rows ended."""
    view, _ = frame
    return len(view.states) + sum(node.pods > 0 for node in view.nodes), -abs(len(view.rows) // 2 - view.ended)


async def main() -> None:
    configure_logs("error")
    demo = RecordedDemo()
    await demo.run(asyncio.Event())
    number, (view, lines) = max(enumerate(demo.frames), key=lambda pair: richness(pair[1]))
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(draw(view, lines, 2 + number / 5, WIDTH))
    svg = console.export_svg(title="dispatcher demo", theme=DIMMED_MONOKAI, code_format=SVG, unique_id="demo")
    Path(__file__).with_name("demo.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
