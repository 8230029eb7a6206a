"""The statements of the demo, for its own database: the blocks of `demo.sql`."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from dispatcher.pg.queries import blocks_of


def demo_query(block: str) -> str:
    """One statement with its comment. Raises KeyError if `demo.sql` has no such block."""
    return demo_blocks()[block]


@cache
def demo_blocks() -> Mapping[str, str]:
    """The statements by name."""
    return blocks_of((files("dispatcher_demo") / "demo.sql").read_text(encoding="utf-8"))
