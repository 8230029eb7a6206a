"""One world and one browser for the whole run. Without a browser the tests are skipped, with the reason."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.browser import installed
from tests.browser.showing import MOST_MILLISECONDS, started
from tests.browser.world import World, a_world
from tests.controlplane.cluster import ControlPlane
from tests.rig.dispatching import Place
from tests.rig.postgres import PostgresServer

expect.set_options(timeout=MOST_MILLISECONDS)


@pytest.fixture(scope="session", autouse=True)
def _machine() -> None:
    if lacking := installed.lacking():
        pytest.skip(f"run `make browser` as root on a Debian machine, or install {' '.join(lacking)}")


@pytest.fixture(scope="session")
def axe(_machine: None) -> str:
    """The script of axe-core."""
    return installed.axe().read_text(encoding="utf-8")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(_machine: None) -> AsyncIterator[Browser]:
    async with started() as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def world(
    _machine: None,
    control_plane: ControlPlane,
    nodes: list[str],
    postgres: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[World]:
    database = await postgres.create_database()
    namespace = await control_plane.create_namespace()
    place = Place(control_plane, namespace, database, tmp_path_factory.mktemp("world"))
    await place.prepare()
    async with a_world(place) as made:
        yield made
    await database.drop()
