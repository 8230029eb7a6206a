"""Jobs, Pods and Nodes as the real servers write them, and the facts that the dispatcher reads from them."""

import secrets
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from dispatcher.kube.objects import UNREACHABLE, read_job, read_node, read_pod
from dispatcher.kube.wire import ListPage
from dispatcher.model.cluster import Node, Pod
from dispatcher.model.jobs import Job, Manifest, Phase
from tests.contract.own_jobs import Account, dispatcher_account
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.rig.builders import DATABASE_ID

CLOCK = timedelta(seconds=2)
"""Objects have whole seconds, and the servers share this machine's clock."""


@pytest_asyncio.fixture(loop_scope="session")
async def account(
    control_plane: ControlPlane, nodes: list[str], namespace: str, tmp_path: Path
) -> AsyncIterator[Account]:
    async with dispatcher_account(control_plane, namespace, tmp_path) as account:
        yield account


async def job_now(account: Account, name: str) -> Job:
    reply = await account.client.request("GET", account.path("jobs", name))
    job = read_job(reply.expect(f"get {name}"))
    assert job is not None
    return job


async def pod_now(account: Account, job: Job) -> Pod | None:
    """The Pod of the Job, through the dispatcher's client; None: there is none yet."""
    reply = await account.client.request("GET", account.path("pods"), params={"labelSelector": f"job-name={job.name}"})
    pods = reply.read("list Pods", ListPage).items
    return read_pod(pods[0]) if pods else None


async def until_job(account: Account, name: str, is_so: Callable[[Job], bool]) -> Job:
    async def look() -> Job | None:
        job = await job_now(account, name)
        return job if is_so(job) else None

    job = await account.plane.wait_for(look, f"Job {name} is as expected", 20)
    assert job is not None
    return job


async def until_pod(account: Account, job: Job, is_so: Callable[[Pod], bool]) -> Pod:
    async def look() -> Pod | None:
        pod = await pod_now(account, job)
        return pod if pod and is_so(pod) else None

    pod = await account.plane.wait_for(look, f"the Pod of {job.name} is as expected", 20)
    assert pod is not None
    return pod


def is_recent(time: datetime | None, now: datetime) -> bool:
    return time is not None and abs(now - time) < timedelta(seconds=20) + CLOCK


