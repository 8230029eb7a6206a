"""The rules of docs/protocol.md, each removed in turn, and the run that shows why it is needed.

Nothing is patched. A rule of `jobs.outcome` is left out of a copy of its table. A rule of SQL is left out of `row.py`.
The other rules are left out of the lines of the model that stand for the code around these decisions.
"""

from dataclasses import dataclass
from typing import Final

from dispatcher.jobs import outcome
from tests.model.decisions import Line
from tests.model.variants import (
    ANY_UID,
    JobsAlone,
    NobodyNoted,
    NobodyRejected,
    RowAlone,
    ends_unplaced,
    forgets_unplaced,
    never_started,
    with_line,
    without_line,
)
from tests.model.world import (
    DELETION,
    DISRUPTION,
    FORCED,
    FOREIGN,
    LATE_POST,
    LOST_ANSWER,
    LOST_START,
    PARTITION,
    REJECTION,
    SECOND_PROCESS,
    TOMBSTONES,
    TWIN,
    Configuration,
    Rules,
)


@dataclass(frozen=True)
class Removed:
    """A rule that is removed.

    section: of docs/protocol.md.
    breaks: the beginning of the message of the law that breaks.
    """

    section: str
    rule: str
    rules: Rules
    run: Configuration
    breaks: str


def kinds(*names: str) -> frozenset[str]:
    return frozenset(names)


def without(*names: str) -> Rules:
    return Rules(frozenset(names))


def table(*lines: Line) -> Rules:
    return Rules(table=without_line(*lines))


def run(*faults: str, count: int = 1, **bounds: object) -> Configuration:
    return Configuration("removed", kinds(*faults), count if faults else 0, **bounds)  # type: ignore[arg-type]  # keeps the table below short


