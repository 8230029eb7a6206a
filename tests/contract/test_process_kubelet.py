"""Our kubelet compared with a real one (1.36), which was observed with the same Pods: field by field.

Times are not compared: the real one looks every second, ours ten times a second. Then several Pods, and Pods that lack
something.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.sides import BOTH_SIDES
from tests.controlplane.waiting import wait_for
from tests.faults.http_proxy import KubeProxy, asks
from tests.faults.http_verbs import hold
from tests.faults.http_verbs import status as answer
from tests.faults.rules import Gate
from tests.rig.dispatching import Place
from tests.rig.noding import POOL, Node
from tests.rig.postgres import Database
from tests.rig.realities import crash

# A process kubelet with a node of its own, Jobs for that node, and every status that its Pods ever had.


class ProcessNode:
    """A node of its own, Jobs for it, and every status that its Pods ever had."""

    def __init__(self, place: Place, node: Node) -> None:
        self.node = node
        self._plane: ControlPlane = place.control_plane
        self._namespace = place.namespace
        self.statuses: list[Json] = []

    async def job(
        self, *command: str, name: str = "job", spec: Json | None = None, pod: Json | None = None, **container: Any
    ) -> None:
        image = {"name": "task", "image": "none:1", "command": list(command), **container}
        asked: Json = {
            "restartPolicy": "Never",
            "nodeSelector": {POOL: self._namespace},
            "containers": [image],
            **(pod or {}),
        }
        job = {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": {"spec": asked}, **(spec or {})}}
        await self._plane.admin("POST", f"/apis/batch/v1/namespaces/{self._namespace}/jobs", job)

    async def make(self, resource: str, **fields: Json) -> None:
        await self._plane.admin("POST", f"/api/v1/namespaces/{self._namespace}/{resource}", fields)

    async def pods(self) -> list[Json]:
        found: list[Json] = (await self._plane.admin("GET", f"/api/v1/namespaces/{self._namespace}/pods"))["items"]
        return found

    async def follow(self) -> None:
        async for change in self._plane.api.follow(f"/api/v1/namespaces/{self._namespace}/pods"):
            self.statuses += [pod["status"] for pod in change.objects]

    async def pod(self, phase: str) -> Json:
        """The newest status of that phase; it outlives its Pod."""
        return (await wait_for(lambda: [one for one in self.statuses if one.get("phase") == phase], f"{phase}", 20))[-1]

    async def job_conditions(self, last: str) -> dict[str, str]:
        async def look() -> dict[str, str]:
            path = f"/apis/batch/v1/namespaces/{self._namespace}/jobs/job"
            found = (await self._plane.admin("GET", path))["status"].get("conditions", [])
            told = {condition["type"]: condition["reason"] for condition in found}
            return told if last in told else {}

        return await wait_for(look, f"the Job is {last}", 20)

    async def delete_pod(self, grace: int) -> None:
        (pod,) = await self.pods()
        path = f"/api/v1/namespaces/{self._namespace}/pods/{pod['metadata']['name']}"
        await self._plane.admin("DELETE", path, {"gracePeriodSeconds": grace})

        async def is_gone() -> bool:
            return not await self._plane.exists(path)

        await wait_for(is_gone, "the Pod is gone", 20)


@asynccontextmanager
async def opened(place: Place, url: str | None = None) -> AsyncIterator[ProcessNode]:
    """`url`: where the kubelet finds the API server; None: at the server's own address."""
    made = ProcessNode(place, Node(place, "process-node", url))
    following = asyncio.create_task(made.follow())
    try:
        await made.node.start()
        yield made
    finally:
        following.cancel()
        await made.node.remove()


def state(status: Json) -> Json:
    """The state of the container, without times and ids."""
    (container,) = status["containerStatuses"]
    ((kind, told),) = container["state"].items()
    return {kind: {key: value for key, value in told.items() if key not in {"startedAt", "finishedAt", "containerID"}}}


def conditions(status: Json) -> dict[str, tuple[str, str | None]]:
    return {one["type"]: (one["status"], one.get("reason")) for one in status["conditions"]}


pytestmark = BOTH_SIDES

LOG_TAIL: dict[str, Any] = {"terminationMessagePolicy": "FallbackToLogsOnError"}
GONE = ("False", "PodFailed")


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


