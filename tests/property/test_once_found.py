"""What the machine found: each a short story of its own, so that nobody has to look for it again."""

from datetime import timedelta

import msgspec

from dispatcher.model.jobs import Phase
from dispatcher.model.tasks import Queue, Status
from tests.property.api import Fate
from tests.property.rows import Wish
from tests.property.world import Lot, World


def look(world: World) -> None:
    world.replicas["A"].view.catch_up()
    world.tick("A")


def started(world: World) -> None:
    """One row, launched and taken by its container."""
    world.insert(Wish())
    world.tick("A")
    world.bring_up()
    world.run(to_the_end=False)


def test_a_row_of_a_paused_queue_does_not_keep_the_probe_of_its_template() -> None:
    world = World()
    started(world)
    world.leave(world.cluster.containers[0], 1)  # to be launched again, once its queue is open
    world.declare(Queue("default", paused_until=world.clock.of_rows + timedelta(days=3)))
    world.pass_time(120)
    world.insert(Wish("other"))
    world.replicas["A"].api.fates = [Fate.BROKEN]
    for _ in range(20):
        world.turn()
    assert world.table.rows[2].task.status is Status.SUCCEEDED
    world.close()


def test_somebody_elses_job_under_the_name_of_a_launch_that_is_gone_is_not_waited_for() -> None:
    world = World()
    started(world)
    (job,) = world.cluster.jobs.values()
    world.delete_by_hand(job)
    world.cluster.bury(world.cluster.jobs[job.name])
    world.cluster.put(msgspec.structs.replace(job, uid="foreign", identity="0" * 64, phase=Phase.COMPLETE))
    for _ in range(20):
        world.turn()
    assert world.table.rows[1].task.status is Status.SUCCEEDED
    world.close()


def test_a_create_after_a_slow_question_is_not_forgotten_before_it_can_land_no_more() -> None:
    world = World()
    started(world)
    (job,) = world.cluster.jobs.values()
    world.delete_by_hand(job)
    world.cluster.bury(world.cluster.jobs[job.name])
    world.pass_time(60)
    world.replicas["A"].api.fates = [Fate.HELD, Fate.LATE]  # the question about launch 1, then the create of launch 2
    look(world)
    world.pass_time(9)
    world.wires.release(world.wires.held[0], Fate.FINE)
    world.go_on()
    world.table.cancel(1)  # nobody repeats the create
    world.table.retry(1)
    world.pass_time(12)
    look(world)
    look(world)  # attempt 2 is launched, although launch 2 of attempt 1 can still land
    (late,) = world.wires.late
    world.wires.land(late)
    assert len(list(world.cluster.unfinished())) == 1
    world.close()


def test_a_row_that_is_dropped_after_a_slow_sweep_has_read_it_loses_its_job() -> None:
    """The row was over when it was read, and what is over stays over."""
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


def test_a_row_that_was_hidden_until_its_job_was_removed_runs_once_more_and_ends() -> None:
    """Its failure is forgotten with the Job, so it may fail once more than its `max_failures`."""
    world = World()
    started(world)
    world.lots[1] = Lot.FAILS
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
