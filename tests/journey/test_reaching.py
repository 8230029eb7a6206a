"""Commands of a person with a kubeconfig: they find the dispatcher's Pod, and the output of a container."""

import asyncio
import json
import stat
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from dispatcher.commands.reaching import OF_RUN, PortForward, running_pods
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import from_kubeconfig
from tests.controlplane.ports import free_ports
from tests.controlplane.waiting import wait_for
from tests.rig.commands import says
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.kubelet_server import POOL, PORT_OF_THE_API, add_pod_of_run, kubelet_server
from tests.rig.steps import core_path, insert, reaches

SELECTOR = ",".join(f"{key}={value}" for key, value in POOL.items())

LOST = """
INSERT INTO dispatch_private.task_launches
    (task_id, queue, attempt, launch, job_uid, node_name, started_at, ended_at, outcome, exit_code, reason, error)
VALUES ($1, 'default', 1, $2, 'gone', 'node-1', now(), now(), 'lost', 1, 'exit code 1', $3)
"""
LINE = "2026-11-23T12:00:00.000000000Z stdout F "
"""What the kubelet writes before each line."""


def environment(place: Place, **settings: str) -> dict[str, str]:
    given = {f"DISPATCHER_{name}": value for name, value in {"LOG_LEVEL": "error", **settings}.items()}
    return {"HOME": "/nonexistent", "KUBECONFIG": str(place.folder / "person"), "TMPDIR": str(place.folder), **given}


