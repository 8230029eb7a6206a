"""The launches of a row: what the database remembers, and what Jobs and Pods tell."""

from typing import Any

from dispatcher.model.cluster import PodEnd
from dispatcher.model.history import LaunchFacts
from dispatcher.views.launches import MOST_LAUNCHES, launch_in_words, launches_of
from tests.rig.builders import NOW, a_failed_job, a_job, a_pod, ago

CRASH = PodEnd(container="task", exit_code=1, cause="Error", output="no disk\n")


def recorded(attempt: int = 1, launch: int = 1, **facts: Any) -> LaunchFacts:
    return LaunchFacts(attempt=attempt, launch=launch, **facts)


def only(found: list[LaunchFacts]) -> LaunchFacts:
    (launch,) = found
    return launch


def test_a_launch_whose_job_is_gone_is_told_as_the_database_remembers_it() -> None:
    known = recorded(pod="p", node="n", started_at=ago(9), ended_at=NOW, outcome="retry", exit_code=3, error="no")
    assert only(launches_of([known], [], "jobs")) == known


def test_a_launch_that_the_database_does_not_know_is_told_by_its_job() -> None:
    job = a_job()
    found = only(launches_of([], [(job, [a_pod(job, phase="Running", node_name="n")])], "jobs"))
    assert (found.job, found.pod, found.node, found.outcome) == (job.name, f"pod-of-{job.uid}", "n", None)
    assert (found.created_at, found.ended_at) == (job.created_at, None)
    assert found.logs == f"kubectl logs -n jobs pod-of-{job.uid}"


def test_a_pod_that_has_not_started_has_no_log_and_no_node() -> None:
    job = a_job()
    found = only(launches_of([], [(job, [a_pod(job, node_name="")])], "jobs"))
    assert (found.logs, found.node) == (None, None)


def test_pod_tells_the_end_of_a_launch_until_the_database_knows_it() -> None:
    job = a_failed_job()
    pods = [a_pod(job, phase="Failed", end=CRASH)]
    found = only(launches_of([recorded()], [(job, pods)], "jobs"))
    assert (found.reason, found.exit_code, found.error, found.ended_at) == ("exit code 1", 1, "no disk\n", job.ended_at)
    known = only(launches_of([recorded(reason="OOMKilled", exit_code=137)], [(job, pods)], "jobs"))
    assert (known.reason, known.exit_code) == ("OOMKilled", 137)


def test_names_that_a_container_told_of_its_pod_and_node_give_way_to_those_of_the_cluster() -> None:
    """Otherwise a container could send the readers of its log to the Pod of another team."""
    job = a_job()
    told = recorded(pod="pod-of-another-team", node="elsewhere")
    found = only(launches_of([told], [(job, [a_pod(job, phase="Running", node_name="n")])], "jobs"))
    assert (found.pod, found.node) == (f"pod-of-{job.uid}", "n")
    assert found.logs == f"kubectl logs -n jobs pod-of-{job.uid}"
    assert only(launches_of([told], [(job, [a_pod(job, node_name="")])], "jobs")).node == "elsewhere"


def test_an_error_that_a_container_reported_stays() -> None:
    job = a_failed_job()
    found = only(launches_of([recorded(error="mine")], [(job, [a_pod(job, phase="Failed", end=CRASH)])], "jobs"))
    assert found.error == "mine"
    silent = PodEnd(container="task", exit_code=1)
    assert only(launches_of([], [(job, [a_pod(job, phase="Failed", end=silent)])], "jobs")).error is None


def test_the_newest_launches_are_told_in_their_order() -> None:
    known = [recorded(attempt, launch) for attempt in range(9, 0, -1) for launch in (3, 1, 2)]
    found = [(one.attempt, one.launch) for one in launches_of(known, [], "jobs")]
    assert (len(found), found[-1], found == sorted(found)) == (MOST_LAUNCHES, (9, 3), True)


def test_a_launch_in_words_names_its_place_its_end_and_its_log() -> None:
    job = a_failed_job()
    (one,) = launches_of([], [(job, [a_pod(job, phase="Failed", node_name="n", end=CRASH)])], "jobs")
    assert list(launch_in_words(one)) == [
        "attempt 1, launch 1 on n: ended: exit code 1",
        "  | no disk",
        f"  kubectl logs -n jobs pod-of-{job.uid}",
    ]
    assert list(launch_in_words(LaunchFacts(attempt=2, launch=1))) == ["attempt 2, launch 1: under way"]
    assert list(launch_in_words(LaunchFacts(attempt=2, launch=1, outcome="lost"))) == ["attempt 2, launch 1: lost"]
    long = LaunchFacts(attempt=1, launch=1, error="1\n2\n3\n4\n5\n6")
    assert list(launch_in_words(long))[1:] == [f"  | {line}" for line in range(2, 7)]
    assert list(launch_in_words(long, 2))[1:] == ["  | 5", "  | 6"]
