"""One row is explained by the last cycle: the reason that the cycle told, or the first gate that holds the row."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
import pytest

from dispatcher.admission.cycle import plan_cycle
from dispatcher.admission.last_cycle import LastCycle, RowReason, candidate_of, held_since, tell
from dispatcher.admission.snapshot import ClusterSnapshot, plan_load
from dispatcher.model.cluster import Pod
from dispatcher.model.jobs import Job, Phase
from dispatcher.model.launches import Offer
from dispatcher.model.reasons import ADVICE, DETAILS, NOT_READY, STAGES, Turn, reason_rows
from dispatcher.model.tasks import LinePosition, Status, Task
from dispatcher.model.verdicts import Hold, HoldReason, NotReady, Stage
from dispatcher.views.explanation import Explanation, explain_row
from tests.rig.builders import (  # fmt: skip
    CREATED,
    NOW,
    a_cluster,
    a_job,
    a_picture,
    a_pod,
    a_queue,
    a_running_task,
    a_snapshot,
    a_task,
    ago,
    an_exited_pod,
    later,
)
from tests.unit.explaining import Offers

FIRST = LinePosition(0, 7, 10_000)
OFFER = Offer("app:1", "small", "default")


def a_cycle(
    snapshot: ClusterSnapshot, *tasks: Task, offer: Offer | Hold = OFFER, leads: bool = True, **more: Any
) -> LastCycle:
    """A cycle that judged these rows."""
    picture = a_picture(more.pop("jobs", ()), a_cluster(more.pop("pods", ())), offers=Offers(offer))
    plan = plan_cycle(snapshot, [candidate_of(task, picture) for task in tasks])
    rows = {task.id: task for task in tasks}
    told = tell([(rows[id_], hold) for id_, hold in plan.holds.items()], more.pop("before", {}), snapshot.now)
    launched = frozenset(candidate.task.id for candidate in plan.launches)
    held = more.pop("held", {})
    since = held_since(held, plan.after, more.pop("since", {}))
    return LastCycle(plan.after, picture, told, launched, held, since, leads)


def explained(task: Task, cycle: LastCycle, line: LinePosition = FIRST) -> Explanation:
    return explain_row(task, cycle, line)


def test_every_reason_has_words_and_a_next_step() -> None:
    assert set(ADVICE) == set(HoldReason)
    assert all(advice.meaning and advice.next_step for advice in ADVICE.values())


def test_every_beginning_of_a_detail_has_words_and_a_next_step() -> None:
    assert (set(STAGES), set(NOT_READY)) == (set(Stage), set(NotReady))
    assert all(one.meaning and one.next_step for one in (*STAGES.values(), *NOT_READY.values()))


def test_row_that_was_judged_is_told_what_the_cycle_told() -> None:
    full = a_snapshot(a_queue(max_jobs=1), load=plan_load([("default", "team_b")]))
    found = explained(a_task(), a_cycle(full, a_task()))
    assert (found.reason, found.whose_turn, found.as_of) == (HoldReason.QUEUE_CAP, Turn.OPERATOR, NOW)
    assert found.message == "its queue has as many Jobs as it may: 1 of 1"
    assert found.next_step == "nothing until a Job of the queue ends, or raise queues.max_jobs"
    assert (found.position, found.position_of) == (1, 7)


def test_row_beyond_those_that_a_cycle_judges_is_told_what_would_hold_it() -> None:
    """The cycle has launched row 1, which uses up the cap."""
    cycle = a_cycle(a_snapshot(a_queue(max_jobs=1)), a_task(id=1))
    assert explained(a_task(id=900), cycle).reason is HoldReason.QUEUE_CAP
    assert explained(a_task(id=1), cycle).message.endswith("its Job is being created")


def test_row_that_nothing_holds_is_in_line() -> None:
    cycle = a_cycle(a_snapshot())
    texts = [explained(a_task(), cycle, LinePosition(n, 10_000, 10_000)).message for n in (0, 1, 1234, 10_000)]
    assert texts == [
        "other rows come first: it is the next one",
        "other rows come first: 1 row of queue default come first",
        "other rows come first: 1,234 rows of queue default come first",
        "other rows come first: at least 10,000 rows of queue default come first",
    ]


def judged(hold: Hold, since: datetime, attempt: int = 1) -> LastCycle:
    """A cycle that told this hold of row 42."""
    return msgspec.structs.replace(a_cycle(a_snapshot()), told={42: RowReason("default", attempt, hold, since)})


def test_reason_from_the_jobs_of_a_row_keeps_its_time_while_it_stays() -> None:
    backoff = [(a_task(), Hold(HoldReason.BACKOFF, "5 s"))]
    before = {42: RowReason("default", 1, Hold(HoldReason.BACKOFF, "9 s"), ago(60))}
    assert tell(backoff, before, NOW)[42].since == ago(60)
    assert tell(backoff, {42: RowReason("default", 2, Hold(HoldReason.BACKOFF), ago(60))}, NOW)[42].since == NOW, (
        "another attempt"
    )
    assert tell(backoff, {42: RowReason("default", 1, Hold(HoldReason.POISON), ago(60))}, NOW)[42].since == NOW, (
        "another reason"
    )
    assert tell(backoff, {}, NOW)[42].since == NOW
    ahead = {42: RowReason("default", 1, backoff[0][1], later(3600))}
    assert tell(backoff, ahead, NOW)[42].since == NOW, "the clock was set back"
    assert explained(a_task(), judged(Hold(HoldReason.BACKOFF), ago(60))).since == ago(60)


def test_reason_from_its_jobs_that_was_not_told_has_no_time() -> None:
    found = explained(a_task(), a_cycle(a_snapshot(), jobs=[a_job()]))
    assert (found.reason, found.since) == (HoldReason.LAUNCHED, None)


@pytest.mark.parametrize(("began", "since"), [(ago(60), ago(60)), (ago(9000), CREATED)])
def test_reason_that_rows_of_a_queue_share_holds_a_row_since_it_is_due(began: datetime, since: datetime) -> None:
    full = a_snapshot(a_queue(max_jobs=1), load=plan_load([("default", "team_b")]))
    cycle = a_cycle(full, since={("default", HoldReason.QUEUE_CAP): began})
    assert explained(a_task(), cycle).since == since
    assert explained(a_task(), a_cycle(full)).since == NOW, "the cap holds since this cycle"


def test_time_of_a_shared_reason_begins_anew_after_a_break() -> None:
    key = ("default", HoldReason.NO_ROOM_NOW)
    first = held_since([key], a_snapshot(now=ago(9)), {})
    assert held_since([key], a_snapshot(), first) == first == {key: ago(9)}
    assert held_since([key], a_snapshot(), held_since([], a_snapshot(), first)) == {key: NOW}
    assert held_since([key], a_snapshot(now=ago(99)), first) == {key: ago(99)}, "the clock was set back"


def test_row_in_line_waits_since_it_is_due() -> None:
    assert explained(a_task(run_at=ago(7)), a_cycle(a_snapshot())).since == ago(7)
    assert explained(a_task(run_at=later(7)), a_cycle(a_snapshot())).since == CREATED
    assert explained(a_task(attempt=2, run_at=ago(7)), a_cycle(a_snapshot())).since == ago(7)
    assert explained(a_task(attempt=2), a_cycle(a_snapshot())).since is None, "nothing tells when somebody retried it"


def test_next_holds_of_a_row_are_told_once_for_each_reason() -> None:
    queue = a_queue(max_jobs=1, max_jobs_per_submitter=1, paused_until=later(60))
    snapshot = a_snapshot(queue, max_jobs=1, load=plan_load([("default", "team_a")]))
    found = explained(a_task(run_at=later(5)), a_cycle(snapshot, a_task(run_at=later(5))))
    assert found.reason is HoldReason.NOT_DUE
    assert [cause.reason for cause in found.also] == ["Paused", "SubmitterCap", "QueueCap", "JobCap"]
    assert found.position is None, "a row that is not due has no place in the line"


def test_row_that_went_on_to_another_attempt_is_judged_anew() -> None:
    queue = a_queue(paused_until=later(60))
    cycle = a_cycle(a_snapshot(queue), a_task())
    told = msgspec.structs.replace(cycle, told={42: RowReason("default", 1, Hold(HoldReason.POISON), NOW)})
    assert explained(a_task(attempt=2), told).reason is HoldReason.PAUSED


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (a_task(status=Status.SUCCEEDED, finished_at=ago(5)), "it has succeeded"),
        (a_task(status=Status.FAILED, finished_at=ago(5)), "it has failed"),
        (a_task(status=Status.CANCELLED, finished_at=ago(5)), "it has been cancelled"),
    ],
)
def test_row_that_is_over_has_no_reason(task: Task, message: str) -> None:
    found = explained(task, a_cycle(a_snapshot()))
    assert (found.reason, found.message, found.since, found.whose_turn) == (None, message, ago(5), Turn.NOBODY)


def test_row_whose_container_runs_has_no_reason() -> None:
    task = a_running_task()
    found = explained(task, a_cycle(a_snapshot(), jobs=[a_job()]))
    assert (found.reason, found.message, found.position) == (None, "its container runs", None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"timeout_seconds": 600}, "its container runs"),
        ({"timeout_seconds": 599}, "it started at 2026-03-14 11:50:00 UTC, and its run limit of 599 s is over"),
        ({"heartbeat_at": ago(60)}, "its container runs"),
        ({"heartbeat_at": ago(61)}, "its container has not been heard since 2026-03-14 11:58:59 UTC"),
    ],
)
def test_row_whose_container_is_silent_is_not_said_to_run(changes: Mapping[str, Any], message: str) -> None:
    cycle = a_cycle(a_snapshot(), jobs=[a_job()], pods=[a_pod(a_job(), phase="Running")])
    assert explained(a_running_task(**changes), cycle).message == message


HELD = "its Job exists, and its container has not reported its start"


@pytest.mark.parametrize(
    ("job", "pod", "message", "turn"),
    [
        (a_job(suspended=True), None,
         f"launch 1 has started, and its container does not run now: {HELD}: Suspended", Turn.OPERATOR),
        (a_job(), None,
         f"launch 1 has started, and its container does not run now: {HELD}: Starting: its Job has no Pod yet",
         Turn.CLUSTER),
        (a_job(1, 2), a_pod(a_job(1, 2), unschedulable_since=ago(9), waiting_message="0/3 nodes"),
         f"launch 1 has started, and was lost: {HELD}: Unschedulable: 0/3 nodes", Turn.CLUSTER),
        (a_job(1, 2), a_pod(a_job(1, 2), waiting_reason="CreateContainerConfigError"),
         f"launch 1 has started, and was lost: {HELD}: ImagePull: CreateContainerConfigError", Turn.AUTHOR),
        (a_job(), an_exited_pod(a_job(), 1, phase="Running", end=None),
         f"launch 1 has started, and its container does not run now: {HELD}: SidecarStays", Turn.AUTHOR),
    ],
    ids=["suspended", "parallelism 0", "launch 2 finds no node", "launch 2 lacks its Secret", "an endless sidecar"],
)  # fmt: skip
def test_row_that_has_no_pod_that_runs_is_not_said_to_run(job: Job, pod: Pod | None, message: str, turn: Turn) -> None:
    cycle = a_cycle(a_snapshot(), jobs=[job], pods=[pod] if pod else [])
    found = explained(a_running_task(heartbeat_at=ago(61)), cycle)
    assert (found.reason, found.message, found.whose_turn) == (HoldReason.LAUNCHED, message, turn)
    assert explained(a_running_task(heartbeat_at=ago(60)), cycle).message == "its container runs"


def test_row_whose_container_has_just_ended_is_not_said_to_run() -> None:
    job = a_job(phase=Phase.COMPLETE, ended_at=ago(5), uid="u1")
    found = explained(a_running_task(job_uid="u1"), a_cycle(a_snapshot(), jobs=[job]))
    assert (found.reason, found.message) == (None, "its container has ended; its report may be on the way")


def test_replica_that_does_not_lead_tells_a_row_in_line_until_the_leader_launches_it() -> None:
    """Its own cycle would launch the row. The leader may do so, or has a refusal of the API server."""
    found = explained(a_task(), a_cycle(a_snapshot(), a_task(), leads=False))
    assert found.reason is HoldReason.IN_LINE
    assert found.message.endswith("it does not lead, and the leader alone knows whether the API server refuses its Job")


def test_rows_before_it_are_told_by_their_reasons() -> None:
    held: Mapping[tuple[str, HoldReason], int] = {
        ("default", HoldReason.NO_ROOM_NOW): 5, ("other", HoldReason.POISON): 1,
    }  # fmt: skip
    assert explained(a_task(), a_cycle(a_snapshot(), held=held)).before == {HoldReason.NO_ROOM_NOW: 5}


def test_row_that_belies_its_kind_is_held() -> None:
    """An administrator has changed its template alone. Its kind has the offer of another template."""
    picture = a_picture((), offers=Offers(OFFER))
    held = candidate_of(a_task(template="other"), picture).offer
    assert isinstance(held, Hold)
    assert held.reason is HoldReason.POLICY_DENIED
    assert candidate_of(a_task(template=OFFER.template), picture).offer == OFFER


def test_cycle_tells_that_the_database_refuses_the_tasks() -> None:
    refused = Hold(HoldReason.DISPATCHER_NOT_READY, "TasksRefused: no login may log in")
    assert a_cycle(a_snapshot(not_ready=refused)).tasks_refused == refused.detail
    assert a_cycle(a_snapshot(not_ready=Hold(HoldReason.DISPATCHER_NOT_READY, "NoLeader"))).tasks_refused == ""
    assert a_cycle(a_snapshot()).tasks_refused == ""


def test_table_of_reasons_has_each_reason_and_each_detail_once() -> None:
    rows = {row["reason"]: row for row in reason_rows()}
    assert len(rows) == len(reason_rows())
    details = {f"{reason}: {words}" for reason, found in DETAILS.items() for words in found}
    assert set(rows) == {*HoldReason, *details}
    assert rows["DispatcherNotReady: NoLeader"]["next_step"] == NOT_READY[NotReady.NO_LEADER].next_step
