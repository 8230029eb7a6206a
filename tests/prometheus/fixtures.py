"""The fixture `prometheus` is a Prometheus that scrapes the fixture `exporter`. Each file of tests has its own two.

The fixture `promtool` is the program that tests rules. The programs are found, or built, before the first test begins.
A build takes minutes. Within a test it would exceed the time limit.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.controlplane.binaries import PROMETHEUS, BuildFault, programs
from tests.prometheus.exporter import Exporter, exporting
from tests.prometheus.server import PrometheusServer, Target

NEED_IT = frozenset({"prometheus", "promtool", "watched"})


def pytest_collection_finish(session: pytest.Session) -> None:
    wanted = any(NEED_IT.intersection(getattr(item, "fixturenames", ())) for item in session.items)
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
    async with PrometheusServer(Target(exporter.address)) as server:
        yield server


@pytest.fixture(scope="session")
def promtool() -> Path:
    return programs(PROMETHEUS)["promtool"]
