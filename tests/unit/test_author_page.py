"""docs/author.md: each line of the table "what ends a run, and what it costs", and a template of an example."""

from pathlib import Path
from typing import Any, Final

import pytest

from dispatcher.container.contract import PUT_OFF
from dispatcher.jobs.templates import parse_template
from dispatcher.model.cluster import DEADLINE, Pod, PodEnd
from dispatcher.model.jobs import Job
from dispatcher.model.launches import Launch
from dispatcher.model.tasks import Status, Task
from tests.house.tree import ROOT
from tests.rig.builders import (
    a_complete_job,
    a_disrupted_job,
    a_failed_job,
    a_pod,
    a_running_task,
    a_task,
    ago,
    an_exited_pod,
)
from tests.unit.judging import judged

PAGE: Final = (Path(__file__).parents[2] / "docs/author.md").read_text(encoding="utf-8")
NOTHING, FAILURE, LAUNCH, DISRUPTION = "nothing", "a failure", "a launch", "a disruption"
STARTED: Final = a_running_task(max_failures=2)
WAITS: Final = a_task(max_failures=2)
FAILED, DONE, EVICTED = a_failed_job(), a_complete_job(), a_disrupted_job()
DELETED: Final = a_failed_job(ended_by="others")


def ended(job: Job, code: int, **changes: Any) -> list[Pod]:
    return [an_exited_pod(job, code, **changes)]


def at_limit(job: Job) -> list[Pod]:
    end = PodEnd(container="task", exit_code=143, was_told=True, reason=DEADLINE)
    return [a_pod(job, phase="Failed", had_run=True, had_begun=True, exit=end, end=end)]


REJECTED: Final = [a_pod(FAILED, phase="Failed", end=PodEnd(reason="OutOfcpu"))]
OWN_STORAGE: Final = [an_exited_pod(FAILED, 137, end=PodEnd(reason="Evicted", exit_code=137))]
OVER: Final = a_task(status=Status.SUCCEEDED, launch=1, finished_at=ago(60))
ONCE: Final = {"max_failures": 1}
CASES: Final[dict[str, list[tuple[Task, Job | None, list[Pod], str]]]] = {
    "the container ends after a report": [
        (OVER, FAILED, ended(FAILED, 1), NOTHING),
        (OVER, DONE, ended(DONE, 0), NOTHING),
    ],
    "it ends with 0, without a report": [
        (STARTED, DONE, ended(DONE, 0), "ExitedWithoutReport"),
        (WAITS, DONE, ended(DONE, 0), "ExitedWithoutReport"),
    ],
    "it ends otherwise, after `task_start`": [
        (STARTED, FAILED, ended(FAILED, 1), FAILURE),
        (a_running_task(max_failures=2, failures=1), FAILED, ended(FAILED, 1), "FailuresExhausted"),
    ],
    "it ends otherwise, before `task_start`": [
        (WAITS, FAILED, ended(FAILED, 1), LAUNCH),
        (WAITS, a_failed_job(1, 3, unstarted=2), [], "LaunchesExhausted"),
        (WAITS, FAILED, ended(FAILED, PUT_OFF), DISRUPTION),
    ],
    "its node is lost, it is evicted, somebody deletes its Pod or Job": [
        (STARTED, EVICTED, ended(EVICTED, 143, was_told=True, is_disrupted=True), DISRUPTION),
        (STARTED, DELETED, [], DISRUPTION),
        (STARTED, None, [], DISRUPTION),
        (STARTED, FAILED, ended(FAILED, 143, was_told=True), DISRUPTION),
        (STARTED, DONE, ended(DONE, 0, was_told=True), DISRUPTION),
        (a_running_task(**ONCE), EVICTED, [], "FailuresExhausted"),
        (a_task(**ONCE), EVICTED, [], DISRUPTION),
        (a_task(**ONCE), DELETED, [], DISRUPTION),
    ],
    "its Pod is evicted for more storage than its own limit": [(STARTED, FAILED, OWN_STORAGE, FAILURE)],
    "the run limit": [(STARTED, FAILED, at_limit(FAILED), FAILURE), (WAITS, FAILED, at_limit(FAILED), LAUNCH)],
    "the kubelet of its node rejects the Pod, or starts the container again in its Pod": [
        (WAITS, FAILED, REJECTED, NOTHING),
        (a_running_task(max_failures=2, second_process=True), DONE, ended(DONE, 0), FAILURE),
    ],
}  # fmt: skip


def cost(task: Task, job: Job | None, pods: list[Pod]) -> str:
    """What the launch has cost: by the counts of the next one, or why there is none."""
    verdict = judged(task, *([job] if job else []), pods=pods).verdict
    if verdict is None:
        return NOTHING
    if not isinstance(verdict, Launch):
        return str(verdict.reason)
    counted = {LAUNCH: verdict.unstarted, DISRUPTION: verdict.disrupted, NOTHING: verdict.unplaced}
    return next((word for word, number in counted.items() if number), FAILURE)


def test_each_line_of_the_table_has_its_cases() -> None:
    table = PAGE.split("| what ends a run | what it costs the row |")[1].split("\n\n")[0]
    lines = [line.split("|")[1].split(": SIGTERM")[0].strip() for line in table.splitlines()[2:]]
    assert lines == list(CASES)


@pytest.mark.parametrize("line", CASES)
def test_run_costs_what_the_table_says(line: str) -> None:
    assert [(cost(*case[:3]), number) for number, case in enumerate(CASES[line])] == [
        (case[3], number) for number, case in enumerate(CASES[line])
    ]


EXAMPLE = ROOT / "docs" / "examples" / "without-python.yaml"


def test_example_for_an_image_without_python_is_a_template_that_mounts_what_is_copied() -> None:
    template = parse_template("without-python", EXAMPLE.read_text(encoding="utf-8"))
    spec = template.manifest["spec"]["template"]["spec"]
    (copied,), (mounted, tmp) = spec["initContainers"][0]["volumeMounts"], template.task_container["volumeMounts"]
    assert copied["name"] == mounted["name"] == spec["volumes"][0]["name"]
    assert tmp["mountPath"] == "/tmp", "exec writes the payload's file there"
    assert (copied["mountPath"], mounted["mountPath"]) == ("/copy", "/dispatcher")
    assert template.task_container["command"][:3] == ["/dispatcher/bin/dispatcher", "exec", "--"]
