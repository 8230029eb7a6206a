"""Our extender when it ends, or when servers around it go away: no Pod is lost, and no Pod waits for long."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.controlplane.cluster import ControlPlane
from tests.controlplane.waiting import wait_for
from tests.faults.http_proxy import KubeProxy
from tests.scheduling import fast_clock_extender
from tests.scheduling.nodes_and_pods import NodeGroup
from tests.scheduling.own_extender import ACCOUNT, OwnExtender
from tests.scheduling.shared_nodes import SharedNodes

pytest_plugins = ["tests.scheduling.fixtures"]
OK = b"HTTP/1.1 200 OK"
ASKED = json.dumps({"Pod": {"metadata": {"uid": "u"}}, "NodeNames": ["a"]}).encode()


def request(port: int, body: bytes = ASKED) -> bytes:
    head = f"POST /filter HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def answered(reader: asyncio.StreamReader) -> bytes:
    """The status line of the next answer; reads the answer to its end."""
    head = await reader.readuntil(b"\r\n\r\n")
    (size,) = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    await reader.readexactly(int(size.split(b":")[1]))
    return head.split(b"\r\n")[0]


@pytest.mark.fault(60)
async def test_extender_answers_from_memory_without_the_api_server(
    control_plane: ControlPlane, node_group: NodeGroup, extender_kubeconfig: Path, own_extender: OwnExtender
) -> None:
    nodes = await node_group.nodes(3)
    async with AsyncExitStack() as between:
        proxy = await between.enter_async_context(KubeProxy(control_plane.url, control_plane.ca_file))
        async with OwnExtender(proxy.kubeconfig(extender_kubeconfig)) as cut_off:
            await cut_off.ready()
            await between.aclose()
            scheduler = node_group.scheduler_of(await cut_off.configuration_like(own_extender))
            notes = {"history-nodes": json.dumps(nodes[1:2])}
            pods = [await node_group.pod(scheduler, notes=notes) for _ in range(20)]
            assert await node_group.bound(*pods) == [nodes[1]] * 20
            for verb in ("filter", "prioritize"):
                quick = await cut_off.metric("dispatcher_extender_request_seconds_bucket", verb=verb, le="0.2")
                assert quick == await cut_off.answered(verb) == 20


async def test_idle_connection_lives_longer_than_kube_scheduler_keeps_it(extender_kubeconfig: Path) -> None:
    """kube-scheduler keeps it for 90 s. The extender's clock is put forward, the clock of the test is not."""
    own_extender = OwnExtender(extender_kubeconfig)
    own_extender.program = fast_clock_extender.PROGRAM
    async with own_extender:
        await own_extender.ready()
        async with connected(own_extender.extender_port) as (reader, writer):
            writer.write(request(own_extender.extender_port))
            assert await answered(reader) == OK
            await fast_clock_extender.move_clock_forward(own_extender)
            writer.write(request(own_extender.extender_port))
            assert await answered(reader) == OK
            await fast_clock_extender.move_clock_forward(own_extender)
            await fast_clock_extender.move_clock_forward(own_extender)
            assert await reader.read() == b"", "the connection is closed in the end"


@pytest.mark.slow
@pytest.mark.fault(60)
async def test_all_pods_are_bound_after_a_killed_extender_is_back(
    node_group: NodeGroup, extender_kubeconfig: Path, own_extender: OwnExtender
) -> None:
    nodes = await node_group.nodes(4)
    async with OwnExtender(extender_kubeconfig) as killed:
        await killed.ready()
        scheduler = node_group.scheduler_of(await killed.configuration_like(own_extender))
        before = [await node_group.pod(scheduler) for _ in range(15)]
        await node_group.bound(before[0])
        await killed.kill()
        during = [await node_group.pod(scheduler) for _ in range(15)]
        await node_group.held(during[-1], "SchedulerError", "connection refused")
        await killed.start()
        assert set(await node_group.bound(*before, *during, seconds=20)) <= set(nodes)


async def test_call_in_progress_at_shutdown_is_answered(extender_kubeconfig: Path) -> None:
    async with OwnExtender(extender_kubeconfig) as own_extender:
        await own_extender.ready()
        port = own_extender.extender_port
        async with connected(port) as (reader, writer), connected(port) as (idle, asking):
            writer.write(request(port)[:-10])
            asking.write(request(port))
            assert await answered(idle) == OK
            own_extender.process.send_signal(signal.SIGTERM)
            await wait_for(lambda: refuses(port), "no new connection is accepted")
            writer.write(request(port)[-10:])
            assert await answered(reader) == OK
            assert await idle.read() == b"", "idle connections end"
        assert await own_extender.process.wait() == 0


async def test_extender_writes_nothing_and_node_annotations_bring_no_calls(
    control_plane: ControlPlane, own_extender_nodes: SharedNodes, own_extender: OwnExtender
) -> None:
    unschedulable = await own_extender_nodes.pod(cpu="9000")
    await own_extender_nodes.node_group.held(unschedulable, "Unschedulable", "Insufficient cpu")
    await own_extender_nodes.bound()
    before = await own_extender.answered("filter")
    for number in range(20):
        for node in own_extender_nodes.nodes:
            await own_extender_nodes.node_group.annotate_node(node, load=str(number))
    await own_extender_nodes.bound()
    assert await own_extender.answered("filter") == before + 1
    await own_extender_nodes.node_group.delete_pod(unschedulable)
    asked = control_plane.audit(user_prefix="system:serviceaccount:", stage="ResponseComplete")
    places = {"", own_extender_nodes.node_group.namespace}
    own = [e for e in asked if e.user.endswith(f":{ACCOUNT}") and e.object_ref.namespace in places]
    assert {event.verb for event in own} == {"list", "watch"}
    assert {event.object_ref.resource for event in own} == {"nodes", "pods", "nodereservations"}


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def listens(port: int) -> bool:
    try:
        async with connected(port):
            return True
    except ConnectionError:  # refused, or closed while it was accepted
        return False


async def refuses(port: int) -> bool:
    return not await listens(port)