class TestJobs:
    async def test_new_job_has_its_facts(self, account: Account) -> None:
        made = await account.created(account.manifest(42, attempt=2, launch=3))
        job = await job_now(account, made.name)
        assert (job.task_id, job.attempt, job.launch) == (42, 2, 3)
        assert (job.queue, job.template, job.image) == ("default", "default", "registry.example/team-a/app:1")
        assert (job.database_id, job.submitted_by, job.report) == (DATABASE_ID, "team_a", "sql")
        assert (job.phase, job.ended_at, job.is_finished, job.suspended) == (Phase.ACTIVE, None, False, False)
        assert is_recent(job.created_at, account.client.now())

    @pytest.mark.fault(37, 50)
    @pytest.mark.parametrize(
        ("steer", "phase", "reason", "disrupted"),
        [
            ({"run-seconds": "0"}, Phase.COMPLETE, "CompletionsReached", False),
            ({"run-seconds": "0", "exit-code": "3"}, Phase.FAILED, "BackoffLimitExceeded", False),
            ({"evicted-after-seconds": "0"}, Phase.FAILED, "PodFailurePolicy", True),
            ({"rejected": "OutOfcpu"}, Phase.FAILED, "BackoffLimitExceeded", False),
            ({"start-error": "no such file"}, Phase.FAILED, "BackoffLimitExceeded", False),
        ],
        ids=["succeeded", "failed", "evicted", "refused by its node", "without its command"],
    )
    async def test_job_that_is_over_has_its_end(
        self, account: Account, steer: dict[str, str], phase: Phase, reason: str, disrupted: bool
    ) -> None:
        made = await account.created(account.manifest(steer=steer))
        job = await until_job(account, made.name, lambda job: job.is_finished)
        assert (job.phase, job.reason, job.was_disrupted) == (phase, reason, disrupted)
        assert is_recent(job.ended_at, account.client.now())
        assert job.ended_at is not None
        assert job.ended_at >= job.created_at

    @pytest.mark.slow
    async def test_failing_job_waits_for_the_end_of_its_pod(self, account: Account) -> None:
        manifest = account.manifest(steer={"stop-seconds": "1.5"})
        manifest["spec"]["activeDeadlineSeconds"] = 1
        made = await account.created(manifest)
        failing = await until_job(account, made.name, lambda job: job.phase is not Phase.ACTIVE)
        assert (failing.phase, failing.reason, failing.is_finished) == (Phase.FAILING, "DeadlineExceeded", False)
        failed = await until_job(account, made.name, lambda job: job.is_finished)
        assert (failed.phase, failed.reason, failed.was_disrupted) == (Phase.FAILED, "DeadlineExceeded", False)

    async def test_suspended_job_is_active(self, account: Account) -> None:
        manifest = account.manifest()
        manifest["spec"]["suspend"] = True
        job = await account.created(manifest)
        assert (job.suspended, job.phase, job.is_finished) == (True, Phase.ACTIVE, False)

    async def test_job_that_is_being_deleted_says_so(self, account: Account) -> None:
        made = await account.created(account.manifest(steer={"stop-seconds": "2"}))
        pod = await until_pod(account, made, lambda pod: pod.phase == "Running")
        assert not pod.deleting
        await account.plane.admin("DELETE", account.path("jobs", made.name), {"propagationPolicy": "Foreground"})
        assert (await job_now(account, made.name)).deleting
        pod = await until_pod(account, made, lambda pod: pod.deleting)
        assert pod.phase == "Running"

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("dispatcher.internal/task-id", "9" * 30),
            ("dispatcher.internal/task-id", "0"),
            ("dispatcher.internal/task-id", "many"),
            ("dispatcher.internal/launch", ""),
        ],
    )
    async def test_job_with_numbers_that_no_row_has_is_not_ours(self, account: Account, key: str, value: str) -> None:
        manifest = account.manifest()
        manifest["metadata"]["name"] += "-by-somebody"
        manifest["metadata"]["labels"][key] = value
        answer = await account.api.create(manifest)
        assert (answer.status, answer.job) == (201, None)

    @pytest.mark.parametrize("written", ["²", "9" * 5000, "-1", "many", ""])
    async def test_spoilt_count_is_zero(self, account: Account, written: str) -> None:
        manifest = account.manifest()
        manifest["metadata"]["annotations"]["dispatcher.internal/unstarted"] = written
        assert (await account.created(manifest)).unstarted == 0


