"""The fixture `place` gives a test a namespace, a database and templates of its own. All tests share four nodes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.controlplane.cluster import ControlPlane
from tests.rig.dispatching import Place
from tests.rig.postgres import Database


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def nodes(control_plane: ControlPlane) -> AsyncIterator[list[str]]:
    """Names of four large nodes that all tests share."""
    names = await control_plane.add_nodes(4, cpu="64", memory="256Gi", pods=500, prefix="roomy")
    yield names
    for name in names:
        await control_plane.remove_node(name)


@pytest_asyncio.fixture(loop_scope="session")
async def place(
    control_plane: ControlPlane, nodes: list[str], namespace: str, database: Database, tmp_path: Path
) -> AsyncIterator[Place]:
    made = Place(control_plane, namespace, database, tmp_path)
    await made.prepare()
    yield made
