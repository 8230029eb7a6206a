"""The scheduler of the chart on real nodes: kube-scheduler and the extender in one Pod."""

import msgspec

from dispatcher.doctor.finding import FindingState
from dispatcher.doctor.program import DoctorReport
from tests.node.confinement import STRICT, pods_of_ours, status_of_each_process, wrong_in_specification
from tests.node.install import OURS
from tests.node.installation import Installation

OF_PODS = ("ExtenderNotAnswering", "ExtenderMisused")
OF_EXTENDER = ("SchedulerAbsent", *OF_PODS)
"""Checks that the account of `run` can make."""


async def test_later_runs_land_on_the_node_where_their_cache_key_ran(scheduled: Installation) -> None:
    keys = [f"maps-{number}" for number in range(4)]
    nodes = []
    for _ in range(2):
        rows = [await scheduled.insert("sleep", 0.1, cache_key=key) for key in keys]
        ended = [await scheduled.ended(row) for row in rows]
        assert {row["status"] for row in ended} == {"succeeded"}
        nodes.append([row["node_name"] for row in ended])
    assert nodes[0] == nodes[1]


async def test_scheduler_may_read_all_that_it_asks_for(scheduled: Installation) -> None:
    """Without the RoleBinding in kube-system it is refused, and says so for ever."""
    log = await scheduled.shell.run(f"kubectl -n {OURS} logs deployment/dispatcher-scheduler -c kube-scheduler")
    assert "extension-apiserver-authentication" in log
    assert "forbidden" not in log


async def test_doctor_finds_no_fault_in_the_pod_with_two_replicas_of_the_scheduler(scheduled: Installation) -> None:
    """Both extenders are asked. One scheduler leads and calls its own, so no extender has two callers."""
    asked = f"kubectl -n {OURS} exec deploy/dispatcher -- dispatcher doctor --json"  # fails unless it ends with 0
    report = msgspec.json.decode(await scheduled.shell.run(asked), type=DoctorReport)
    wrong = [one for one in report.findings if one.state in {FindingState.FAULT, FindingState.WARNING}]
    assert (wrong, report.faults) == ([], 0)
    states = {what: [one.state for one in report.findings if one.what == what] for what in OF_EXTENDER}
    assert states == {"SchedulerAbsent": [FindingState.GOOD], **dict.fromkeys(OF_PODS, [FindingState.GOOD] * 2)}


async def test_kube_scheduler_and_extender_are_confined(scheduled: Installation) -> None:
    """kube-scheduler's image knows no user, so only the chart makes it run without root."""
    pods = await pods_of_ours(scheduled, "scheduler")
    assert len(pods) >= 2
    for pod in pods:
        assert wrong_in_specification(pod) == []
        found = status_of_each_process(pod)
        assert found.keys() == {"extender", "kube-scheduler"}
        assert {name: wrong for name, told in found.items() if (wrong := [one for one in told if one != STRICT])} == {}
