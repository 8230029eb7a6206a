"""Fixtures of the tests with a real kube-scheduler.

ground: nodes, Pods and schedulers of one test.
extender: an extender that the test scripts.
ours: our extender; one process for the whole run.
stage: shared nodes and a scripted extender, for tests that change no node.
our_stage: shared nodes and our extender, for tests that change no node.

A module uses them by `pytest_plugins = ["tests.scheduling.fixtures"]`.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from dispatcher.kube.reservations import RESERVATIONS
from tests.controlplane.api import KubeFault
from tests.controlplane.cluster import ControlPlane
from tests.deployed import DEPLOY, rendered
from tests.scheduling.nodes_and_pods import Ground, grounds
from tests.scheduling.own_extender import OurExtender, account
from tests.scheduling.reserving import Plot, plot_of
from tests.scheduling.scripted import Scripted, scripted
from tests.scheduling.stage import DemoEnvironment, ScriptedStage, scripted_stage, staged


@pytest_asyncio.fixture(loop_scope="session")
async def ground(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Ground]:
    async with grounds(control_plane, tmp_path) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def extender() -> AsyncIterator[Scripted]:
    async with scripted() as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def standing(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ScriptedStage]:
    async with scripted_stage(control_plane, tmp_path_factory.mktemp("stage")) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def stage(standing: ScriptedStage) -> AsyncIterator[ScriptedStage]:
    """Shared nodes with a scripted extender. Pods, calls and scripted answers are removed after each test."""
    yield standing
    await standing.ground.empty()
    standing.extender.forget()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def look_only(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of the kubeconfig of an extender's account."""
    namespace = await control_plane.create_namespace()
    return await account(control_plane, namespace, tmp_path_factory.mktemp("extender"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def reservations(control_plane: ControlPlane) -> None:
    """Installs the kind NodeReservation as `kubectl apply -k deploy/crd` does."""
    await control_plane.apply(rendered(DEPLOY / "crd"), namespace="default")

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
async def ours(look_only: Path) -> AsyncIterator[OurExtender]:
    """One process for all tests: it stores nothing of the Pods in its requests."""
    async with OurExtender(look_only) as made:
        await made.ready()
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def plot(ground: Ground, ours: OurExtender) -> Plot:
    return await plot_of(ground, ours, ours)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def our_stage(
    control_plane: ControlPlane, ours: OurExtender, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[DemoEnvironment]:
    """Shared nodes with our extender, and a kube-scheduler with the configuration that it prints."""
    async with staged(control_plane, tmp_path_factory.mktemp("stage"), await ours.printed(), 4) as made:
        yield made
