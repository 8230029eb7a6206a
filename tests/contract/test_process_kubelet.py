"""Our kubelet compared with a real one (1.36), which was observed with the same Pods: field by field.

Times are not compared: the real one looks every second, ours ten times a second.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.contract.process_node import ProcessNode, conditions, opened, state
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.sides import BOTH_SIDES
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Place
from tests.rig.postgres import Database
from tests.rig.realities import crash

pytestmark = BOTH_SIDES

LOG_TAIL: dict[str, Any] = {"terminationMessagePolicy": "FallbackToLogsOnError"}
GONE = ("False", "PodFailed")


@pytest_asyncio.fixture(loop_scope="session")
async def node_under_test(
    control_plane: ControlPlane, namespace: str, database: Database, tmp_path: Path
) -> AsyncIterator[ProcessNode]:
    async with opened(Place(control_plane, namespace, database, tmp_path)) as made:
        yield made


@pytest.mark.slow
async def test_exit_0_completes_pod_and_job(node_under_test: ProcessNode) -> None:
    await node_under_test.job("sh", "-c", "echo out")
    status = await node_under_test.pod("Succeeded")
    assert state(status) == {"terminated": {"exitCode": 0, "reason": "Completed"}}
    assert conditions(status) == {
        "PodReadyToStartContainers": ("False", None),
        "Initialized": ("True", "PodCompleted"),
        "Ready": ("False", "PodCompleted"),
        "ContainersReady": ("False", "PodCompleted"),
        "PodScheduled": ("True", None),
    }
    (container,) = status["containerStatuses"]
    assert (container["ready"], container["started"], container["restartCount"]) == (False, False, 0)
    assert await node_under_test.job_conditions("Complete") == {
        "SuccessCriteriaMet": "CompletionsReached",
        "Complete": "CompletionsReached",
    }


@pytest.mark.slow
async def test_exit_3_fails_the_pod_with_the_end_of_the_log_as_message(node_under_test: ProcessNode) -> None:
    await node_under_test.job("sh", "-c", "echo out; echo boom on stderr >&2; exit 3", **LOG_TAIL)
    status = await node_under_test.pod("Failed")
    message = "out\nboom on stderr\n"
    assert state(status) == {"terminated": {"exitCode": 3, "reason": "Error", "message": message}}
    assert (conditions(status)["Ready"], conditions(status)["Initialized"]) == (GONE, ("True", None))
    assert set(await node_under_test.job_conditions("Failed")) == {"FailureTarget", "Failed"}
    assert (await node_under_test.job_conditions("Failed"))["Failed"] == "BackoffLimitExceeded"


async def test_missing_command_fails_the_pod(node_under_test: ProcessNode) -> None:
    await node_under_test.job("/no/such")
    status = await node_under_test.pod("Failed")
    told = state(status)["terminated"]
    assert (told["exitCode"], told["reason"]) == (128, "StartError")
    assert told["message"].endswith('exec: "/no/such": no such file or directory')
    assert status["containerStatuses"][0]["state"]["terminated"]["startedAt"] == "1970-01-01T00:00:00Z"
    await node_under_test.job_conditions("Failed")


async def test_absent_secret_keeps_the_pod_waiting_and_never_fails(node_under_test: ProcessNode) -> None:
    await node_under_test.job("true", envFrom=[{"secretRef": {"name": "absent"}}])
    status = await wait_for(
        lambda: [one for one in node_under_test.statuses if "containerStatuses" in one], "a first report", 20
    )
    assert state(status[-1]) == {
        "waiting": {"reason": "CreateContainerConfigError", "message": 'secret "absent" not found'}
    }
    assert status[-1]["phase"] == "Pending"


@pytest.mark.slow
async def test_deadline_of_the_job_deletes_the_pod(node_under_test: ProcessNode) -> None:
    await node_under_test.job(
        "sleep", "100", spec={"activeDeadlineSeconds": 2}, pod={"terminationGracePeriodSeconds": 1}
    )
    status = await node_under_test.pod("Failed")
    assert state(status)["terminated"]["exitCode"] in {137, 143}
    assert "reason" not in status
    assert await node_under_test.job_conditions("Failed") == {
        "FailureTarget": "DeadlineExceeded",
        "Failed": "DeadlineExceeded",
    }


@pytest.mark.slow
async def test_deadline_of_the_pod_leaves_it_failed_with_a_reason(node_under_test: ProcessNode) -> None:
    await node_under_test.job(
        "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done", pod={"activeDeadlineSeconds": 2}
    )
    status = await node_under_test.pod("Failed")
    words = "Pod was active on the node longer than the specified deadline"
    assert (status["reason"], status["message"]) == ("DeadlineExceeded", words)
    assert state(status) == {"terminated": {"exitCode": 0, "reason": "Completed"}}
    assert (await node_under_test.job_conditions("Failed"))["Failed"] == "BackoffLimitExceeded"


@pytest.mark.slow
async def test_pod_bound_past_the_scheduler_and_too_big_is_refused(node_under_test: ProcessNode) -> None:
    requests = {"requests": {"cpu": "100"}}
    await node_under_test.job("true", pod={"nodeName": node_under_test.node.name}, resources=requests)
    status = await node_under_test.pod("Failed")
    assert (status["reason"], status.get("containerStatuses"), status.get("conditions")) == ("OutOfcpu", None, None)
    await node_under_test.job_conditions("Failed")


@pytest.mark.slow
async def test_reboot_after_a_crash_fails_the_running_pod(node_under_test: ProcessNode) -> None:
    await node_under_test.job("sleep", "100")
    await node_under_test.pod("Running")
    await node_under_test.node.kill()
    crash(node_under_test.node)
    await node_under_test.node.start()
    assert state(await node_under_test.pod("Failed")) == {"terminated": {"exitCode": 255, "reason": "Unknown"}}
    await node_under_test.job_conditions("Failed")


@pytest.mark.slow
async def test_kubelet_that_was_away_reports_the_end_of_a_container_late(node_under_test: ProcessNode) -> None:
    await node_under_test.job("sh", "-c", "echo before; sleep 0.5; echo after; exit 4", **LOG_TAIL)
    await node_under_test.pod("Running")
    await node_under_test.node.kill()
    place = next(node_under_test.node.folder.glob("pods/*/containers/task"))
    await wait_for((place / "ended.json").exists, "the container has ended", 10)
    await node_under_test.node.start()
    status = await node_under_test.pod("Failed")
    assert state(status) == {"terminated": {"exitCode": 4, "reason": "Error", "message": "before\nafter\n"}}
    assert status["containerStatuses"][0]["restartCount"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(("trap", "code"), [("trap 'exit 143' TERM", 143), ("trap '' TERM", 137)], ids=["obeys", "not"])
async def test_deleted_pod_ends_by_its_signal_and_leaves_nothing(
    node_under_test: ProcessNode, tmp_path: Path, trap: str, code: int
) -> None:
    await node_under_test.job("sh", "-c", f"{trap}; touch {tmp_path / 'trapped'}; while :; do sleep 0.1; done")
    await node_under_test.pod("Running")
    await wait_for((tmp_path / "trapped").exists, "the container is ready for a signal", 5)
    await node_under_test.delete_pod(2)
    assert state(await node_under_test.pod("Failed")) == {"terminated": {"exitCode": code, "reason": "Error"}}
    await wait_for(lambda: not list(node_under_test.node.folder.glob("pods/*")), "nothing is left on the node", 10)


async def test_pod_without_a_command_is_refused_in_one_sentence(node_under_test: ProcessNode) -> None:
    await node_under_test.job()
    status = await node_under_test.pod("Failed")
    words = "there are no images here, so container task needs a command"
    assert (status["reason"], status["message"]) == ("NotAProcess", words)
    assert "containerStatuses" not in status
