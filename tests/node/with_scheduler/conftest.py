"""The scheduler of the chart and a cache keeper, which come and go once for all tests of this folder."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from tests.node.install import OURS, VALUES, ready, upgrade
from tests.node.installation import Installation
from tests.node.registry import SCHEDULER
from tests.rig.pages import ENABLES_SCHEDULER, OPERATOR, find_block

OF_SCHEDULER = {"scheduler": {"image": SCHEDULER}, "reservations": {"enabled": True}}
ROLLED_OUT = f"kubectl -n {OURS} rollout status daemonset/dispatcher-cache-keeper --timeout=60s"


@pytest.fixture(scope="package")
def values(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the values of the tests."""
    path = tmp_path_factory.mktemp("values") / "values.yaml"
    path.write_bytes(msgspec.json.encode(VALUES))
    return path


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def scheduled(there: Installation, values: Path) -> AsyncIterator[Installation]:
    """The installation with the scheduler, by the lines of the operator's page. Afterwards it has none."""
    more, caches = values.with_name("scheduler.yaml"), {"CACHE_ROOT": str(there.site.caches)}
    more.write_bytes(msgspec.json.encode({**OF_SCHEDULER, "settings": caches}))
    await there.shell.run(find_block(OPERATOR, ENABLES_SCHEDULER).replace("values.yaml", f"{values} -f {more}"))
    await ready(there.site)
    await there.shell.run(ROLLED_OUT)
    yield there
    await upgrade(there.site, there.shell)