class TestPods:
    async def test_running_pod_has_its_facts(self, account: Account, nodes: list[str]) -> None:
        job = await account.created()
        pod = await until_pod(account, job, lambda pod: pod.phase == "Running")
        assert (pod.job_uid, pod.had_run, pod.waiting_reason) == (job.uid, True, "")
        assert pod.shape
        assert pod.node_name
        assert (pod.deleting, pod.unschedulable_since) == (False, None)
        assert is_recent(pod.created_at, account.client.now())

    @pytest.mark.fault(40)
    @pytest.mark.parametrize(
        ("steer", "phase", "had_run"),
        [
            ({"run-seconds": "0"}, "Succeeded", True),
            ({"run-seconds": "0", "exit-code": "137", "exit-reason": "OOMKilled"}, "Failed", True),
            ({"evicted-after-seconds": "0"}, "Failed", True),
            ({"rejected": "OutOfcpu"}, "Failed", False),
            ({"start-error": "no such file"}, "Failed", False),
        ],
        ids=["succeeded", "killed", "evicted", "refused by its node", "without its command"],
    )
    async def test_pod_that_is_over_has_its_end(
        self, account: Account, steer: dict[str, str], phase: str, had_run: bool
    ) -> None:
        job = await account.created(account.manifest(steer=steer))
        pod = await until_pod(account, job, lambda pod: pod.phase == phase)
        assert (pod.had_run, pod.waiting_reason) == (had_run, "")

    @pytest.mark.parametrize(
        ("steer", "reason"),
        [
            ({"waiting": "ImagePullBackOff"}, "ImagePullBackOff"),
            ({"waiting": "CreateContainerConfigError"}, "CreateContainerConfigError"),
            ({"never-starts": "true"}, ""),  # ContainerCreating is an ordinary state
        ],
    )
    async def test_pod_that_does_not_start_has_its_reason(
        self, account: Account, steer: dict[str, str], reason: str
    ) -> None:
        job = await account.created(account.manifest(steer=steer))
        await account.the_pod(job, "is at its node", lambda pod: "containerStatuses" in pod["status"])
        pod = await pod_now(account, job)
        assert pod is not None
        assert (pod.phase, pod.waiting_reason, pod.had_run) == ("Pending", reason, False)
        assert pod.node_name

    async def test_pod_that_fits_nowhere_has_its_time(self, account: Account) -> None:
        manifest = account.manifest()
        manifest["spec"]["template"]["spec"]["nodeSelector"] = {"nowhere": "at-all"}
        job = await account.created(manifest)
        pod = await until_pod(account, job, lambda pod: pod.unschedulable_since is not None)
        assert is_recent(pod.unschedulable_since, account.client.now())
        assert (pod.phase, pod.node_name, pod.had_run) == ("Pending", "", False)

    async def test_side_container_does_not_count_as_a_run_of_the_task(self, account: Account) -> None:
        job = await account.created(with_side_container(account.manifest(steer={"waiting": "ImagePullBackOff"})))
        pod = await account.the_pod(job, "is at its node", lambda pod: "containerStatuses" in pod["status"])
        statuses = pod["status"]["containerStatuses"]
        for status in statuses:
            if status["name"] == "side":
                status["state"] = {"running": {"startedAt": pod["metadata"]["creationTimestamp"]}}
        path = account.path("pods", pod["metadata"]["name"])
        await account.plane.admin("PATCH", f"{path}/status", {"status": {"containerStatuses": statuses}})
        found = await pod_now(account, job)
        assert found is not None
        assert (found.had_run, found.waiting_reason) == (False, "ImagePullBackOff")


def with_side_container(manifest: Manifest) -> Manifest:
    manifest["spec"]["template"]["spec"]["containers"].insert(0, {"name": "side", "image": "registry.example/mesh:1"})
    return manifest


@pytest_asyncio.fixture(loop_scope="session")
async def unplayed(control_plane: ControlPlane) -> AsyncIterator[str]:
    """A Node without a kubelet, not even a played one: its status is what a test writes."""
    body = {"metadata": {"name": f"unplayed-{secrets.token_hex(3)}"}}
    name = (await control_plane.admin("POST", "/api/v1/nodes", body))["metadata"]["name"]
    yield name
    await control_plane.remove_node(name)


async def node_as_answered(account: Account, path: str, change: Json) -> Node:
    """The node as the answer to the change shows it; a moment later the controllers may have changed it again."""
    return read_node(msgspec.json.encode(await account.plane.admin("PATCH", path, change)))


class TestNodes:
    async def test_ready_node_is_ready(self, account: Account, nodes: list[str]) -> None:
        reply = await account.client.request("GET", "/api/v1/nodes")
        found = {node.name: node for raw in reply.read("list nodes", ListPage).items for node in [read_node(raw)]}
        assert (found[nodes[0]].ready, found[nodes[0]].unreachable) == (True, False)

    @pytest.mark.parametrize(
        ("ready", "unreachable"), [("True", False), ("False", True), ("Unknown", True)], ids=["up", "sick", "lost"]
    )
    async def test_node_follows_its_ready_condition(
        self, account: Account, unplayed: str, ready: str, unreachable: bool
    ) -> None:
        said = {"status": {"conditions": [{"type": "Ready", "status": ready}]}}
        node = await node_as_answered(account, f"/api/v1/nodes/{unplayed}/status", said)
        assert (node.name, node.ready, node.unreachable) == (unplayed, ready == "True", unreachable)

    async def test_node_with_the_unreachable_taint_is_unreachable(self, account: Account, unplayed: str) -> None:
        said = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await node_as_answered(account, f"/api/v1/nodes/{unplayed}/status", said)
        taint = {"spec": {"taints": [{"key": UNREACHABLE, "effect": "NoExecute"}]}}
        node = await node_as_answered(account, f"/api/v1/nodes/{unplayed}", taint)
        assert (node.name, node.ready, node.unreachable) == (unplayed, True, True)
