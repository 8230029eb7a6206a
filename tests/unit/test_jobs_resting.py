"""Resting rows: when a rest begins, and when it ends."""

import pytest

from dispatcher.jobs.picture import REST_SECONDS, may_rest, plan_rest, still_resting
from dispatcher.model.cluster import PodEnd
from dispatcher.model.jobs import Phase
from dispatcher.model.launches import JobsVerdict, Launch
from dispatcher.model.verdicts import Hold, HoldReason, Stage
from tests.rig.builders import a_job, a_pod, a_task

BY_EXIT_CODE = Hold(HoldReason.LAUNCHED, Stage.EXIT_CODE)
EXIT = PodEnd(exit_code=1)
LAUNCHED = JobsVerdict(Hold(HoldReason.LAUNCHED, "Running"))
JOB = a_job(resource_version="7")
REST = plan_rest(a_task(id=42), JOB, [a_pod(phase="Running")], 100, 1800)


def test_row_whose_job_runs_may_rest() -> None:
    assert may_rest(LAUNCHED, JOB, [a_pod(phase="Running")])
    assert may_rest(LAUNCHED, JOB, [])


@pytest.mark.parametrize(
    "found",
    [
        JobsVerdict(None),
        JobsVerdict(Launch(1)),
        JobsVerdict(Hold(HoldReason.FINISHING)),
        JobsVerdict(LAUNCHED.verdict, ends=("something",)),  # type: ignore[arg-type]  # whatever it is
    ],
    ids=["nothing to do", "launch", "finishing", "to remove"],
)
def test_row_with_another_verdict_does_not_rest(found: JobsVerdict) -> None:
    assert not may_rest(found, JOB, [])


def test_ending_job_or_stuck_pod_does_not_rest() -> None:
    assert not may_rest(LAUNCHED, a_job(deleting=True), [])
    assert not may_rest(LAUNCHED, a_job(phase=Phase.FAILING), [])
    assert not may_rest(LAUNCHED, JOB, [a_pod(waiting_reason="ImagePullBackOff")])


@pytest.mark.parametrize("phase", [Phase.COMPLETE, Phase.FAILED])
def test_row_that_the_janitor_will_end_rests_until_then(phase: Phase) -> None:
    """Hundreds of such rows would be judged in each cycle for up to ten seconds."""
    job, pod, verdict = a_job(phase=phase), a_pod(had_run=True, exit=EXIT), JobsVerdict(BY_EXIT_CODE)
    assert may_rest(verdict, job, [pod])
    assert not may_rest(JobsVerdict(Hold(HoldReason.LAUNCHED, Stage.EXITED)), job, [pod]), "its grace ends"
    assert not may_rest(verdict, job, [a_pod(exit=EXIT)]), "whether its group fails is found by the rows that are read"
    assert not may_rest(verdict, job, [a_pod(had_run=True)]), "its Pod may show later that it was told to stop"


def test_rests_end_within_half_a_minute_and_not_all_at_once() -> None:
    untils = {plan_rest(a_task(id=id_), JOB, [a_pod(phase="Running")], 100, 0).until for id_ in range(64)}
    assert len(untils) == 16
    assert all(100 + REST_SECONDS / 2 <= until < 100 + REST_SECONDS for until in untils)


def test_rest_before_the_start_ends_at_its_deadline() -> None:
    assert plan_rest(a_task(), JOB, [a_pod()], 100, 3).until == 103
    assert plan_rest(a_task(), JOB, [], 100, 3).until == 103
    assert plan_rest(a_task(), JOB, [a_pod(phase="Running")], 100, 3).until > 110


def test_rest_goes_on_while_the_job_is_unchanged() -> None:
    assert still_resting({42: REST}, {42: [JOB]}, frozenset(), 101) == {42: REST}


@pytest.mark.parametrize(
    ("jobs", "stuck", "now"),
    [
        ([a_job(resource_version="8")], frozenset(), 101),
        ([], frozenset(), 101),
        ([JOB, a_job(1, 2)], frozenset(), 101),
        ([JOB], frozenset({JOB.uid}), 101),
        ([JOB], frozenset(), REST.until),
    ],
    ids=["changed", "gone", "another Job", "its Pod cannot start", "time is over"],
)
def test_rest_ends_with_any_change(jobs: list[object], stuck: frozenset[str], now: float) -> None:
    assert still_resting({42: REST}, {42: jobs}, stuck, now) == {}  # type: ignore[dict-item]  # Jobs
