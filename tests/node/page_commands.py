"""The commands of the operator's page and of the runbooks, as they run on nodes.

A command of ours without a namespace runs in its Pod, as the page says.
"""

from collections.abc import Mapping
from typing import Final

from tests.node.install import OURS
from tests.rig.pages import ENABLES_SCHEDULER, OPERATOR, commands_for_nodes, find_block, without_comment

PLACES: Final[Mapping[str, str]] = {
    "dispatcher janitor": "deployment/dispatcher-janitor",
    "dispatcher extender": "deployment/dispatcher-scheduler -c extender",
}
"""Where a command of ours runs that is no question to the dispatcher."""


def in_its_place(line: str) -> str:
    """The command of ours in its Pod, unless it names a namespace. Other commands stay."""
    if not line.startswith("dispatcher ") or "--namespace" in line:
        return line
    place = PLACES.get(" ".join(line.split()[:2]), "deployment/dispatcher")
    return f"kubectl -n {OURS} exec {place} -- {line}"


BY_FIXTURE: Final = [without_comment(line) for line in find_block(OPERATOR, ENABLES_SCHEDULER).splitlines()]
COMMANDS: Final = list(dict.fromkeys(in_its_place(line) for line in commands_for_nodes() if line not in BY_FIXTURE))
