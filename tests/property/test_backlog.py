"""I7: a row that can be launched is launched within a few looks, behind any backlog of other rows."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.model.tasks import Queue
from tests.property import disturbances
from tests.property.api import Outcome
from tests.property.profiles import STORY
from tests.property.rows import NewTask
from tests.property.world import LaunchFault, World

MANY: Final = 260
MOST_LOOKS: Final = 24
"""While creates are tried one at a time, each row that the API server refuses takes one look. There are ten of them."""


def bad_templates(world: World) -> None:
    world.insert(NewTask(priority=0, template="unknown"), MANY)
    world.insert(NewTask(priority=0, template="broken"), 3)


def denied(world: World) -> None:
    world.insert(NewTask(priority=0, spec={"cpu": "64"}), MANY)


def refused(world: World) -> None:
    """Five pairs of rows, each pair of another kind, so that each kind is tried."""
    for number in range(5):
        ids = world.insert(NewTask(priority=0, env={f"A{number}": ""}), 2)
        world.cluster.poison |= set(map(str, ids))


def over_submitter_cap(world: World) -> None:
    world.set_queue(Queue("default", max_jobs_per_submitter=1))
    world.insert(NewTask(priority=0, submitted_by="noisy"), MANY)


def in_paused_queue(world: World) -> None:
    world.set_queue(Queue("other", paused_until=world.clock.of_rows + timedelta(days=1)))
    world.insert(NewTask("other", priority=0), MANY)


def not_due(world: World) -> None:
    world.insert(NewTask(priority=0, run_at=world.clock.of_rows + timedelta(days=1)), MANY)


def failing_launches(world: World) -> None:
    """Rows whose launches fail and are repeated after a pause."""
    world.launch_faults |= dict.fromkeys(
        world.insert(NewTask("other", priority=0, template="other"), 2), LaunchFault.FAILS
    )


def missing_image(world: World) -> None:
    """Three launches whose image cannot be pulled. Their launch group is then tried one at a time."""
    world.insert(NewTask("other", priority=0, template="other", max_failures=1), 3)
    look(world)
    world.start_pods()
    for number in range(3):
        disturbances.act_pod(world, number, "image")


def cancelled(world: World) -> None:
    for id_ in world.insert(NewTask(priority=0), 2):
        world.table.cancel(id_)


BACKLOGS: Final[list[Callable[[World], None]]] = [
    bad_templates, denied, refused, over_submitter_cap, in_paused_queue, not_due, failing_launches, missing_image,
    cancelled,
]  # fmt: skip
troubles = st.lists(
    st.sampled_from([Outcome.LOST, Outcome.ANSWER_LOST, Outcome.THROTTLED, Outcome.SERVER_ERROR, Outcome.PROXY]),
    max_size=3,
)


def look(world: World) -> None:
    world.replicas["A"].view.catch_up()
    world.tick("A")


@STORY
@given(st.lists(st.sampled_from(BACKLOGS), max_size=4, unique=True), troubles)
def test_launchable_row_is_launched_behind_any_backlog(
    backlogs: list[Callable[[World], None]], trouble: list[Outcome]
) -> None:
    world = World()
    try:
        for add_rows in backlogs:
            add_rows(world)
        world.replicas["A"].api.outcomes.extend(trouble)
        (good,) = world.insert(NewTask(priority=200, submitted_by="patient"))
        for number in range(MOST_LOOKS):
            look(world)
            world.pass_time(5)
            if number % 2:
                world.cluster_turn()
        assert any(job.task_id == good for job in world.cluster.jobs.values())
    finally:
        world.close()
