"""The fixture `control_plane` is one for the whole run. The fixture `namespace` is a new one for each test.

Missing programs are built before the first test: a build takes minutes and would otherwise count against the time limit
of one test. `CONTROL_PLANE_LOGS=FOLDER` keeps the servers' logs there.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.controlplane.binaries import BuildFault, programs
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.embedded import EmbeddedPlane


def pytest_collection_finish(session: pytest.Session) -> None:
    wanted = any(asks_the_real_one(item) for item in session.items)
    if wanted and not session.config.option.collectonly:
        try:
            programs()
        except BuildFault as fault:
            raise pytest.UsageError(str(fault)) from fault


def asks_the_real_one(item: pytest.Item) -> bool:
    return "control_plane" in getattr(item, "fixturenames", ()) and item.get_closest_marker("embedded") is None


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> ControlPlane:
    """The real control plane, or the one that `sides` selects."""
    plane: ControlPlane = request.getfixturevalue(f"{getattr(request, 'param', 'real')}_plane")
    return plane


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def embedded_plane() -> AsyncIterator[ControlPlane]:
    async with EmbeddedPlane() as plane:
        yield plane


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def real_plane() -> AsyncIterator[ControlPlane]:
    kept = os.environ.get("CONTROL_PLANE_LOGS")
    async with ControlPlane(logs_in=Path(kept) if kept else None) as plane:
        yield plane
        left = [one["metadata"]["name"] for one in (await plane.admin("GET", "/api/v1/nodes"))["items"]]
        assert left == [], "a test that leaves its nodes changes what fits in the tests after it"


@pytest_asyncio.fixture(loop_scope="session")
async def namespace(control_plane: ControlPlane) -> AsyncIterator[str]:
    name = await control_plane.create_namespace()
    yield name
    await control_plane.empty_namespace(name)
