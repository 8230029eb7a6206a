"""Several rows under one cap, and changes of the leader (law S7).

`plan_cycle` of production decides which rows are launched, and `plan_load` counts the Jobs. The code here about unseen
creates and the new leader's LIST models `Launcher` and the lease.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from typing import Final, NamedTuple

from dispatcher.admission.cycle import plan_cycle
from dispatcher.admission.gates import Candidate
from dispatcher.admission.snapshot import plan_load
from dispatcher.model.launches import JobsVerdict, Launch, Offer
from tests.rig.builders import a_snapshot, a_task

NONE: Final = 0
ACTIVE: Final = 1
DELETING: Final = 2
OVER: Final = 3
LATE: Final = 4  # active, made by a late POST
OFFER: Final = Offer("image", "small", "default")

Rows = frozenset[int]


class Caps(NamedTuple):
    """One state.

    jobs: state of each row's Job.
    view: the leader's view of the Jobs.
    unseen: rows with an unseen create of the leader.
    sent: rows with a POST of the leader on its way.
    late: rows with a POST of an earlier leader on its way.
    changes: changes of the leader that are left.
    old_view: view of the last leader, if it may still write; None: it may not.
    """

    jobs: tuple[int, ...]
    view: tuple[int, ...]
    unseen: Rows
    sent: Rows
    late: Rows
    changes: int
    old_view: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Rules:
    cap: int
    rows: int = 3
    changes: int = 1
    without: frozenset[str] = frozenset()


@dataclass
class Found:
    states: int = 0
    edges: int = 0
    trace: list[str] = field(default_factory=list)
    """The steps to a state with more Jobs than the cap allows; empty: there is none."""


@cache
def admitted(view: tuple[int, ...], unseen: Rows, rules: Rules) -> frozenset[Rows]:
    """The sets of rows that a cycle with this view and these creates may launch. Other gates may hold any row."""
    counted = {ACTIVE, LATE} if "Jobs being deleted count" in rules.without else {ACTIVE, LATE, DELETING}
    mine = frozenset() if "own unseen creates count" in rules.without else unseen
    holders = [("default", "team_a") for job in view if job in counted] + [("default", "team_a") for _ in mine]
    snapshot = a_snapshot(max_jobs=rules.cap, load=plan_load(holders))
    free = [row for row, job in enumerate(view) if job == NONE and row not in unseen]
    candidates = [Candidate(a_task(id=row + 1), OFFER, JobsVerdict(Launch(1))) for row in free]
    plans = [
        plan_cycle(snapshot, some) for count in range(1, len(free) + 1) for some in combinations(candidates, count)
    ]
    return frozenset(frozenset(one.task.id - 1 for one in plan.launches) for plan in plans) - {frozenset()}


def put(jobs: tuple[int, ...], row: int, job: int) -> tuple[int, ...]:
    return (*jobs[:row], job, *jobs[row + 1 :])


def steps(state: Caps, rules: Rules) -> Iterator[tuple[str, Caps]]:
    for launches in admitted(state.view, state.unseen, rules):
        sent = state._replace(unseen=state.unseen | launches, sent=state.sent | launches)
        yield f"the leader sends {sorted(launches)}", sent
    unseen = state.unseen & state.sent
    yield "the view catches up", state._replace(view=state.jobs, unseen=unseen)
    yield from posts(state)
    yield from lives(state)
    if state.changes:
        yield "another leads", next_leader(state, rules)
    if state.old_view is not None:
        for row in frozenset().union(*admitted(state.old_view, frozenset(), rules)):
            if state.jobs[row] == NONE:
                yield (
                    f"the old leader still makes {row}",
                    state._replace(jobs=put(state.jobs, row, ACTIVE), old_view=None),
                )


def posts(state: Caps) -> Iterator[tuple[str, Caps]]:
    for row in state.sent:
        jobs = state.jobs if state.jobs[row] else put(state.jobs, row, ACTIVE)
        yield f"Job {row} is created", state._replace(jobs=jobs, sent=state.sent - {row})
    for row in state.late:
        jobs = state.jobs if state.jobs[row] not in {NONE, OVER} else put(state.jobs, row, LATE)
        yield f"the late POST of {row} lands", state._replace(jobs=jobs, late=state.late - {row})


def lives(state: Caps) -> Iterator[tuple[str, Caps]]:
    """A Job ends, or somebody deletes it. When a deleted Job is gone, its row is launched again."""
    for row, job in enumerate(state.jobs):
        if job in {ACTIVE, LATE}:
            yield f"Job {row} ends", state._replace(jobs=put(state.jobs, row, OVER))
        if job == ACTIVE:
            yield f"Job {row} is being deleted", state._replace(jobs=put(state.jobs, row, DELETING))
        if job == DELETING:
            yield f"Job {row} is gone", state._replace(jobs=put(state.jobs, row, NONE))


def next_leader(state: Caps, rules: Rules) -> Caps:
    """The new leader lists after winning, so its view is current. POSTs of the old leader may land at any time."""
    view = state.view if "LIST after winning" in rules.without else state.jobs
    late = state.late | state.sent
    old = state.view if "no write without trust" in rules.without else None
    return Caps(state.jobs, view, frozenset(), frozenset(), late, state.changes - 1, old)


def explore_caps(rules: Rules) -> Found:
    first = Caps((NONE,) * rules.rows, (NONE,) * rules.rows, frozenset(), frozenset(), frozenset(), rules.changes)
    came: dict[Caps, tuple[Caps, str] | None] = {first: None}
    queue, found = [first], Found()
    for state in queue:
        for words, after in steps(state, rules):
            found.edges += 1
            if after not in came:
                came[after] = (state, words)
                queue.append(after)
        if sum(job in {ACTIVE, DELETING} for job in state.jobs) > rules.cap:
            found.trace = trace(came, state)
            break
    found.states = len(came)
    return found


def trace(came: dict[Caps, tuple[Caps, str] | None], state: Caps) -> list[str]:
    words: list[str] = []
    while (before := came[state]) is not None:
        state = before[0]
        words.insert(0, before[1])
    return words