REMOVED: Final = (
    Removed("2", "a name is a lock", without("a name is a lock"), run(LOST_ANSWER), "I1"),
    Removed(
        "2, case 8",
        "no time to live",
        without("no time to live"),
        run(is_stuck=True, exits=False, max_launches=1),
        "S5: fair steps form a cycle",
    ),
    Removed(
        "2, case 16",
        "resourceVersion on deletes",
        without("resourceVersion on deletes"),
        run(deposed=1, attempts=1),
        "S6",
    ),
    Removed(
        "2",
        "uid and resourceVersion on deletes",
        without("uid on deletes", "resourceVersion on deletes"),
        run(FOREIGN, deposed=1, attempts=1),
        "S6",
    ),
    Removed(
        "2, case 1",
        "job_uid in the verdict",
        Rules(table=ANY_UID),
        run(FOREIGN, LATE_POST, count=2, attempts=1, exits=False),
        "S5",
    ),
    Removed("3", "task_start: attempt", without("start: attempt"), run(retries=1), "S4"),
    Removed("3", "task_start: n > launch", without("start: launch"), run(FORCED), "S"),
    Removed("3", "task_start: status", without("start: status"), run(cancels=1, janitor="fresh"), "S3"),
    Removed(
        "3, case 15", "task_start: max_failures", without("start: max_failures"), run(FORCED, max_failures=1), "S11"
    ),
    Removed("3", "task_start: cancel", without("start: cancel"), run(FORCED, cancels=1, janitor="fresh"), "S8"),
    Removed("3, case 5", "task_start: the same Pod again", without("again"), run(LOST_START), "S5"),
    Removed("3", "task_start: the Pod", without("again: pod"), run(TWIN), "S1"),
    Removed(
        "6",
        "a Pod that somebody deleted is no failure",
        Rules(case=NobodyNoted),
        run(DELETION, count=2, attempts=1),
        "S5",
    ),
    Removed(
        "6",
        "a Pod that its kubelet rejected costs nothing",
        Rules(case=NobodyRejected),
        run(REJECTION, count=2, attempts=1),
        "S5",
    ),
    Removed(
        "6",
        "a rejection is noted on the Job",
        Rules(case=NobodyNoted),
        run(REJECTION, count=2, attempts=1),
        "S5",
    ),
    Removed(
        "6",
        "our note takes no other note's place",
        without("resourceVersion on our note"),
        run(REJECTION, attempts=1, deposed=1, exits=False),
        "S5",
    ),
    Removed("3", "task_start: run_id", without("again: run_id"), run(SECOND_PROCESS, attempts=1), "S1"),
    Removed(
        "3",
        "task_start: no run_id, max_failures 1",
        without("again: no run_id"),
        run(SECOND_PROCESS, attempts=1, max_failures=1, names_process=False),
        "S11",
    ),
    Removed(
        "3", "task_start: the second process is noted", without("again: second"), run(SECOND_PROCESS, attempts=1), "S5"
    ),
    Removed("3", "task_start: the uid", without("again: uid"), run(FOREIGN, LATE_POST, count=2, attempts=1), "S1"),
    Removed("3", "task_finish: token", without("finish: token"), run(FORCED), "S2"),
    Removed(
        "3",
        "task_finish: status, and a token that ends",
        without("finish: status", "token ends"),
        run(cancels=1, janitor="fresh"),
        "S9",
    ),
    Removed(
        "3", "task_finish: a cancel ends the row", without("finish: cancel"), run(cancels=1, janitor="fresh"), "S8"
    ),
    Removed("3", "task_finish: max_failures", without("finish: failures"), run(max_failures=1), "S5"),
    Removed("3, case 11", "waiting: a new attempt", without("next: attempt"), run(), "S9"),
    Removed("3, case 14", "waiting: launch 0", without("next: launch"), run(), "S9"),
    Removed("3", "waiting: no cancel", without("next: cancel"), run(cancels=1, retries=1, janitor="fresh"), "S9"),
    Removed("4, 1, case 4", "Jobs first, rows second", without("Jobs first"), run(deposed=1), "S3"),
    Removed("4, 2a, case 2", "ask for that Job", without("ask that-job"), run(deposed=1, attempts=1), "S1"),
    Removed("4, 2b, case 3", "ask for all Jobs", without("ask all-jobs"), run(LATE_POST, retries=1), "I1"),
    Removed("4, 3, case 10", "one unanswered create", without("one unanswered create"), run(retries=1), "I1"),
    Removed("5, case 1", "N not from Jobs alone", Rules(case=JobsAlone), run(FOREIGN, attempts=1), "S5"),
    Removed(
        "5, case 1",
        "N not from Jobs alone, and job_uid",
        Rules(table=ANY_UID, case=JobsAlone),
        run(FOREIGN, attempts=1),
        "S5",
    ),
    Removed("5", "N not from the row alone", Rules(case=RowAlone), run(attempts=1), "I1"),
    Removed("6", "terminal", table(outcome.terminal), run(), "S3"),
    Removed(
        "6, case 9",
        "older attempt, and ask for all Jobs",
        Rules(kinds("ask all-jobs"), without_line(outcome.older_attempt)),
        run(retries=1),
        "I1",
    ),
    Removed(
        "6",
        "higher attempt",
        table(outcome.higher_attempt),
        run(retries=1, restores=1, sweeps=True, exits=False, retry_reports=False),
        "I1",
    ),
    Removed("6", "cancel asked", table(outcome.cancel_asked), run(cancels=1, janitor="fresh"), "S8"),
    Removed("6", "superseded", table(outcome.superseded), run(TOMBSTONES, LATE_POST, count=2, attempts=1), "I1"),
    Removed("6", "first launch", table(outcome.first_launch), run(LATE_POST, retries=1), "I1"),
    Removed("6", "node lost", table(outcome.node_lost), run(PARTITION, never_back=True), "S5"),
    Removed("6", "launched", table(outcome.launched), run(), "I1"),
    Removed("6", "max_failures 1 started", table(outcome.started_once_only), run(DISRUPTION, max_failures=1), "S5"),
    Removed("6", "exit code", table(outcome.exit_code), run(report="exit-code", janitor="fresh"), "S11"),
    Removed("6", "gone", table(outcome.gone), run(FOREIGN), "S5"),
    Removed("6", "failed", table(outcome.failed), run(), "S5"),
    Removed("6", "exit 0 before a start", table(outcome.exited_before_start), run(attempts=1), "S5"),
    Removed("6", "exit 0 without a report", table(outcome.exited_without_report), run(attempts=1), "S5"),
    Removed(
        "6, case 7",
        "a deadline deletes the Pod",
        without("deadline deletes the Pod"),
        run(is_stuck=True, exits=False),
        "S5: fair steps form a cycle",
    ),
    Removed(
        "6, case 18",
        "a Pod without a node waits",
        Rules(table=with_line(outcome.launched, ends_unplaced)),
        run(is_full=True, exits=False),
        "S12",
    ),
    Removed(
        "6",
        "a probe is marked before its Pod is deleted",
        without("unplaced: marked first"),
        run(is_full=True, exits=False, pauses=2),
        "S5: LaunchesExhausted is not true",
    ),
    Removed(
        "6",
        "a launch that was taken back counts as nothing",
        Rules(table=with_line(outcome.failed, forgets_unplaced)),
        run(is_full=True, exits=False, pauses=2),
        "S5: LaunchesExhausted is not true",
    ),
    Removed(
        "6",
        "a marked launch that started counts",
        Rules(table=with_line(outcome.failed, never_started)),
        run(is_full=True, pauses=1, attempts=1, launches=5),
        "S11",
    ),
    Removed(
        "6",
        "only a Pod without a node is taken back",
        without("unplaced: no node"),
        run(is_full=True, exits=False, pauses=1),
        "S12",
    ),
    Removed("7", "sweep: finished", without("sweep: finished"), run(sweeps=True), "S6"),
    Removed("7", "sweep: over", without("sweep: over"), run(sweeps=True), "S6"),
    Removed(
        "7",
        "sweep: a higher attempt stays",
        without("sweep: attempt", "sweep: over"),
        run(sweeps=True, restores=1, retries=1, exits=False, retry_reports=False),
        "S6",
    ),
    Removed("7", "sweep: a past attempt", without("sweep: past"), run(sweeps=True), "S5"),
    *(
        Removed(
            "7",
            rule,
            without(rule),
            run(is_full=True, exits=False, pauses=2, attempts=1, sweeps=True, forgets=True),
            "S6",
        )
        for rule in ("sweep: a later launch", "sweep: nothing before", "sweep: taken back")
    ),
    Removed(
        "8, case 13",
        "return: attempt, launch, token",
        without("return: attempt", "return: launch", "return: token"),
        run(janitor="stale"),
        "S10",
    ),
    Removed("8", "return: no cancel", without("return: cancel"), run(janitor="stale", cancels=1), "S8"),
    Removed("8", "end: attempt", without("end: attempt"), run(janitor="stale"), "S10"),
    Removed("8", "end: launch and uid", without("end: launch", "end: uid"), run(janitor="stale"), "S10"),
    Removed("8, case 6", "end: uid", without("end: uid"), run(FOREIGN, janitor="stale", attempts=1), "S10"),
    Removed("8", "end: status", without("end: status", "token ends"), run(janitor="stale", cancels=1), "S"),
    Removed(
        "8",
        "cancel: attempt and token",
        without("end cancel: attempt", "end cancel: token"),
        run(janitor="stale", cancels=2, retries=1),
        "S10",
    ),
    Removed(
        "8",
        "cancel: it was asked",
        without("end cancel: asked", "end cancel: attempt", "end cancel: token"),
        run(janitor="stale", cancels=1, retries=1),
        "S10",
    ),
    Removed(
        "8, case 12",
        "the janitor ends cancelled runs",
        without("the janitor ends cancelled runs"),
        run(cancels=1, janitor="fresh"),
        "S5",
    ),
)
COVERED: Final = (
    Removed("6", "older attempt", table(outcome.older_attempt), run(LATE_POST, retries=1), ""),
    Removed("2", "uid on deletes", without("uid on deletes"), run(FOREIGN, deposed=1, attempts=1), ""),
)
"""Rules that another rule covers: no law breaks if only one of the two is removed. REMOVED has both together."""
