"""Which rows need not be read at every look, and what ends their rest."""

import pytest

from dispatcher.jobs.resting import REST_SECONDS, may_rest, plan_rest, still_resting
from dispatcher.model.jobs import Phase
from dispatcher.model.launches import JobsVerdict, Launch
from dispatcher.model.verdicts import Hold, HoldReason
from tests.builders import a_job, a_pod, a_task

LAUNCHED = JobsVerdict(Hold(HoldReason.LAUNCHED, "Running"))
JOB = a_job(resource_version="7")
REST = plan_rest(a_task(id=42), JOB, [a_pod(phase="Running")], 100, 1800)


def test_a_row_whose_job_runs_may_rest() -> None:
    assert may_rest(LAUNCHED, JOB, [a_pod(phase="Running")])
    assert may_rest(LAUNCHED, JOB, [])


@pytest.mark.parametrize(
    "standing",
    [
        JobsVerdict(None),
        JobsVerdict(Launch(1)),
        JobsVerdict(Hold(HoldReason.FINISHING)),
        JobsVerdict(LAUNCHED.verdict, ends=("something",)),  # type: ignore[arg-type]  # whatever it is
    ],
    ids=["nothing to do", "launch", "finishing", "to remove"],
)
def test_a_row_that_means_anything_else_is_read_again(standing: JobsVerdict) -> None:
    assert not may_rest(standing, JOB, [])


def test_a_job_that_ends_and_a_pod_that_cannot_start_are_looked_at_again() -> None:
    assert not may_rest(LAUNCHED, a_job(deleting=True), [])
    assert not may_rest(LAUNCHED, a_job(phase=Phase.FAILING), [])
    assert not may_rest(LAUNCHED, JOB, [a_pod(waiting_reason="ImagePullBackOff")])


def test_rests_end_within_half_a_minute_and_not_all_at_once() -> None:
    untils = {plan_rest(a_task(id=id_), JOB, [a_pod(phase="Running")], 100, 0).until for id_ in range(64)}
    assert len(untils) == 16
    assert all(100 + REST_SECONDS / 2 <= until < 100 + REST_SECONDS for until in untils)


def test_a_rest_before_the_start_ends_at_its_deadline() -> None:
    assert plan_rest(a_task(), JOB, [a_pod()], 100, 3).until == 103
    assert plan_rest(a_task(), JOB, [], 100, 3).until == 103
    assert plan_rest(a_task(), JOB, [a_pod(phase="Running")], 100, 3).until > 110


def test_a_rest_goes_on_while_its_job_is_as_it_was() -> None:
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
def test_news_end_a_rest(jobs: list[object], stuck: frozenset[str], now: float) -> None:
    assert still_resting({42: REST}, {42: jobs}, stuck, now) == {}  # type: ignore[dict-item]  # Jobs
