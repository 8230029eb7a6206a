"""The fixtures of tests with a real kube-scheduler.

A module gets the fixtures by `pytest_plugins = ["tests.scheduling.fixtures"]`.

A test that changes nodes takes `node_group`, which makes nodes, Pods and schedulers for this test alone. `reserved`
adds to them reservations and our extender. A test that changes no node takes nodes that such tests share:
`shared_nodes` has a scripted extender, and `own_extender_nodes` has our extender.

`extender` is a scripted extender of the test's own. `own_extender` is one process of our extender for the whole run.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from dispatcher.kube.reservations import RESERVATIONS
from tests.controlplane.api import KubeFault
from tests.controlplane.cluster import ControlPlane
from tests.rig.deployed import rendered
from tests.scheduling.nodes_and_pods import NodeGroup, open_node_group
from tests.scheduling.own_extender import OwnExtender, account
from tests.scheduling.reservations import ReservedNodes, reserved_nodes_of
from tests.scheduling.scripted_extender import ScriptedExtender, scripted_extender
from tests.scheduling.shared_nodes import ScriptedNodes, SharedNodes, open_shared_nodes, scripted_nodes


@pytest_asyncio.fixture(loop_scope="session")
async def node_group(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[NodeGroup]:
    async with open_node_group(control_plane, tmp_path) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def extender() -> AsyncIterator[ScriptedExtender]:
    async with scripted_extender() as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def session_nodes(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ScriptedNodes]:
    async with scripted_nodes(control_plane, tmp_path_factory.mktemp("stage")) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def shared_nodes(session_nodes: ScriptedNodes) -> AsyncIterator[ScriptedNodes]:
    """Shared nodes with a scripted extender. Pods, calls and scripted answers are removed after each test."""
    yield session_nodes
    await session_nodes.node_group.empty()
    session_nodes.extender.forget()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def extender_kubeconfig(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of the kubeconfig of an extender's account."""
    namespace = await control_plane.create_namespace()
    return await account(control_plane, namespace, tmp_path_factory.mktemp("extender"))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def reservations(control_plane: ControlPlane) -> None:
    """Installs the kind NodeReservation as the chart does. Tests of the chart in other files take its roles away."""
    await control_plane.apply(rendered("everything", only="reservations"), namespace="default")

    async def is_served() -> bool:
        try:
            await control_plane.admin("GET", RESERVATIONS.path)
        except KubeFault as fault:
            if fault.status in {404, 429}:  # not served yet; "storage is (re)initializing"
                return False
            raise
        return True

    await control_plane.wait_for(is_served, "NodeReservations are served", 30)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def own_extender(extender_kubeconfig: Path) -> AsyncIterator[OwnExtender]:
    """One process for all tests: it stores nothing of the Pods in its requests."""
    async with OwnExtender(extender_kubeconfig) as made:
        await made.ready()
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def reserved(node_group: NodeGroup, own_extender: OwnExtender) -> ReservedNodes:
    return await reserved_nodes_of(node_group, own_extender, own_extender)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def own_extender_nodes(
    control_plane: ControlPlane, own_extender: OwnExtender, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SharedNodes]:
    """Shared nodes with our extender, and a kube-scheduler with the configuration that it prints."""
    async with open_shared_nodes(
        control_plane, tmp_path_factory.mktemp("stage"), await own_extender.printed(), 4
    ) as made:
        yield made
