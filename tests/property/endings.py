"""The end of every run, after all faults are over and every part gets its turns: invariants I7, I10 and I21.

A row that waits for a person may stay. Its reason shows this: it has to be one of the reasons that park a row. There is
no janitor in this world, so parked rows do not end.
"""

from typing import Final

from dispatcher.model.verdicts import PARKED, Hold, HoldReason
from tests.property.rows import indexed_row
from tests.property.world import World

MOST_TURNS: Final = 240
QUIET_TURNS: Final = 6


def check_end(world: World) -> None:
    """Checks that all rows and Jobs end within MOST_TURNS, and that there are no writes after that."""
    world.calm_down()
    for _ in range(MOST_TURNS):
        world.turn()
        if not undone(world):
            break
    assert not undone(world), f"I7, I10: after {MOST_TURNS} fair turns {undone(world)}"
    check_quiet(world)


def check_quiet(world: World) -> None:
    """Checks that there are no writes in the next turns, also after a long time, but for rows that were refused."""
    writes = world.network.writes - world.laws.refusals
    for turn in range(QUIET_TURNS):
        world.turn()
        world.pass_time(100 * turn)
    more = world.network.writes - world.laws.refusals - writes
    assert not more, f"I21: {more} writes with nothing to do"


def undone(world: World) -> list[str]:
    rows = [f"task {id_}: {why}" for id_ in world.open_rows() if (why := why_open(world, id_))]
    jobs = [f"Job {job.name} runs" for job in world.cluster.unfinished()]
    asked = [f"create of {name} is not answered" for name in world.replicas["A"].unanswered()]
    return rows + jobs + asked + [f"Job {name} is left" for name in world.leftovers()]


def why_open(world: World, id_: int) -> str:
    """Why the row should have ended; empty: it rightly waits for a person."""
    task, leader = world.table.rows[id_].task, world.replicas["A"]
    hold: object = leader.dispatch.decision.plan.holds.get(id_) or leader.dispatch.picture.refused(indexed_row(task))
    hold = hold or leader.catalog.known_offer(task.kind)
    if not isinstance(hold, Hold):
        return f"{task.status}, never judged" if hold is None else f"{task.status}, passed over"
    is_cancelled = hold.reason is HoldReason.FINISHING and task.cancel_requested_at is not None
    is_held_by_others = hold.reason is HoldReason.POISON and str(id_) not in world.cluster.poison
    if (hold.reason in PARKED or is_cancelled) and not is_held_by_others:
        return ""
    return f"{task.status}, {hold.reason}: {hold.detail}"
