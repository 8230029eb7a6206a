"""I13: a dispatcher that is killed between two calls and started again makes the same Jobs as one that runs on."""

from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.model.tasks import Queue
from tests.property.api import Outcome
from tests.property.endings import undone
from tests.property.profiles import STORY
from tests.property.rows import NewTask
from tests.property.world import LaunchFault, World

MOST_TURNS: Final = 60
new_tasks = st.builds(
    NewTask, queue=st.sampled_from(["default", "other"]), submitted_by=st.sampled_from(["team_a", "team_b"]),
    priority=st.integers(0, 2), max_failures=st.integers(1, 3), template=st.sampled_from(["default", "other"]),
)  # fmt: skip


class Scenario(msgspec.Struct, frozen=True):
    """Rows, a cap of their queue, and the ids of rows that fail at first."""

    new_tasks: list[NewTask]
    cap: int
    failing_ids: frozenset[int]


scenarios = st.builds(
    Scenario,
    st.lists(new_tasks, min_size=1, max_size=6),
    st.integers(1, 3),
    st.frozensets(st.integers(1, 6), max_size=3),
)


def result_of(scenario: Scenario, kill_at: int | None, *, landed: bool = False) -> tuple[set[str], dict[int, str]]:
    """Names of all Jobs that were made, and the final status of each row. The process dies with request `kill_at`."""
    world = World()
    try:
        world.set_queue(Queue("default", max_jobs=scenario.cap))
        world.launch_faults = dict.fromkeys(scenario.failing_ids, LaunchFault.FAILS_AT_FIRST)
        for new_task in scenario.new_tasks:
            world.insert(new_task)
        if kill_at is not None:
            world.replicas["A"].api.outcomes = [*[Outcome.FINE] * kill_at, Outcome.HELD]
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
    for held in world.network.held:
        if landed and held.manifest is not None:
            held.api.make(held.manifest)
        world.crash("A")
        return


@pytest.mark.slow
@STORY
@given(scenarios, st.integers(0, 12), st.booleans())
def test_a_killed_dispatcher_makes_the_same_jobs(scenario: Scenario, kill_at: int, landed: bool) -> None:
    assert result_of(scenario, kill_at, landed=landed) == result_of(scenario, None)