async def person(place: Place, *arguments: object, **settings: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dispatcher", *map(str, arguments), env=environment(place, **settings),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip


async def asks(place: Place, *arguments: object, **settings: str) -> tuple[int | None, str]:
    """Exit status and output of `dispatcher ARGUMENTS…` of a person with a kubeconfig."""
    child = await person(place, *arguments, **settings)
    said = (await child.communicate())[0].decode()
    return child.returncode, said


@asynccontextmanager
async def two_replicas(place: Place, **settings: object) -> AsyncIterator[tuple[list[Dispatcher], Path]]:
    """Two dispatchers in Pods with a kubelet; the first leads. Yields them, and the log of all containers."""
    plane = place.control_plane
    plane.kubeconfig(place.folder / "person", token=plane.admin_token, namespace=place.namespace)
    replicas = [Dispatcher(place, NODE_SELECTOR=SELECTOR, **settings) for _ in range(2)]
    pods = {"run-b": replicas[0].api_port, "run-a": replicas[1].api_port}
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(kubelet_server(plane, place.folder, pods))
        for replica in replicas:
            await stack.enter_async_context(replica)
            await replica.ready()
        for name in pods:
            await add_pod_of_run(plane, place.namespace, name)
        yield replicas, log


@pytest.mark.slow
async def test_person_with_a_kubeconfig_asks_the_replica_that_leads(place: Place) -> None:
    """The first Pod by name does not lead."""
    async with two_replicas(place, MAX_JOBS=0) as (replicas, _):
        (task,) = await insert(place, 1)
        await wait_for(replicas[0].leads, "the first replica leads")
        status, said = await asks(place, "explain", "--namespace", place.namespace, task)
        assert (status, said.splitlines()[0]) == (0, f"task {task} (default), attempt 1: waiting"), said
        assert "JobCap" in said
        status, said = await asks(place, "status", "--json")
        assert status == 0, said
        assert json.loads(said)["leads"] is True
        status, said = await asks(place, "explain", "--namespace", place.namespace, 999_999)
        assert status == 1
        assert "there is no row 999999" in said
        for name in ("run-a", "run-b"):
            await says_of_a_pod(place, name, is_ready=False)
        status, said = await asks(place, "status", "--json")
        assert status == 0, f"a dispatcher that is not ready tells what is missing: {said}"
        assert json.loads(said)["leads"] is True
        assert not list(place.folder.glob("dispatcher-*/socket")), "the socket is removed"


@pytest.mark.slow
async def test_person_who_reaches_nobody_is_told_why_and_what_to_do(place: Place) -> None:
    plane = place.control_plane
    plane.kubeconfig(place.folder / "person", token=plane.admin_token, namespace=place.namespace)
    status, said = await asks(place, "status")
    assert status == 1
    assert f"no Pod of a dispatcher runs in namespace {place.namespace}; run the same command in its Pod" in said
    (port,) = free_ports(1)
    async with kubelet_server(plane, place.folder, {"run-a": port}):
        await add_pod_of_run(plane, place.namespace, "run-a")
        status, said = await asks(place, "status")
        assert status == 1
        assert "no dispatcher answers in Pod run-a: port-forward: error forwarding port 8081" in said
        assert "connection refused" in said
        token = await plane.service_account_token(place.namespace, "dispatcher")  # it lists Pods, and no more
        plane.kubeconfig(place.folder / "person", token=token, namespace=place.namespace)
        status, said = await asks(place, "status")
        assert status == 1
        assert "403" in said
        assert "needs the rights get and create on pods/portforward" in said


async def says_of_a_pod(place: Place, name: str, *, is_ready: bool, phase: str = "Running") -> None:
    """Writes the status of a Pod, as its kubelet would."""
    ready = {"type": "Ready", "status": str(is_ready)}
    path = core_path(place, "pods", f"{name}/status")
    await place.control_plane.admin("PATCH", path, {"status": {"phase": phase, "conditions": [ready]}})


async def test_pods_that_are_not_ready_are_asked_last(place: Place) -> None:
    """A dispatcher without a database is not ready, and that is when somebody asks what is missing."""
    labels = dict(pair.split("=") for pair in OF_RUN.split(","))
    spec = {"schedulerName": "nobody", "containers": [{"name": "dispatcher", "image": "registry.example/dispatcher:1"}]}
    for name in ("a-not-ready", "b-ready", "c-pending", "d-ended"):
        body = {"metadata": {"name": name, "labels": labels}, "spec": spec}
        await place.control_plane.admin("POST", core_path(place, "pods"), body)
    await says_of_a_pod(place, "a-not-ready", is_ready=False)
    await says_of_a_pod(place, "b-ready", is_ready=True)
    await says_of_a_pod(place, "d-ended", is_ready=False, phase="Succeeded")
    client = KubeClient(await from_kubeconfig(str(place.folder / "kubeconfig"), None))
    try:
        assert await running_pods(client, place.namespace) == [("b-ready", False), ("a-not-ready", True)]
    finally:
        await client.close()


@pytest.mark.slow
async def test_output_of_the_container_is_shown_and_followed(place: Place) -> None:
    async with two_replicas(place) as (replicas, log), place.playing():
        (task,) = await insert(place, 1, env={"PLAY": "hang"})
        await reaches(place, replicas[0], task, "processing", 60)
        log.write_text(f"{LINE}\x1b[32mone\x1b[0m \x1b[2J line\n{LINE}two\n")
        shown = "one \N{REPLACEMENT CHARACTER}[2J line\ntwo\n"
        assert await asks(place, "logs", task) == (0, shown)
        assert await asks(place, "logs", "--tail", 1, task) == (0, "two\n")
        assert await asks(place, "logs", task, NAMESPACE=place.namespace) == (0, shown)
        following = await person(place, "logs", "--follow", task)
        await says(following, "two")
        with log.open("a") as file:
            file.write(f"{LINE}three\n")
        await says(following, "three")
        following.terminate()
        await following.wait()
        status, said = await asks(place, "logs", task, "--launch", 7)
        assert status == 1
        assert said == f"task {task} has no such launch; processing: its container runs\n"


@pytest.mark.slow
async def test_output_is_followed_from_before_the_start(place: Place) -> None:
    admin = await place.database.session("admin")
    await admin.execute("UPDATE dispatch.queues SET paused_until = 'infinity'")
    async with two_replicas(place) as (replicas, log), place.playing():
        first, second = await insert(place, 2, env={"PLAY": "hang"})
        log.write_text(f"{LINE}hello\n")
        children = [await person(place, "logs", "--follow", task) for task in (first, second)]
        for child, task in zip(children, (first, second), strict=True):
            await says(child, f"task {task}: Paused: ")
        await admin.execute("SELECT dispatch.task_cancel($1)", second)
        said = (await children[1].communicate())[0].decode()
        assert (children[1].returncode, "has no launch; cancelled" in said) == (1, True), said
        await admin.execute("UPDATE dispatch.queues SET paused_until = NULL")
        await says(children[0], "hello")
        await reaches(place, replicas[0], first, "processing", 60)
        children[0].terminate()
        await children[0].wait()


@pytest.mark.slow
async def test_launch_whose_pod_is_gone_shows_what_is_known_of_it(place: Place) -> None:
    async with two_replicas(place, MAX_JOBS=0) as (_, _):
        (task,) = await insert(place, 1)
        admin = await place.database.session("admin")
        await admin.execute(LOST, task, 1, "no disk")
        status, said = await asks(place, "logs", task)
        assert status == 0, said
        assert said.splitlines() == [
            "attempt 1, launch 1 on node-1: lost, exit code 1",
            "  | no disk",
            f"task {task}: its Pod is gone; this is the last output that was kept",
        ]


@pytest.mark.slow
async def test_long_answer_comes_whole_through_a_port_forward(place: Place) -> None:
    async with two_replicas(place, MAX_JOBS=0) as (_, _):
        (task,) = await insert(place, 1)
        admin = await place.database.session("admin")
        for launch in range(1, 21):
            await admin.execute(LOST, task, launch, "\u20ac" * 2700)
        status, said = await asks(place, "explain", "--json", task)
        assert status == 0
        assert len(said.encode()) > 150_000
        assert [one["launch"] for one in json.loads(said)["launches"]] == list(range(1, 21))


@pytest.mark.slow
async def test_person_who_may_not_read_logs_is_told_which_right_is_missing(place: Place) -> None:
    async with two_replicas(place) as (replicas, _), place.playing():
        (task,) = await insert(place, 1, env={"PLAY": "hang"})
        await reaches(place, replicas[0], task, "processing", 60)
        plane = place.control_plane
        token = await plane.service_account_token(place.namespace, "dispatcher")
        plane.kubeconfig(place.folder / "person", token=token, namespace=place.namespace)
        status, said = await asks(place, "logs", task, "--url", f"http://127.0.0.1:{replicas[0].api_port}")
        assert status == 1
        assert f"list pods and get pods/log in namespace {place.namespace} are needed" in said
        assert said.endswith(f"task {task}: its Pod is there, but its output could not be read\n")
        status, said = await asks(place, "logs", task, NAMESPACE=place.namespace)
        assert (status, "are needed" in said, "has started" in said) == (1, True, False), said


async def test_socket_of_a_port_forward_is_closed_to_other_accounts(place: Place, tmp_path: Path) -> None:
    """A port of the loopback would show the reasons of all teams to every account of the machine."""
    client = KubeClient(await from_kubeconfig(str(place.folder / "kubeconfig"), None))
    try:
        async with PortForward(client, place.namespace, "run-a", PORT_OF_THE_API).opened() as forward:
            folder = forward.socket.parent
            assert folder.is_relative_to(tempfile.gettempdir())
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert not folder.exists()
    finally:
        await client.close()
