"""The site is one for the whole run. Without `make node` its tests are skipped, with the reason."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.node.book import Book
from tests.node.endings import Rows, slow
from tests.node.install import install
from tests.node.installation import Installation
from tests.node.place import why_not_here
from tests.node.site import Site, started


@pytest.fixture(scope="session", autouse=True)
def _namespaces() -> None:
    if reason := why_not_here():
        pytest.skip(reason)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site(_namespaces: None) -> AsyncIterator[Site]:
    async with started() as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def there(site: Site, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    """The dispatcher, installed once."""
    database = await site.postgres.create_database(migrated=False)
    shell = await install(site, database, tmp_path_factory.mktemp("administrator"))
    made = Installation(site, database, shell)
    await made.prepare()
    yield made
    await database.drop()


@pytest.fixture(scope="session")
def book() -> Book:
    return Book()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def slow_rows(there: Installation) -> Rows:
    return await slow(there)


@pytest.fixture(scope="session", autouse=True)
def _early(request: pytest.FixtureRequest) -> None:
    """Inserts the rows that take long before the first test."""
    if any("slow_rows" in getattr(item, "fixturenames", ()) for item in request.session.items):
        request.getfixturevalue("slow_rows")
