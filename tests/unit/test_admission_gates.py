"""The gates and their order (docs/protocol.md, section 6). The first hold is the row's reason."""

from typing import Any

import msgspec
import pytest

from dispatcher.admission.demand import Demand, DemandPods, DemandRecord
from dispatcher.admission.gates import GATES, Candidate, judge, pending
from dispatcher.admission.snapshot import Allowance, ClusterSnapshot, Load, PendingPods, plan_load
from dispatcher.model.jobs import LaunchGroup
from dispatcher.model.launches import JobsVerdict, Launch, Offer
from dispatcher.model.tasks import Queue, Task
from dispatcher.model.verdicts import Admit, Hold, HoldReason, Stage
from tests.rig.builders import FIRST_LAUNCH, NOW, a_queue, a_snapshot, a_task, ago, later

OFFER = Offer("app:1", "small", "default")
GROUP = LaunchGroup("default", "default", "app:1", "team_a")
STALE = Hold(HoldReason.DISPATCHER_NOT_READY, "StaleCache: jobs")
LEADERLESS = Hold(HoldReason.DISPATCHER_NOT_READY, "NoLeader")
FINISHING = Hold(HoldReason.FINISHING, "attempt 1 is not over yet")


def a_candidate(task: Task | None = None, offer: Offer | Hold = OFFER, verdict: Any = FIRST_LAUNCH) -> Candidate:
    return Candidate(task or a_task(), offer, JobsVerdict(verdict))


def reason_of(candidate: Candidate, snapshot: ClusterSnapshot) -> HoldReason | None:
    """The reason that holds the candidate, or None if it is admitted."""
    verdict = judge(candidate, snapshot)
    return verdict.reason if isinstance(verdict, Hold) else None


def test_row_without_a_hold_is_admitted() -> None:
    assert judge(a_candidate(), a_snapshot()) == Admit()


# Each gate by itself


@pytest.mark.parametrize("reason", [HoldReason.UNKNOWN_TEMPLATE, HoldReason.INVALID_TEMPLATE, HoldReason.POLICY_DENIED])
def test_row_without_an_offer_is_held_as_its_kind_is(reason: HoldReason) -> None:
    hold = Hold(reason, "in words")
    assert judge(a_candidate(offer=hold), a_snapshot()) == hold


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (DemandRecord(NOW, NOW, NOW, refused="max size"), "; the autoscaler says: max size"),
        (DemandRecord(NOW, NOW, NOW, came_at=NOW), "; a node for it, or the announcement of one, came at 12:00:00 UTC"),
        (DemandRecord(NOW, NOW, NOW), ""),
    ],
)
def test_row_whose_pod_waits_is_told_what_the_autoscaler_said_of_it(known: DemandRecord, words: str) -> None:
    """The words of its shape. A Pod that has its node waits for none."""
    snapshot = a_snapshot(stuck=DemandPods(Demand(asked={"small": known})))
    for stage, more in ((f"{Stage.UNSCHEDULABLE}: 0/3 nodes", words), (Stage.STARTING, "")):
        launched = Hold(HoldReason.LAUNCHED, stage)
        assert judge(a_candidate(verdict=launched), snapshot) == Hold(HoldReason.LAUNCHED, stage + more)


@pytest.mark.parametrize(
    ("seconds", "reason"), [(-1, None), (0, None), (0.001, HoldReason.NOT_DUE), (3600, HoldReason.NOT_DUE)]
)
def test_row_is_held_until_run_at(seconds: float, reason: HoldReason | None) -> None:
    assert reason_of(a_candidate(a_task(run_at=later(seconds))), a_snapshot()) is reason


def test_hold_of_a_row_that_is_not_due_names_run_at() -> None:
    verdict = judge(a_candidate(a_task(run_at=later(3600))), a_snapshot())
    assert verdict == Hold(HoldReason.NOT_DUE, "runs at 2026-03-14 13:00:00 UTC")


