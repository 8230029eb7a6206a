"""Makes `docs/demo.svg`: one picture of a real `dispatcher demo`. Run as `python -m docs.make_demo_picture`."""

import asyncio
import io
from pathlib import Path

from msgspec import structs
from rich.console import Console, Group
from rich.terminal_theme import DIMMED_MONOKAI

from dispatcher.runtime.logs import configure_logs
from dispatcher_demo import run as keys
from dispatcher_demo.observe import DemoView
from dispatcher_demo.picture import Shown, draw
from dispatcher_demo.run import DemoRun
from dispatcher_demo.samples import Options

WIDTH = 96
HEIGHT = 26
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
        super().__init__(Options(), Console(file=io.StringIO(), width=WIDTH))
        self.frames: list[Shown] = []

    def _take(self, view: DemoView) -> None:
        super()._take(view)
        self.frames.append(structs.replace(self.shown(), pinned=[keys.line(is_paused=False)]))


def richness(frame: Shown) -> tuple[int, int]:
    """How much a frame shows, for comparison: words for rows and busy nodes, and whether Postgres is back."""
    view = frame.view
    is_back = any(words.startswith("Postgres is back") for words in frame.news[-5:])
    return len(view.states) + sum(node.pods > 0 for node in view.nodes) + 2 * is_back, -abs(10 - view.ended)


async def main() -> None:
    configure_logs("error")
    demo = RecordedDemo()
    await demo.run(asyncio.Event())
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Group(*draw(max(demo.frames, key=richness), WIDTH, HEIGHT)))
    svg = console.export_svg(title="dispatcher demo", theme=DIMMED_MONOKAI, code_format=SVG, unique_id="demo")
    Path(__file__).with_name("demo.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
