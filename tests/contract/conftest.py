"""Fixtures of several modules. Also deselects, for the embedded cluster, the tests that `differences` names.

wire: the administrator's requests, in the namespace of the test.
account: the ServiceAccount `dispatcher` with the shipped rights.
replicas: replicas of the dispatcher at a scripted lease.
kubelet: a played kubelet, in a namespace that the tests of a module share.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.contract.differences import NAMES
from tests.contract.own_jobs import Account, dispatcher_account
from tests.contract.played_kubelet import PlayedKubelet, playing
from tests.contract.scripted_lease import Replicas, serving_lease
from tests.contract.wire import Wire, opened
from tests.controlplane.cluster import ControlPlane


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left = [item for item in items if item.get_closest_marker("embedded") and name_of(item) in NAMES]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


def name_of(item: pytest.Item) -> str:
    return f"{item.path.stem}::{getattr(item, 'originalname', item.name)}"


@pytest_asyncio.fixture(loop_scope="session")
async def wire(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Wire]:
    async with opened(control_plane, namespace) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def account(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> AsyncIterator[Account]:
    async with dispatcher_account(control_plane, namespace, tmp_path) as account:
        yield account


@pytest_asyncio.fixture(loop_scope="session")
async def replicas() -> AsyncIterator[Replicas]:
    async with serving_lease() as api:
        made = Replicas(api)
        yield made
        await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ground(control_plane: ControlPlane) -> AsyncIterator[str]:
    """One namespace for these tests; each test ends its Pods."""
    name = await control_plane.create_namespace()
    yield name
    await control_plane.empty_namespace(name)


@pytest_asyncio.fixture(loop_scope="session")
async def kubelet(control_plane: ControlPlane, ground: str) -> AsyncIterator[PlayedKubelet]:
    async with playing(control_plane, ground) as playing_here:
        yield playing_here