@pytest.mark.parametrize(
    ("until", "verdict"),
    [
        (None, Admit()),
        (ago(1), Admit()),
        (NOW, Admit()),
        (later(60), Hold(HoldReason.PAUSED, "until 2026-03-14 12:01:00 UTC")),
        (NOW.replace(year=9999), Hold(HoldReason.PAUSED, "until it is cleared")),
    ],
)
def test_a_paused_queue_holds_its_rows(until: object, verdict: object) -> None:
    assert judge(a_candidate(), a_snapshot(a_queue(paused_until=until))) == verdict


def test_hold_of_the_jobs_is_the_reason_of_the_row() -> None:
    assert judge(a_candidate(verdict=FINISHING), a_snapshot()) == FINISHING


def test_a_failing_image_is_tried_one_at_a_time() -> None:
    both = a_snapshot(a_queue(), a_queue("other"), failing_groups=frozenset({GROUP}), busy_groups=frozenset({GROUP}))
    assert reason_of(a_candidate(), both) is HoldReason.TEMPLATE_FAILING
    assert reason_of(a_candidate(), a_snapshot(failing_groups=frozenset({GROUP}))) is None
    assert reason_of(a_candidate(), a_snapshot(busy_groups=frozenset({GROUP}))) is None
    assert reason_of(a_candidate(offer=Offer("app:2", "small", "default")), both) is None
    assert reason_of(a_candidate(a_task(queue="other")), both) is None
    assert reason_of(a_candidate(a_task(submitted_by="team_b")), both) is None


@pytest.mark.parametrize(
    ("queue", "submitter", "reason"),
    [("default", "team_a", HoldReason.SUBMITTER_CAP), ("default", "team_b", None), ("other", "team_a", None)],
)
def test_submitter_cap_counts_one_submitter_in_one_queue(queue: str, submitter: str, reason: HoldReason | None) -> None:
    queues = (a_queue(max_jobs_per_submitter=2), a_queue("other", max_jobs_per_submitter=2))
    snapshot = a_snapshot(*queues, load=plan_load([("default", "team_a")] * 2 + [("other", "team_a")]))
    assert reason_of(a_candidate(a_task(queue=queue, submitted_by=submitter)), snapshot) is reason


@pytest.mark.parametrize(
    ("count", "reason"), [(0, None), (4, None), (5, HoldReason.QUEUE_CAP), (9, HoldReason.QUEUE_CAP)]
)
def test_queue_cap_holds_when_it_is_reached(count: int, reason: HoldReason | None) -> None:
    snapshot = a_snapshot(a_queue(max_jobs=5), load=Load(count, {"default": count}))
    assert reason_of(a_candidate(), snapshot) is reason


@pytest.mark.parametrize(("count", "reason"), [(6, None), (7, HoldReason.JOB_CAP), (8, HoldReason.JOB_CAP)])
def test_cap_of_the_installation_holds_when_it_is_reached(count: int, reason: HoldReason | None) -> None:
    assert reason_of(a_candidate(), a_snapshot(max_jobs=7, load=Load(count))) is reason


def test_caps_of_one_admit_the_first_job() -> None:
    snapshot = a_snapshot(a_queue(max_jobs=1, max_jobs_per_submitter=1), max_jobs=1)
    assert reason_of(a_candidate(), snapshot) is None


def test_cap_of_zero_holds_every_row() -> None:
    assert judge(a_candidate(), a_snapshot(max_jobs=0)) == Hold(HoldReason.JOB_CAP, "0 of 0")


