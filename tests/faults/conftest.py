"""The proxies of a test: between a client and the real servers. They end with the test."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.controlplane.cluster import ControlPlane
from tests.faults.http_proxy import KubeProxy
from tests.faults.postgres_proxy import PostgresProxy
from tests.rig.postgres import PostgresServer


@pytest_asyncio.fixture(loop_scope="session")
async def kube_proxy(control_plane: ControlPlane) -> AsyncIterator[KubeProxy]:
    async with KubeProxy(control_plane.url, control_plane.ca_file) as proxy:
        yield proxy
    assert proxy.faults == []


@pytest_asyncio.fixture(loop_scope="session")
async def postgres_proxy(postgres: PostgresServer) -> AsyncIterator[PostgresProxy]:
    async with PostgresProxy(postgres.admin_url) as proxy:
        yield proxy
    assert proxy.faults == []
