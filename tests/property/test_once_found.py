"""Faults that the state machine of `test_dispatchers.py` found, each as a short test of its own."""

from datetime import timedelta

import msgspec

from dispatcher.model.jobs import Phase
from dispatcher.model.tasks import Queue, Status
from tests.property.api import Outcome
from tests.property.replica import RULES
from tests.property.rows import NewTask
from tests.property.world import LaunchFault, World


def look(world: World, name: str = "A") -> None:
    world.replicas[name].view.catch_up()
    world.tick(name)


def started(world: World) -> None:
    """Inserts one row, launches it, and starts its container."""
    world.insert(NewTask())
    world.tick("A")
    world.start_pods()
    world.run(to_the_end=False)


def test_wait_for_a_node_costs_a_row_nothing() -> None:
    """A full cluster for ten start deadlines, a new leader and a restart: one launch, no failure, no park."""
    world = World()
    world.insert(NewTask())
    world.tick("A")
    (job,) = world.cluster.jobs.values()
    world.cluster.add_pod(job)
    (pod,) = world.cluster.pods.values()
    world.cluster.put_pod(msgspec.structs.replace(pod, unschedulable_since=world.clock.of_cluster))
    for period in range(10):
        world.pass_time(RULES.start_deadline_seconds)
        world.lead("B" if period % 2 else "A")
        world.crash("A" if period % 2 else "B")
        for name in world.replicas:
            look(world, name)
    assert list(world.cluster.jobs.values()) == [job]
    world.cluster.bind(next(iter(world.cluster.pods.values())))
    for _ in range(3):
        world.turn()
    row = world.table.rows[1].task
    assert (row.status, row.attempt, row.launch, row.failures) == (Status.SUCCEEDED, 1, 1, 0)
    world.close()


def test_row_of_a_paused_queue_does_not_block_the_probe_of_its_template() -> None:
    world = World()
    started(world)
    world.exit_container(world.cluster.containers[0], 1)  # launched again once its queue is open
    world.set_queue(Queue("default", paused_until=world.clock.of_rows + timedelta(days=3)))
    world.pass_time(120)
    world.insert(NewTask("other"))
    world.replicas["A"].api.outcomes = [Outcome.SERVER_ERROR]
    for _ in range(20):
        world.turn()
    assert world.table.rows[2].task.status is Status.SUCCEEDED
    world.close()


def test_foreign_job_under_the_name_of_a_deleted_launch_does_not_block_the_row() -> None:
    world = World()
    started(world)
    (job,) = world.cluster.jobs.values()
    world.delete_by_hand(job)
    world.cluster.finish_delete(world.cluster.jobs[job.name])
    world.cluster.put(msgspec.structs.replace(job, uid="foreign", identity="0" * 64, phase=Phase.COMPLETE))
    for _ in range(20):
        world.turn()
    assert world.table.rows[1].task.status is Status.SUCCEEDED
    world.close()


def test_create_after_a_slow_question_is_remembered_until_it_can_land_no_more() -> None:
    world = World()
    started(world)
    (job,) = world.cluster.jobs.values()
    world.delete_by_hand(job)
    world.cluster.finish_delete(world.cluster.jobs[job.name])
    world.pass_time(60)
    # the question about launch 1, then the create of launch 2
    world.replicas["A"].api.outcomes = [Outcome.HELD, Outcome.LATE]
    look(world)
    world.pass_time(9)
    world.network.release(world.network.held[0], Outcome.FINE)
    world.go_on()
    world.table.cancel(1)  # so the create is not repeated
    world.table.retry(1)
    world.pass_time(12)
    look(world)
    look(world)  # attempt 2 is launched, although launch 2 of attempt 1 can still land
    (late,) = world.network.late
    world.network.land(late)
    assert len(list(world.cluster.unfinished())) == 1
    world.close()


def test_sweep_deletes_the_job_of_a_row_dropped_after_a_slow_read() -> None:
    """The row was terminal when the sweep read it. An attempt that is over stays over."""
    world = World()
    started(world)
    world.run(to_the_end=True)
    world.pass_time(120)
    replica = world.replicas["A"]
    replica.view.catch_up()
    replica.database.is_slow = True
    world.tick("A", "sweep")
    del world.table.rows[1]
    replica.database.answer()
    world.go_on()
    assert not list(world.cluster.unfinished())
    assert all(job.deleting for job in world.cluster.jobs.values())
    world.close()


def test_row_hidden_until_its_job_was_swept_runs_once_more_and_ends() -> None:
    """The row's failure is forgotten with its Job, so the row may fail once more than `max_failures`."""
    world = World()
    started(world)
    world.launch_faults[1] = LaunchFault.FAILS
    world.run(to_the_end=True)
    world.table.hidden.add(1)
    for _ in range(20):
        world.turn()
    assert not world.cluster.jobs
    world.table.hidden.clear()
    for _ in range(40):
        world.turn()
    assert world.laws.crashes[1, 1] == world.table.rows[1].task.max_failures + 1
    world.close()
