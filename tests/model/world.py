"""What a run of the model may do: bounds and faults of a configuration, the rules that hold, how a step is told.

A step is fair if it happens sooner or later by itself; else somebody or something may do it, or not. Progress is asked
of fair steps alone; safety of all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dispatcher.jobs.observed import TaskWithJobs
from dispatcher.jobs.outcome import TABLE
from tests.model.decisions import Decisions, Line
from tests.model.row import Row, is_over
from tests.model.state import CacheHistory, Create, Left, State, tidied, tidied_view

DISRUPTION = "disruption"
PARTITION = "partition"
FORCED = "forced deletion of a Pod"
FOREIGN = "foreign deletion of an unfinished Job"
TOMBSTONES = "foreign deletion of a finished Job"
LOST_POST = "lost POST"
LOST_ANSWER = "lost answer of a POST"
LATE_POST = "late POST"
LOST_START = "lost answer of task_start"
TWIN = "second Pod of a Job"

POSTS = frozenset({LOST_POST, LOST_ANSWER, LOST_START})
PODS = frozenset({DISRUPTION, PARTITION, FORCED})
NO_FOREIGN = POSTS | PODS | {LATE_POST}
ANY = NO_FOREIGN | {FOREIGN, TOMBSTONES}


@dataclass(frozen=True)
class Configuration:
    """One run. `launches`, `attempts`: what lies behind is not explored."""

    name: str
    kinds: frozenset[str] = frozenset()
    faults: int = 0
    cancels: int = 0
    retries: int = 0
    deposed: int = 0
    restores: int = 0
    janitor: str = ""  # fresh: it reads and acts at once; stale: others act in between
    attempts: int = 2
    launches: int = 3
    max_failures: int = 2
    max_launches: int = 2
    most_creates: int = 0
    """Not 0: a run with more creates is a fault."""
    exits: bool = True
    """Containers may end with 0 or 1 at any point."""
    retry_reports: bool = True
    lags: bool = True
    """Views may be of any age; else each is of now."""
    is_stuck: bool = False
    """Pods never start: only a deadline ends them."""
    sweeps: bool = False
    """The sweep is a step of its own; else what it would remove goes at once, which loses nothing: `tidied`."""
    never_back: bool = False
    """Nodes that are lost stay lost."""
    report: str = "sql"
    refusal: bool = False
    """The janitor knows no such template."""


@dataclass(frozen=True)
class Rules:
    """The protocol, or the protocol without something: `without` names what the model's own few lines leave out."""

    without: frozenset[str] = frozenset()
    table: Sequence[Line] = TABLE
    case: type[TaskWithJobs] = TaskWithJobs


WHOLE = Rules()


class Broken(Exception):
    """A property does not hold; `by` tells the step that broke it."""

    def __init__(self, says: str, by: str = "", who: object = "") -> None:
        super().__init__(says)
        self.says, self.by, self.who = says, by, who


@dataclass
class World:
    """A configuration under rules; steps are taken down in `steps` as (words, whom, whether fair, next state)."""

    config: Configuration
    rules: Rules = WHOLE
    steps: list[tuple[str, object, bool, State]] = field(default_factory=list)
    at: State = field(default_factory=lambda: State(Row(), Left()))
    is_cut: bool = False
    """A step of this state was left out because it lies behind the bounds."""

    def __post_init__(self) -> None:
        config, rules = self.config, self.rules
        self.decisions = Decisions(
            config.max_failures, config.max_launches, config.report, config.refusal, rules.table, rules.case,
            rules.without,
        )  # fmt: skip

    def first(self) -> State:
        config = self.config
        left = Left(config.faults, config.cancels, config.retries, config.deposed, config.restores)
        return State(Row(), left)

    def may(self, kind: str, state: State) -> bool:
        return state.left.faults > 0 and kind in self.config.kinds

    def lacks(self, rule: str) -> bool:
        return rule in self.rules.without

    def take(self, words: str, who: object, state: State, *, fair: bool = False) -> None:
        if not self.config.sweeps:
            state = tidy(state, self.at)
        self.steps.append((words, who, fair, state))


def spent(left: Left) -> Left:
    return left._replace(faults=left.faults - 1)


def settled(row: Row) -> Row:
    """Of a row that is over nothing but the attempt counts for what may happen; a token that stays is a fault."""
    return Row(row.status, row.attempt, token=row.token, uid=row.uid if row.token else 0) if is_over(row) else row


def tidy(state: State, before: State) -> State:
    row = state.row
    if row is before.row and state.jobs is before.jobs and state.view is before.view:
        return state
    over = is_over(row)
    jobs = tidied(state.jobs, row.attempt, over)
    view = tidied_view(state.view, row.attempt, over)
    stale = state.stale
    if stale is not None and not isinstance(stale, Create | Row):
        stale = tidied_view(stale, row.attempt, over)
    return state._replace(jobs=jobs, view=view, stale=stale)


def moved(state: State, row: Row, left: Left | None = None) -> State:
    """With the row as it is now; what the checks remember begins anew with each attempt."""
    row = settled(row)
    past = CacheHistory() if row.attempt != state.row.attempt or is_over(row) else state.past
    return state._replace(row=row, past=past, left=left or state.left)
