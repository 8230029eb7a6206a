"""How a launch ended, in words."""

import pytest

from dispatcher.jobs.observed import GONE, LaunchEnd, launch_end, span
from dispatcher.model.cluster import PodEnd
from dispatcher.model.jobs import EndedBy, Job
from tests.rig.builders import NOW, a_complete_job, a_disrupted_job, a_failed_job, a_job, a_pod, ago, an_exited_pod

RAN = {"had_run": True, "had_begun": True}
PREPARED = {"had_begun": True, "had_prepared": True}


def reason_of(end: PodEnd, job: Job | None = None) -> str:
    job = job or a_failed_job()
    found = launch_end(job, [a_pod(job, phase="Failed", end=end)])
    assert found is not None
    return found.reason


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (PodEnd(container="task", exit_code=3, cause="Error"), "exit code 3"),
        (PodEnd(container="task", exit_code=137, cause="Error"), "exit code 137 (SIGKILL)"),
        (PodEnd(container="task", exit_code=143, cause="Error"), "exit code 143 (SIGTERM)"),
        (PodEnd(container="task", exit_code=255, cause="Error"), "exit code 255"),
        (PodEnd(container="sidecar", exit_code=3, cause="Error"), "container sidecar: exit code 3"),
        (PodEnd(container="task", exit_code=137, cause="OOMKilled", memory_limit="64Mi"), "OOMKilled (limit 64Mi)"),
        (PodEnd(container="task", exit_code=137, cause="OOMKilled"), "OOMKilled"),
        (PodEnd(container="task", exit_code=128, cause="StartError", output="no x"), "StartError: no x"),
        (PodEnd(reason="Evicted", message="The node was low on memory."), "Evicted: The node was low on memory."),
        (PodEnd(disruption="PreemptionByScheduler", container="task", exit_code=143), "PreemptionByScheduler"),
        (PodEnd(), "its Pod failed"),
    ],
)
def test_the_reason_names_what_ended_the_launch(end: PodEnd, reason: str) -> None:
    assert reason_of(end) == reason


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(3, "its limit of 3 s"), (90, "its limit of 90 s"), (600, "its limit of 10 min"), (7200, "its limit of 2 h"),
     (172_800, "its limit of 2 d"), (0, "its limit")],
)  # fmt: skip
def test_a_run_over_its_limit_names_the_limit(seconds: int, words: str) -> None:
    end = PodEnd(reason="DeadlineExceeded", message="Pod was active on the node longer", exit_code=143)
    job = a_failed_job(limit_seconds=seconds)
    for what, facts in (("ran", RAN), ("its init containers ran", PREPARED), ("its image was pulled", {})):
        found = launch_end(job, [a_pod(job, phase="Failed", end=end, **facts)])
        assert found is not None
        assert found.reason == f"{what} over {words}"


def test_end_by_exit_code_is_that_of_the_tasks_container() -> None:
    """A sidecar that is killed later says nothing about the task."""
    job = a_failed_job(report="exit-code")
    pod = an_exited_pod(job, phase="Failed", end=PodEnd(container="proxy", exit_code=137))
    assert launch_end(job, [pod]) == LaunchEnd(
        reason="exit code 0", exit_code=0, pod_name=pod.name, node_name=pod.node_name, started_at=ago(300),
        ended_at=ago(60),
    )  # fmt: skip
    assert launch_end(a_failed_job(), [pod]) == LaunchEnd(
        reason="container proxy: exit code 137 (SIGKILL)", exit_code=137, pod_name=pod.name, node_name=pod.node_name
    )


def test_an_end_has_what_its_container_said_and_where_it_ran() -> None:
    job = a_failed_job()
    end = PodEnd(container="task", exit_code=1, cause="Error", output="no disk", started_at=NOW)
    found = launch_end(job, [a_pod(job, phase="Failed", had_run=True, node_name="n", end=end)])
    assert found == LaunchEnd(
        reason="exit code 1", exit_code=1, output="no disk", pod_name=f"pod-of-{job.uid}", node_name="n", started_at=NOW
    )


def test_words_of_the_node_about_a_container_that_never_began_are_no_output() -> None:
    job = a_failed_job()
    end = PodEnd(container="task", exit_code=128, cause="StartError", output="no such file", started_at=NOW)
    found = launch_end(job, [a_pod(job, phase="Failed", end=end)])
    assert found is not None
    assert (found.output, found.started_at) == ("", None)


def test_an_image_that_cannot_be_pulled_is_told_while_its_pod_waits() -> None:
    job = a_job()
    found = launch_end(job, [a_pod(job, waiting_reason="ErrImagePull", waiting_message="not found")])
    assert found is not None
    assert found.reason == "ErrImagePull: not found"


def test_a_disrupted_job_without_its_pod_is_told_as_such() -> None:
    found = launch_end(a_disrupted_job(), [])
    assert found == LaunchEnd(reason="Disrupted: its Pod was evicted, preempted or deleted")


@pytest.mark.parametrize(
    ("job", "phase"), [(a_job(), "Running"), (a_job(), "Pending"), (a_complete_job(), "Succeeded")]
)
def test_a_launch_that_runs_or_succeeded_has_no_cause(job: Job, phase: str) -> None:
    assert launch_end(job, [a_pod(job, phase=phase)]) is None


@pytest.mark.parametrize("job", [a_job(), a_failed_job(), a_job(ended_by="us")])
def test_launch_that_goes_on_or_of_which_nobody_knows_has_no_cause(job: Job) -> None:
    assert launch_end(job, []) is None


@pytest.mark.parametrize("who", EndedBy)
def test_launch_whose_pod_is_gone_tells_who_has_ended_it(who: EndedBy) -> None:
    """The Pod may end and go between two looks at it. The history has a line for the launch nevertheless."""
    assert launch_end(a_failed_job(ended_by=who.value), []) == LaunchEnd(reason=GONE[who])


def test_a_span_has_the_largest_whole_unit() -> None:
    assert [span(number) for number in (1, 60, 61, 3600, 86_400)] == ["1 s", "1 min", "61 s", "1 h", "1 d"]


@pytest.mark.parametrize(
    ("seconds", "words"), [(1, "ran for 1 s, after its image and its init containers, over"), (58, "ran over")]
)
def test_container_that_began_late_tells_how_long_it_ran(seconds: float, words: str) -> None:
    """Both times are by the clock of its node, which may be wrong."""
    end = PodEnd(reason="DeadlineExceeded", exit_code=143, started_at=ago(seconds - 300), ended_at=ago(-300))
    job = a_failed_job(limit_seconds=60)
    found = launch_end(job, [a_pod(job, phase="Failed", end=end, **RAN)])
    assert found is not None
    assert found.reason == f"{words} its limit of 1 min"
