"""The scheduler of the chart and a cache keeper, which come and go once for all tests of this folder."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from tests.node.install import OURS, VALUES, ready, upgrade
from tests.node.installation import Installation
from tests.node.registry import SCHEDULER
from tests.pages import ENABLES_SCHEDULER, OPERATOR, find_block

OF_SCHEDULER = {"scheduler": {"image": SCHEDULER}, "reservations": {"enabled": True}}
ONE_KEEPER = {"nodeSelector": {"kubernetes.io/hostname": "real-1"}}
"""The nodes have one disk together, and a disk has one keeper."""
ROLLED_OUT = f"kubectl -n {OURS} rollout status daemonset/dispatcher-cache-keeper --timeout=60s"


@pytest.fixture(scope="package")
def values(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the values of the tests."""
    path = tmp_path_factory.mktemp("values") / "values.yaml"
    path.write_bytes(msgspec.json.encode(VALUES))
    return path


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def scheduled(
    there: Installation, values: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    """The installation with the scheduler, by the lines of the operator's page. Afterwards it has none."""
    more, caches = values.with_name("scheduler.yaml"), {"CACHE_ROOT": str(tmp_path_factory.mktemp("caches"))}
    more.write_bytes(msgspec.json.encode({**OF_SCHEDULER, "settings": caches, "cacheKeeper": ONE_KEEPER}))
    await there.shell.run(find_block(OPERATOR, ENABLES_SCHEDULER).replace("values.yaml", f"{values} -f {more}"))
    await ready(there.site)
    await there.shell.run(ROLLED_OUT)
    yield there
    await upgrade(there.site, there.shell)
