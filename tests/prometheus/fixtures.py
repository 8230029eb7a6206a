"""The fixture `prometheus` is a Prometheus that scrapes the fixture `exporter`. Each file of tests has its own two.

The program is found, or built, before the first test begins. A build takes minutes. Within a test it would exceed the
time limit.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.controlplane.binaries import PROMETHEUS, BuildFault, programs
from tests.prometheus.exporter import Exporter, exporting
from tests.prometheus.server import PrometheusServer


def pytest_collection_finish(session: pytest.Session) -> None:
    wanted = any("prometheus" in getattr(item, "fixturenames", ()) for item in session.items)
    if wanted and not session.config.option.collectonly:
        try:
            programs(PROMETHEUS)
        except BuildFault as fault:
            raise pytest.UsageError(str(fault)) from fault


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def exporter() -> AsyncIterator[Exporter]:
    async with exporting() as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def prometheus(exporter: Exporter) -> AsyncIterator[PrometheusServer]:
    async with PrometheusServer(exporter.address) as server:
        yield server