@pytest.mark.parametrize(
    ("of_queue", "stuck", "reason"),
    [
        (None, 0, None), (None, 1, None), (None, 2, HoldReason.PENDING_PODS), (0, 1, HoldReason.PENDING_PODS),
        (0, 0, None), (5, 5, None), (5, 6, HoldReason.PENDING_PODS),
    ],
)  # fmt: skip
def test_stuck_pods_above_the_limit_hold_their_shape(
    of_queue: int | None, stuck: int, reason: HoldReason | None
) -> None:
    everywhere, of_it = (stuck, 0) if of_queue is None else (9, stuck)
    pending_pods = PendingPods(9, {"small": everywhere}, {("default", "small"): of_it})
    snapshot = a_snapshot(a_queue(max_pending=of_queue), pending=pending_pods)
    assert reason_of(a_candidate(), snapshot) is reason
    assert reason_of(a_candidate(offer=Offer("app:1", "large", "default")), snapshot) is None


@pytest.mark.parametrize(
    ("max_jobs", "queues", "held", "is_held"),
    [(100, 2, 9, False), (100, 2, 10, True), (5, 2, 0, False), (5, 2, 1, True), (99, 23, 3, False), (99, 23, 4, True)],
)
def test_jobs_that_somebody_holds_are_few_of_each_submitter_and_in_all(
    max_jobs: int, queues: int, held: int, is_held: bool
) -> None:
    others = {(f"queue-{n}", "team_a"): 99 for n in range(queues - 1)} | {("default", "team_b"): 99}
    snapshot = a_snapshot(max_jobs=max_jobs, held=plan_load({**others, ("default", "team_a"): held}))
    assert (reason_of(a_candidate(), snapshot) is HoldReason.PENDING_PODS) is is_held


@pytest.mark.parametrize(("total", "reason"), [(0, None), (1, HoldReason.PENDING_PODS)])
def test_strict_mode_holds_every_row_for_any_pending_pod(total: int, reason: HoldReason | None) -> None:
    snapshot = a_snapshot(is_strict=True, max_pending=50, pending=PendingPods(total, {}))
    assert reason_of(a_candidate(), snapshot) is reason


def test_row_is_held_without_a_write_or_a_place_left() -> None:
    assert reason_of(a_candidate(), a_snapshot(allowance=Allowance(0, 5))) is HoldReason.RATE_LIMITED
    assert reason_of(a_candidate(), a_snapshot(allowance=Allowance(-2, 5))) is HoldReason.RATE_LIMITED
    assert reason_of(a_candidate(), a_snapshot(allowance=Allowance(5, 0))) is HoldReason.NEXT_CYCLE


def test_pending_gate_passes_a_row_without_a_shape() -> None:
    held = a_candidate(offer=Hold(HoldReason.POLICY_DENIED))
    assert pending(held, a_snapshot(pending=PendingPods(9, {"small": 9}))) is None


# Their order


class Situation(msgspec.Struct):
    """All causes that can hold a row, at once. Removing one after the other shows the order of the gates."""

    offer: Offer | Hold = Hold(HoldReason.POLICY_DENIED)
    run_at: Any = later(10)
    queue: Queue = a_queue(paused_until=later(10), max_jobs=0, max_jobs_per_submitter=0)
    verdict: Any = Hold(HoldReason.BACKOFF)
    groups: frozenset[LaunchGroup] = frozenset({GROUP})
    not_ready: Hold | None = LEADERLESS
    is_blind: bool = False
    max_jobs: int = 0
    quota: Hold | None = Hold(HoldReason.QUOTA_EXCEEDED)
    pending: PendingPods = PendingPods(9, {"small": 9})
    allowance: Allowance = Allowance(0, 0)

    def reason(self) -> HoldReason | None:
        snapshot = a_snapshot(
            self.queue, failing_groups=self.groups, busy_groups=self.groups, not_ready=self.not_ready,
            is_blind=self.is_blind, max_jobs=self.max_jobs, quota=self.quota, pending=self.pending,
            allowance=self.allowance,
        )  # fmt: skip
        return reason_of(a_candidate(a_task(run_at=self.run_at), self.offer, self.verdict), snapshot)


