"""A run of the model: its bounds and faults, its rules, and its list of steps.

A fair step happens by itself sooner or later. Any other step may happen or not. Progress (S5) counts fair steps only.
The other laws must hold after every step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dispatcher.jobs.observed import TaskWithJobs
from dispatcher.jobs.outcome import TABLE
from tests.model.decisions import Decisions, Line
from tests.model.row import Row, is_over
from tests.model.state import AttemptHistory, Create, Left, State, tidied, tidied_view

DISRUPTION = "disruption"
PARTITION = "partition"
DELETION = "deletion of a Pod"
FORCED = "forced deletion of a Pod"
FOREIGN = "foreign deletion of an unfinished Job"
TOMBSTONES = "foreign deletion of a finished Job"
LOST_POST = "lost POST"
LOST_ANSWER = "lost answer of a POST"
LATE_POST = "late POST"
LOST_START = "lost answer of task_start"
TWIN = "second Pod of a Job"
SECOND_PROCESS = "second process in a Pod"
REJECTION = "rejection of a Pod by its kubelet"

POSTS = frozenset({LOST_POST, LOST_ANSWER, LOST_START})
PODS = frozenset({DISRUPTION, PARTITION, FORCED})
NO_FOREIGN = POSTS | PODS | {LATE_POST}
ANY = NO_FOREIGN | {FOREIGN, TOMBSTONES}


@dataclass(frozen=True)
class Configuration:
    """One run. `launches`, `attempts`: the search stops at higher numbers."""

    name: str
    kinds: frozenset[str] = frozenset()
    faults: int = 0
    cancels: int = 0
    retries: int = 0
    deposed: int = 0
    restores: int = 0
    pauses: int = 0
    janitor: str = ""  # fresh: reads and acts at once; stale: others act in between
    attempts: int = 2
    launches: int = 3
    max_failures: int = 2
    max_launches: int = 2
    most_creates: int = 0
    """The most creates that are allowed; 0: any number."""
    exits: bool = True
    """Containers may end with 0 or 1 at any point."""
    retry_reports: bool = True
    lags: bool = True
    """Views may be of any age. Otherwise each view is fresh."""
    is_stuck: bool = False
    """Pods never start. Only a deadline ends them."""
    is_full: bool = False
    """Each Pod waits for a node, for any time."""
    sweeps: bool = False
    """The sweep is a step of its own. Otherwise Jobs that it would delete are gone at once; `tidied` has the reason."""
    forgets: bool = False
    """The sweep also takes Jobs of the row's own attempt that count for nothing. In production that is an hour later.
    Then no POST is on its way, and no container that outlived its Pod is about to start.
    """
    never_back: bool = False
    """Nodes that become unreachable stay so."""
    names_process: bool = True
    """Containers send a run_id."""
    report: str = "sql"
    refusal: bool = False
    """The janitor does not find the template of the row."""


@dataclass(frozen=True)
class Rules:
    """The protocol, or the protocol without a rule.

    without: rules that the model's own lines leave out.
    table: the table of outcomes.
    case: the class that computes N.
    """

    without: frozenset[str] = frozenset()
    table: Sequence[Line] = TABLE
    case: type[TaskWithJobs] = TaskWithJobs


WHOLE = Rules()


class Broken(Exception):
    """A law does not hold. `by`: the text of the step that broke it, with `{}` for `subject`."""

    def __init__(self, message: str, by: str = "", subject: object = "") -> None:
        super().__init__(message)
        self.message, self.by, self.subject = message, by, subject


@dataclass
class World:
    """A configuration under rules.

    steps: the steps from state `at`, each as (text, subject, whether fair, next state).
    """

    config: Configuration
    rules: Rules = WHOLE
    steps: list[tuple[str, object, bool, State]] = field(default_factory=list)
    at: State = field(default_factory=lambda: State(Row(), Left()))
    is_cut: bool = False
    """A step from this state was left out, because it exceeds the bounds."""

    def __post_init__(self) -> None:
        config, rules = self.config, self.rules
        self.decisions = Decisions(
            config.max_failures, config.max_launches, config.report, config.refusal, rules.table, rules.case,
            rules.without, config.forgets,
        )  # fmt: skip

    def first(self) -> State:
        config = self.config
        left = Left(
            config.faults, config.cancels, config.retries, config.deposed, config.restores, pauses=config.pauses
        )
        return State(Row(), left)

    def may(self, kind: str, state: State) -> bool:
        return state.left.faults > 0 and kind in self.config.kinds

    def lacks(self, rule: str) -> bool:
        return rule in self.rules.without

    def step(self, words: str, subject: object, state: State, *, fair: bool = False) -> None:
        if not self.config.sweeps:
            state = tidy(state, self.at)
        self.steps.append((words, subject, fair, state))


def spent(left: Left) -> Left:
    return left._replace(faults=left.faults - 1)


def settled(row: Row) -> Row:
    """The row without columns that cannot matter any more. For a terminal row only the attempt and the status count. A
    token that it still has is kept, because that is a fault.
    """
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
    """The state with a changed row. The history begins anew with each attempt."""
    row = settled(row)
    history = AttemptHistory() if row.attempt != state.row.attempt or is_over(row) else state.history
    return state._replace(row=row, history=history, left=left or state.left)
