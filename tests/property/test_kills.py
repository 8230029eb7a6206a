"""I13: killed between any two calls and started again, a dispatcher makes the same Jobs as one that was not."""

from typing import Final

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.model.tasks import Queue
from tests.property.api import Fate
from tests.property.endings import undone
from tests.property.profiles import STORY
from tests.property.rows import Wish
from tests.property.world import Lot, World

MOST_TURNS: Final = 60
wishes = st.builds(
    Wish, queue=st.sampled_from(["default", "other"]), submitted_by=st.sampled_from(["team_a", "team_b"]),
    priority=st.integers(0, 2), max_failures=st.integers(1, 3), template=st.sampled_from(["default", "other"]),
)  # fmt: skip


class Tale(msgspec.Struct, frozen=True):
    """Rows, a cap, and which of them fail at first."""

    wishes: list[Wish]
    cap: int
    unlucky: frozenset[int]


tales = st.builds(
    Tale, st.lists(wishes, min_size=1, max_size=6), st.integers(1, 3), st.frozensets(st.integers(1, 6), max_size=3)
)


def ending(tale: Tale, kill_at: int | None, *, landed: bool = False) -> tuple[set[str], dict[int, str]]:
    """All Jobs that were ever made, and what became of the rows; the process dies with its n-th request."""
    world = World()
    try:
        world.declare(Queue("default", max_jobs=tale.cap))
        world.lots = dict.fromkeys(tale.unlucky, Lot.FAILS_AT_FIRST)
        for wish in tale.wishes:
            world.insert(wish)
        if kill_at is not None:
            world.replicas["A"].api.fates = [*[Fate.FINE] * kill_at, Fate.HELD]
        for _ in range(MOST_TURNS):
            world.turn()
            kill_if_held(world, landed=landed)
            if not undone(world):
                break
        assert all(count == 1 for count in world.laws.made.values())
        return set(world.laws.made), {id_: str(row.task.status) for id_, row in world.table.rows.items()}
    finally:
        world.close()


def kill_if_held(world: World, *, landed: bool) -> None:
    for held in world.wires.held:
        if landed and held.manifest is not None:
            held.api.make(held.manifest)
        world.crash("A")
        return


@STORY
@given(tales, st.integers(0, 12), st.booleans())
def test_a_killed_dispatcher_makes_the_same_jobs(tale: Tale, kill_at: int, landed: bool) -> None:
    assert ending(tale, kill_at, landed=landed) == ending(tale, None)
