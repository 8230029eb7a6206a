"""Rows that a ResourceQuota would refuse: their reason, and what counts before the quota shows it."""

from dispatcher.admission.gates import Candidate, judge
from dispatcher.admission.heads import shared_hold
from dispatcher.admission.snapshot import ClusterSnapshot, plan_quotas
from dispatcher.model.cluster import JOBS, Quota
from dispatcher.model.launches import JobsVerdict, Offer, ToCome
from dispatcher.model.verdicts import Hold, HoldReason
from tests.rig.builders import FIRST_LAUNCH, a_job, a_picture, a_snapshot, a_task, an_indexed_row
from tests.unit.rooms import amounts_of, needs, unplaced

ROOM_FOR_TWO = (Quota("team", amounts_of({"cpu": "2", JOBS: "2"}), amounts_of({"cpu": "0", JOBS: "0"})),)
ONE_CORE = Offer("app:1", "small", "default", needs("1"))
A_POD = unplaced(needs("1"))
CANDIDATE = Candidate(a_task(), ONE_CORE, JobsVerdict(FIRST_LAUNCH))


def a_snapshot_with(to_come: ToCome) -> ClusterSnapshot:
    return a_snapshot(quotas=plan_quotas(ROOM_FOR_TWO, to_come))


def test_row_beyond_the_quota_is_held_with_the_numbers() -> None:
    verdict = judge(CANDIDATE, a_snapshot_with(ToCome(jobs={A_POD: 2})))
    assert verdict == Hold(HoldReason.QUOTA_EXCEEDED, f"ResourceQuota team: {JOBS} 1 asked, 2 of 2 used")


def test_each_admission_of_a_cycle_counts_against_the_quota() -> None:
    snapshot = a_snapshot_with(ToCome())
    launched = 0
    while launched < 5 and not isinstance(judge(CANDIDATE, snapshot), Hold):
        snapshot, launched = snapshot.with_launch(CANDIDATE.group, CANDIDATE.pod), launched + 1
    assert launched == 2


def test_repeated_create_counts_once_and_is_never_held_by_the_quota() -> None:
    snapshot = a_snapshot_with(ToCome(jobs={A_POD: 1})).with_launch(CANDIDATE.group, CANDIDATE.pod, is_new=False)
    assert not isinstance(judge(CANDIDATE, snapshot), Hold)


def test_job_without_a_pod_counts_only_its_pod() -> None:
    assert judge(CANDIDATE, a_snapshot_with(ToCome(pods={A_POD: 2}))) == Hold(
        HoldReason.QUOTA_EXCEEDED, "ResourceQuota team: cpu 1 asked, 2 of 2 used"
    )


def test_scan_holds_rows_beyond_the_quota_so_that_they_hide_no_others() -> None:
    full = a_snapshot_with(ToCome(jobs={A_POD: 2}))
    hold = shared_hold(an_indexed_row(1), ONE_CORE, full)
    assert hold is not None
    assert hold.reason is HoldReason.QUOTA_EXCEEDED
    assert shared_hold(an_indexed_row(1), ONE_CORE, a_snapshot_with(ToCome())) is None


def test_picture_counts_only_jobs_that_will_make_a_pod() -> None:
    jobs = [
        a_job(task_id=1, needs=needs("1"), shape="small"),
        a_job(task_id=2, suspended=True),
        a_job(task_id=3, deleting=True),
    ]
    picture = a_picture(jobs)
    assert list(picture.to_come().pods.values()) == [1]
    assert picture.to_come().jobs == {}
