"""I12: a create without an answer ends in no Job or one, under its name, whatever its row does meanwhile."""

from collections.abc import Callable
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from tests.property.api import Fate
from tests.property.endings import check_end
from tests.property.profiles import FACT
from tests.property.rows import Wish
from tests.property.world import World

ACTS: Final[dict[str, Callable[[World], None]]] = {
    "nothing": lambda world: None,
    "retry": lambda world: world.table.retry(1),
    "cancel": lambda world: world.table.cancel(1),
    "bring up": lambda world: world.bring_up(),
    "start": lambda world: world.run(to_the_end=False),
    "land": lambda world: world.release_all(),
    "see": lambda world: world.replicas["A"].view.catch_up(),
}
acts = st.sampled_from(["retry", "retry", "land", *sorted(ACTS)])
moves = st.lists(st.tuples(acts, st.sampled_from([1, 1, 4, 9])), min_size=2, max_size=8)
fates = st.sampled_from([Fate.LATE, Fate.LATE, Fate.HELD, Fate.UNHEARD, Fate.LOST, Fate.BROKEN])


@FACT
@given(fates, moves)
def test_nobody_makes_another_job_beside_a_create_that_may_still_land(fate: Fate, moves: list[tuple[str, int]]) -> None:
    world = World()
    try:
        world.insert(Wish())
        world.replicas["A"].api.fates = [fate]
        world.tick("A")
        for act, seconds in moves:
            ACTS[act](world)
            world.tick("A")
            world.pass_time(seconds)
            world.tick("A")
        check_end(world)
        assert all(count == 1 for count in world.laws.made.values())
    finally:
        world.close()