def test_first_hold_wins_in_the_order_of_the_gates() -> None:
    changes: list[dict[str, Any]] = [
        {}, {"offer": OFFER}, {"run_at": None}, {"queue": a_queue(max_jobs=0, max_jobs_per_submitter=0)},
        {"verdict": Launch(1)}, {"groups": frozenset()}, {"not_ready": None}, {"queue": a_queue(max_jobs=0)},
        {"queue": a_queue()}, {"max_jobs": 1}, {"quota": None}, {"pending": PendingPods()},
        {"allowance": Allowance(1, 0)}, {"allowance": Allowance(1, 1)},
    ]  # fmt: skip
    situation, reasons = Situation(), []
    for change in changes:
        situation = msgspec.structs.replace(situation, **change)
        reasons.append(str(situation.reason()))
    assert reasons == [
        "PolicyDenied", "NotDue", "Paused", "Backoff", "TemplateFailing", "DispatcherNotReady", "SubmitterCap",
        "QueueCap", "JobCap", "QuotaExceeded", "PendingPods", "RateLimited", "NextCycle", "None",
    ]  # fmt: skip


def test_stale_view_hides_the_verdict_of_the_jobs() -> None:
    situation = Situation(offer=OFFER, run_at=None, queue=a_queue(), not_ready=STALE, is_blind=True)
    assert situation.reason() is HoldReason.DISPATCHER_NOT_READY
    situation.queue = a_queue(paused_until=later(10))
    assert situation.reason() is HoldReason.PAUSED, "reasons that do not rest on Jobs are still true"


def test_stale_view_hides_that_a_row_is_launched() -> None:
    situation = Situation(offer=OFFER, run_at=None, queue=a_queue(), verdict=Hold(HoldReason.LAUNCHED), not_ready=STALE)
    assert situation.reason() is HoldReason.LAUNCHED
    situation.is_blind = True
    assert situation.reason() is HoldReason.DISPATCHER_NOT_READY


def test_every_gate_stands_in_the_order_once() -> None:
    assert len(set(GATES)) == len(GATES) == 20


# A create that is repeated

REPEAT = Launch(1, is_repeat=True)
FULL: dict[str, Any] = {
    "load": Load(9, {"default": 9}, {("default", "team_a"): 9}), "max_jobs": 9,
    "quota": Hold(HoldReason.QUOTA_EXCEEDED), "pending": PendingPods(9, {"small": 9}), "allowance": Allowance(1, 1),
}  # fmt: skip


def test_caps_do_not_hold_a_repeated_create() -> None:
    queue = a_queue(max_jobs=9, max_jobs_per_submitter=9)
    assert judge(a_candidate(verdict=REPEAT), a_snapshot(queue, **FULL)) == Admit()
    assert reason_of(a_candidate(), a_snapshot(queue, **FULL)) is HoldReason.SUBMITTER_CAP


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"not_ready": LEADERLESS}, HoldReason.DISPATCHER_NOT_READY),
        ({"allowance": Allowance(0, 9)}, HoldReason.RATE_LIMITED),
        ({"allowance": Allowance(9, 0)}, HoldReason.NEXT_CYCLE),
    ],
)
def test_a_repeated_create_waits_for_readiness_and_for_the_rate(changes: dict[str, Any], reason: HoldReason) -> None:
    assert reason_of(a_candidate(verdict=REPEAT), a_snapshot(**changes)) is reason


def test_a_repeated_create_of_a_paused_queue_waits() -> None:
    snapshot = a_snapshot(a_queue(paused_until=later(10)))
    assert reason_of(a_candidate(verdict=REPEAT), snapshot) is HoldReason.PAUSED


def test_candidate_without_an_offer_has_a_launch_group_without_image() -> None:
    assert a_candidate(offer=Hold(HoldReason.POLICY_DENIED)).group == LaunchGroup("default", "default", "", "team_a")
    assert a_candidate().group == GROUP
