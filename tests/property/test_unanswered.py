"""I12: a create without an answer makes one Job of its name or none, also if its row changes before."""

from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.api import Outcome
from tests.property.endings import check_end
from tests.property.profiles import FACT
from tests.property.rows import NewTask
from tests.property.world import World

ACTS: Final[dict[str, Callable[[World], None]]] = {
    "nothing": lambda world: None,
    "retry": lambda world: world.table.retry(1),
    "cancel": lambda world: world.table.cancel(1),
    "start Pods": lambda world: world.start_pods(),
    "start": lambda world: world.run(to_the_end=False),
    "land": lambda world: world.release_all(),
    "see": lambda world: world.replicas["A"].view.catch_up(),
}
acts = st.sampled_from(["retry", "retry", "land", *sorted(ACTS)])
moves = st.lists(st.tuples(acts, st.sampled_from([1, 1, 4, 9])), min_size=2, max_size=8)
outcomes = st.sampled_from(
    [Outcome.LATE, Outcome.LATE, Outcome.HELD, Outcome.ANSWER_LOST, Outcome.LOST, Outcome.SERVER_ERROR]
)


@pytest.mark.slow
@FACT
@given(outcomes, moves)
def test_create_that_may_still_land_prevents_another_job(outcome: Outcome, moves: list[tuple[str, int]]) -> None:
    world = World()
    try:
        world.insert(NewTask())
        world.replicas["A"].api.outcomes = [outcome]
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
