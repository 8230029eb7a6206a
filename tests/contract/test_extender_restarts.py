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
from tests.scheduling.nodes_and_pods import Ground
from tests.scheduling.own_extender import ACCOUNT, OurExtender
from tests.scheduling.stage import DemoEnvironment

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
    control_plane: ControlPlane, ground: Ground, look_only: Path, ours: OurExtender
) -> None:
    nodes = await ground.nodes(3)
    async with AsyncExitStack() as between:
        proxy = await between.enter_async_context(KubeProxy(control_plane.url, control_plane.ca_file))
        async with OurExtender(proxy.kubeconfig(look_only)) as cut_off:
            await cut_off.ready()
            await between.aclose()
            scheduler = ground.scheduler_of(await cut_off.like(ours))
            notes = {"history-nodes": json.dumps(nodes[1:2])}
            pods = [await ground.pod(scheduler, notes=notes) for _ in range(20)]
            assert await ground.bound(*pods) == [nodes[1]] * 20
            for verb in ("filter", "prioritize"):
                quick = await cut_off.metric("dispatcher_extender_request_seconds_bucket", verb=verb, le="0.2")
                assert quick == await cut_off.answered(verb) == 20


async def test_idle_connection_lives_longer_than_kube_scheduler_keeps_it(look_only: Path) -> None:
    """kube-scheduler keeps it for 90 s. The extender's clock is put forward, the clock of the test is not."""
    ours = OurExtender(look_only)
    ours.program = fast_clock_extender.PROGRAM
    async with ours:
        await ours.ready()
        async with connected(ours.extender_port) as (reader, writer):
            writer.write(request(ours.extender_port))
            assert await answered(reader) == OK
            await fast_clock_extender.put_forward(ours)
            writer.write(request(ours.extender_port))
            assert await answered(reader) == OK
            await fast_clock_extender.put_forward(ours)
            await fast_clock_extender.put_forward(ours)
            assert await reader.read() == b"", "the connection is closed in the end"


@pytest.mark.fault(60)
async def test_all_pods_are_bound_after_a_killed_extender_is_back(
    ground: Ground, look_only: Path, ours: OurExtender
) -> None:
    nodes = await ground.nodes(4)
    async with OurExtender(look_only) as killed:
        await killed.ready()
        scheduler = ground.scheduler_of(await killed.like(ours))
        before = [await ground.pod(scheduler) for _ in range(15)]
        await ground.bound(before[0])
        await killed.kill()
        during = [await ground.pod(scheduler) for _ in range(15)]
        await ground.held(during[-1], "SchedulerError", "connection refused")
        await killed.start()
        assert set(await ground.bound(*before, *during, seconds=20)) <= set(nodes)


async def test_call_in_progress_at_shutdown_is_answered(look_only: Path) -> None:
    async with OurExtender(look_only) as ours:
        await ours.ready()
        port = ours.extender_port
        async with connected(port) as (reader, writer), connected(port) as (idle, asking):
            writer.write(request(port)[:-10])
            asking.write(request(port))
            assert await answered(idle) == OK
            ours.process.send_signal(signal.SIGTERM)
            await wait_for(lambda: refuses(port), "no new connection is accepted")
            writer.write(request(port)[-10:])
            assert await answered(reader) == OK
            assert await idle.read() == b"", "idle connections end"
        assert await ours.process.wait() == 0


async def test_extender_writes_nothing_and_node_annotations_bring_no_calls(
    control_plane: ControlPlane, our_stage: DemoEnvironment, ours: OurExtender
) -> None:
    unschedulable = await our_stage.pod(cpu="9000")
    await our_stage.ground.held(unschedulable, "Unschedulable", "Insufficient cpu")
    await our_stage.bound()
    before = await ours.answered("filter")
    for number in range(20):
        for node in our_stage.nodes:
            await our_stage.ground.annotate_node(node, load=str(number))
    await our_stage.bound()
    assert await ours.answered("filter") == before + 1
    await our_stage.ground.delete_pod(unschedulable)
    asked = control_plane.audit(user_prefix="system:serviceaccount:", stage="ResponseComplete")
    places = {"", our_stage.ground.namespace}
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
