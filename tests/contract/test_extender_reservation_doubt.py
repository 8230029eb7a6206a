"""Until the extender has seen all bound Pods, it gives no held node to other Pods; the target still gets its node."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from dispatcher.extender.book import UNCERTAIN
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.waiting import wait_for
from tests.faults.http_proxy import Asked, KubeProxy, Verb, asks
from tests.faults.http_verbs import status
from tests.faults.rules import Rule
from tests.scheduling.nodes_and_pods import NodeGroup
from tests.scheduling.own_extender import OwnExtender
from tests.scheduling.reservations import TARGET_META, ReservedNodes, refusal_of, reserved_nodes_of

pytest_plugins = ["tests.scheduling.fixtures"]
pytestmark = pytest.mark.usefixtures("reservations")


class Doubtful:
    """An extender that sees no Pod until the rule ends."""

    def __init__(self, reserved: ReservedNodes, rule: Rule[Asked, Verb]) -> None:
        self.reserved = reserved
        self.rule = rule

    async def node_held(self) -> tuple[str, str]:
        """Makes a node, half of it held for the Job `ours`. Returns the node and the reservation."""
        (node,) = await self.reserved.node_group.nodes(1, cpu="3900m")
        hold = await self.reserved.reservations.hold(node, {"cpu": "2000m"}, jobName="ours")

        async def is_in_doubt() -> bool:
            with suppress(aiohttp.ClientConnectionError):  # the extender does not listen yet
                return await refusal_of(self.reserved.own_extender, node, {"cpu": "1m"}) == UNCERTAIN
            return False

        await wait_for(is_in_doubt, "the extender is in doubt", 20, check=self.reserved.own_extender.check)
        return node, hold


@pytest_asyncio.fixture(loop_scope="session")
async def doubtful(
    control_plane: ControlPlane, node_group: NodeGroup, own_extender: OwnExtender, extender_kubeconfig: Path
) -> AsyncIterator[Doubtful]:
    async with AsyncExitStack() as between:
        proxy = await between.enter_async_context(KubeProxy(control_plane.url, control_plane.ca_file))
        rule = proxy.add(status(500), asks("watch", "pods"))
        behind = await between.enter_async_context(OwnExtender(proxy.kubeconfig(extender_kubeconfig)))
        yield Doubtful(await reserved_nodes_of(node_group, behind, own_extender), rule)


@pytest.mark.slow
async def test_pod_refused_in_doubt_is_bound_when_the_doubt_ends(doubtful: Doubtful) -> None:
    """No other event would make kube-scheduler try the Pod again."""
    reserved = doubtful.reserved
    node, _ = await doubtful.node_held()
    pod = await reserved.pod(cpu="1000m")
    await reserved.node_group.held(pod, "Unschedulable", f"1 {UNCERTAIN}")
    doubtful.rule.end()
    assert await reserved.node_group.bound(pod, seconds=60) == [node]


async def test_target_gets_its_node_in_doubt(doubtful: Doubtful) -> None:
    reserved = doubtful.reserved
    node, hold = await doubtful.node_held()
    assert await reserved.node_group.bound(await reserved.pod(cpu="3900m", meta=TARGET_META)) == [node]
    doubtful.rule.end()
    await reserved.reservations.wait_for_phase(hold, "Landed", f"its Pod is on node {node}", 60)
