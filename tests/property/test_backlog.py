"""I7: whatever stands before it, a row that can be launched is, within a few looks."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.model.tasks import Queue
from tests.property import disturbances
from tests.property.api import Fate
from tests.property.profiles import STORY
from tests.property.rows import Wish
from tests.property.world import Lot, World

MANY: Final = 260
MOST_LOOKS: Final = 24
"""While one create at a time is let through, each row that the API server refuses takes one look: there are ten."""


def hopeless(world: World) -> None:
    world.insert(Wish(priority=0, template="unknown"), MANY)
    world.insert(Wish(priority=0, template="broken"), 3)


def denied(world: World) -> None:
    world.insert(Wish(priority=0, spec={"cpu": "64"}), MANY)


def refused(world: World) -> None:
    """Each of another kind, so that each is tried."""
    for number in range(5):
        ids = world.insert(Wish(priority=0, env={f"A{number}": ""}), 2)
        world.cluster.poison |= set(map(str, ids))


def of_a_noisy_team(world: World) -> None:
    world.declare(Queue("default", max_jobs_per_submitter=1))
    world.insert(Wish(priority=0, submitted_by="noisy"), MANY)


def of_a_closed_queue(world: World) -> None:
    world.declare(Queue("other", paused_until=world.clock.of_rows + timedelta(days=1)))
    world.insert(Wish("other", priority=0), MANY)


def not_due(world: World) -> None:
    world.insert(Wish(priority=0, run_at=world.clock.of_rows + timedelta(days=1)), MANY)


def failing(world: World) -> None:
    """Launched, failed, and to be launched again after a pause."""
    world.lots |= dict.fromkeys(world.insert(Wish("other", priority=0, template="other"), 2), Lot.FAILS)


def without_an_image(world: World) -> None:
    """Three launches that cannot start: their lane is let through one at a time."""
    world.insert(Wish("other", priority=0, template="other", max_failures=1), 3)
    look(world)
    world.bring_up()
    for number in range(3):
        disturbances.act_pod(world, number, "image")


def cancelled(world: World) -> None:
    for id_ in world.insert(Wish(priority=0), 2):
        world.table.cancel(id_)


CROWDS: Final[list[Callable[[World], None]]] = [
    hopeless, denied, refused, of_a_noisy_team, of_a_closed_queue, not_due, failing, without_an_image, cancelled,
]  # fmt: skip
troubles = st.lists(st.sampled_from([Fate.LOST, Fate.UNHEARD, Fate.THROTTLED, Fate.BROKEN, Fate.PROXY]), max_size=3)


def look(world: World) -> None:
    world.replicas["A"].view.catch_up()
    world.tick("A")


@STORY
@given(st.lists(st.sampled_from(CROWDS), max_size=4, unique=True), troubles)
def test_a_row_that_can_be_launched_is(crowd: list[Callable[[World], None]], trouble: list[Fate]) -> None:
    world = World()
    try:
        for gather in crowd:
            gather(world)
        world.replicas["A"].api.fates.extend(trouble)
        (good,) = world.insert(Wish(priority=200, submitted_by="patient"))
        for number in range(MOST_LOOKS):
            look(world)
            world.pass_time(5)
            if number % 2:
                world.serve()
        assert any(job.task_id == good for job in world.cluster.jobs.values())
    finally:
        world.close()
