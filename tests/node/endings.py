"""Rows that end in different ways, and what is seen of each end."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from tests.node.installation import Installation
from tests.node.place import REGISTRY
from tests.rig.postgres import Record

ABSENT: Final = f"{REGISTRY}/absent:1"
NO_REGISTRY: Final = "127.0.0.1:9/task:1"
BEGUN: Final = Counter(start=1)
WHOLE: Final = Counter(start=1, end=1)


class Rows:
    """Rows by what happens to them. All of them wait at once."""

    def __init__(self, there: Installation, ids: Mapping[str, int]) -> None:
        self.there = there
        self.ids = ids

    async def ended(self, name: str, seconds: float = 60) -> tuple[Record, Counter[str]]:
        """The row, and how often its task began and ended its work."""
        row = await self.there.ended(self.ids[name], seconds)
        return row, (await self.there.traces([row["id"]]))[row["id"]]

    async def cause(self, name: str) -> str:
        """The reason of the last launch in the history. The history has it once the Pod was seen."""

        async def told() -> str | None:
            history = await self.there.history(self.ids[name])
            return history[-1]["reason"] if history else None

        return str(await self.there.site.plane.wait_for(told, f"the cause of {name}", 30))


async def quick(there: Installation) -> Rows:
    asked = {
        "copied": there.insert("sleep", 1, template="copied"),
        "fails": there.insert("exit", 65),
        "asks again": there.insert("exit", 75, max_failures=1),
        "cancelled": there.insert("sleep", 600),
        "eats": there.insert("eat", max_failures=1),
        "child eats": there.insert("child", max_failures=1),
        "plain": there.insert("sleep", 1, template="plain"),
        "plain fails": there.insert("exit", 3, template="plain", max_failures=1),
        "plain eats": there.insert("eat", template="plain", max_failures=1),
    }
    return Rows(there, {name: await insert for name, insert in asked.items()})


async def slow(there: Installation) -> Rows:
    """Rows whose ends take a minute: a deadline passes, or the janitor waits for a run that does not report."""
    asked = {
        "late": there.insert("sleep", 600, timeout_seconds=5, max_failures=1),
        "absent": there.insert("sleep", 1, spec={"image": ABSENT}),
        "no registry": there.insert("sleep", 1, spec={"image": NO_REGISTRY}),
    }
    return Rows(there, {name: await insert for name, insert in asked.items()})