DISRUPTION = {"rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}


@pytest_asyncio.fixture(loop_scope="session")
async def place(control_plane: ControlPlane, namespace: str, database: Database, tmp_path: Path) -> Place:
    return Place(control_plane, namespace, database, tmp_path)


@pytest_asyncio.fixture(loop_scope="session")
async def node_under_test(place: Place) -> AsyncIterator[ProcessNode]:
    async with opened(place) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def proxy(control_plane: ControlPlane) -> AsyncIterator[KubeProxy]:
    async with KubeProxy(control_plane.url, control_plane.ca_file) as made:
        yield made


async def phases(node_under_test: ProcessNode) -> dict[str, str]:
    """Phase of each Job's Pod, by Job name."""
    return {pod["metadata"]["labels"]["job-name"]: pod["status"]["phase"] for pod in await node_under_test.pods()}


@pytest.mark.slow
async def test_missing_config_map_keeps_the_pod_waiting_until_it_exists(node_under_test: ProcessNode) -> None:
    secret: Json = {"name": "maybe", "secret": {"secretName": "s", "optional": True}}
    volumes: list[Json] = [{"name": "v", "configMap": {"name": "later"}}, secret]
    mounts = [{"name": "v", "mountPath": "/etc/v"}, {"name": "maybe", "mountPath": "/etc/maybe", "subPath": "in/it"}]
    await node_under_test.job(
        "sh", "-c", 'cat "$1/a"; test -d "$2"; exit 3', "sh", "/etc/v", "/etc/maybe",
        pod={"volumes": volumes}, volumeMounts=mounts, terminationMessagePolicy="FallbackToLogsOnError",
    )  # fmt: skip
    told = await wait_for(
        lambda: [one for one in node_under_test.statuses if "containerStatuses" in one], "a first report", 20
    )
    why = {"reason": "CreateContainerConfigError", "message": 'configmap "later" not found'}
    assert state(told[-1]) == {"waiting": why}
    await node_under_test.make("configmaps", metadata={"name": "later"}, data={"a": "text\n"})
    assert state(await node_under_test.pod("Failed"))["terminated"]["message"] == "text\n"


@pytest.mark.slow
async def test_pod_deleted_before_its_start_ends_and_fails_its_job(node_under_test: ProcessNode) -> None:
    """The Job's finalizer keeps the Pod until it has ended."""
    await node_under_test.job(
        "true", spec={"podFailurePolicy": DISRUPTION}, envFrom=[{"secretRef": {"name": "absent"}}]
    )
    await wait_for(
        lambda: [one for one in node_under_test.statuses if "containerStatuses" in one], "a first report", 20
    )
    await node_under_test.delete_pod(5)
    assert state(await node_under_test.pod("Failed"))["terminated"]["exitCode"] == 137
    await node_under_test.job_conditions("Failed")


async def test_one_of_two_pods_that_are_too_big_together_runs(node_under_test: ProcessNode) -> None:
    half = {"requests": {"cpu": "40"}}
    for name in ("a", "b"):
        await node_under_test.job("sleep", "60", name=name, pod={"nodeName": node_under_test.node.name}, resources=half)

    async def settled() -> bool:
        return sorted((await phases(node_under_test)).values()) == ["Failed", "Running"]

    await wait_for(settled, "one runs and one is refused", 20)


async def test_slow_answer_about_one_pod_delays_no_other_pod(place: Place, proxy: KubeProxy) -> None:
    gate = Gate()
    rule = proxy.add(hold(gate), asks("get", "secrets"))
    async with opened(place, proxy.url) as node_under_test:
        await node_under_test.make("secrets", metadata={"name": "slow"})
        await node_under_test.job("true", name="slow", envFrom=[{"secretRef": {"name": "slow"}}])
        await wait_for(lambda: rule.seen, "its Secret is asked for", 20)
        await node_under_test.job("true", name="quick")

        async def quick_is_over() -> bool:
            return (await phases(node_under_test)).get("quick") == "Succeeded"

        await wait_for(quick_is_over, "the other one runs", 20)
        assert (await phases(node_under_test))["slow"] == "Pending"
        gate.open()

        async def slow_is_over() -> bool:
            return (await phases(node_under_test))["slow"] == "Succeeded"

        await wait_for(slow_is_over, "the slow one runs, too", 20)


@pytest.mark.slow
async def test_refused_report_of_an_end_is_repeated_with_pauses(place: Place, proxy: KubeProxy) -> None:
    async with opened(place, proxy.url) as node_under_test:
        rule = proxy.add(answer(503), asks("update", "pods/status"))
        await node_under_test.job("true")
        await wait_for(lambda: rule.hits >= 1, "a first report was refused", 20)
        began = time.monotonic()
        await wait_for(lambda: rule.hits >= 4, "three more reports", 20)
        assert time.monotonic() - began >= 2
        rule.end()
        await node_under_test.pod("Succeeded")


@pytest.mark.slow
async def test_idle_node_writes_nothing_but_its_lease(place: Place) -> None:
    async with opened(place) as node_under_test:
        await node_under_test.job("true")
        await node_under_test.pod("Succeeded")
        before, seen = renewals(node_under_test, place), writes(node_under_test, place)
        await wait_for(lambda: renewals(node_under_test, place) >= before + 3, "three more signs of life", 30)
        assert writes(node_under_test, place) == seen


def renewals(node_under_test: ProcessNode, place: Place) -> int:
    leases = place.control_plane.audit(verb="update", resource="leases", namespace="kube-node-lease")
    return sum(event.object_ref.name == node_under_test.node.name for event in leases)


def writes(node_under_test: ProcessNode, place: Place) -> int:
    """Writes to its node and to its Pods."""
    plane = place.control_plane
    of_node = [
        one for one in plane.audit(verb="update", resource="nodes") if one.object_ref.name == node_under_test.node.name
    ]
    return len(of_node) + len(plane.audit(verb="update", resource="pods", namespace=place.namespace))
