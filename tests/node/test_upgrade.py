"""Upgrades and downgrades while rows run: the last release, this version, and versions to come.

`Load` shows what became of the rows. The longest stall is at most what a leader's death may cost.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine

import pytest_asyncio

from dispatcher import __version__
from dispatcher.pg.migrate import NEWEST
from tests.controlplane.api import Json
from tests.node.book import Book
from tests.node.breaking import leader
from tests.node.install import OURS, REPOSITORY, ready, upgrade
from tests.node.installation import Installation
from tests.node.load import LONGEST_STALL, SECONDS, Load
from tests.node.versions import ADDS, AFTER, LAST, NEXT, REMOVES, last_chart
from tests.rig.deployed import CHART

ROWS = 18  # unfinished at any time; twelve of them run
UNDO = f"""
ALTER TABLE dispatch_private.queues DROP COLUMN IF EXISTS of_next;
DELETE FROM dispatch_private.schema_version WHERE version > {NEWEST};
"""


class Changes:
    """Changes of the version while rows wait, and what became of the rows."""

    def __init__(self, there: Installation, book: Book) -> None:
        self.there = there
        self._book = book

    async def to(self, version: str, **values: object) -> None:
        """`helm upgrade` to the version. Empty: that of the checkout."""
        image = {"repository": REPOSITORY, "tag": version}
        chart = last_chart() if version == LAST else CHART
        change = upgrade(self.there.site, self.there.shell, chart, image=image, **values)
        await self._under_load(f"upgrade to {version or __version__}", change)

    async def back(self) -> None:
        await self._under_load("helm rollback", self._roll_back())

    async def _roll_back(self) -> None:
        await self.there.shell.run("helm rollback dispatcher -n dispatcher")
        await ready(self.there.site)

    async def _under_load(self, what: str, change: Coroutine[None, None, None]) -> None:
        """Rows wait all the time. Both versions work for a while, and the lease goes from one to the other."""
        load, seen = Load(self.there, ROWS), set[frozenset[str]]()
        before = await leader(self.there.site)
        await load.during(self._watched(change, seen))
        found = await load.ended()
        self._book.enter(what, found)
        assert max(map(len, seen)) == 2, f"both versions were never ready at the same time: {seen}"
        assert await leader(self.there.site) not in {"", before}
        assert (found.lost, found.doubles, found.again) == (0, 0, 0), await load.launched_again()
        assert found.stall_seconds <= LONGEST_STALL

    async def _watched(self, change: Coroutine[None, None, None], seen: set[frozenset[str]]) -> None:
        """Makes the change. Adds to `seen` which versions are ready meanwhile."""
        changing = asyncio.create_task(change)

        async def is_done() -> bool:
            seen.add(await ready_images(self.there))
            return changing.done()

        await self.there.site.plane.wait_for(is_done, "the end of the change", SECONDS)
        await changing


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def changes(there: Installation, book: Book) -> AsyncIterator[Changes]:
    """The registry has all versions. Afterwards the installation has this version again."""
    there.site.registry.push_versions()
    yield Changes(there, book)
    await (await there.database.session("admin")).execute(UNDO)
    await upgrade(there.site, there.shell)


async def ready_images(there: Installation) -> frozenset[str]:
    """The images of the replicas that are ready."""
    pods = await there.pods(OURS, **{"app.kubernetes.io/component": "run"})
    return frozenset(pod["spec"]["containers"][0]["image"].rpartition(":")[2] for pod in pods if is_ready(pod))


def is_ready(pod: Json) -> bool:
    return any((one["type"], one["status"]) == ("Ready", "True") for one in pod["status"].get("conditions", ()))


async def newest_migration(there: Installation) -> str:
    admin = await there.database.session("admin")
    return str(await admin.fetchval("SELECT name FROM dispatch.schema_version ORDER BY version DESC LIMIT 1"))


async def test_this_version_goes_back_to_the_last_release_and_forth(changes: Changes) -> None:
    """The last release has no `migrate --queues`, and the schema is there."""
    await changes.to(LAST, migrate={"enabled": False})
    await changes.to("")


async def test_next_version_migrates_while_old_pods_work_and_is_rolled_back(changes: Changes) -> None:
    before = await newest_migration(changes.there)
    await changes.to(NEXT)
    assert before != await newest_migration(changes.there) == ADDS[0]
    await changes.back()
    assert await newest_migration(changes.there) == ADDS[0], "this version works with the newer schema"


async def test_version_that_lost_what_it_needs_says_so_and_the_newer_one_works_on(changes: Changes) -> None:
    there = changes.there
    await changes.to(AFTER)
    assert await newest_migration(there) == REMOVES[0]
    await there.shell.run("helm rollback dispatcher -n dispatcher")
    told = f"migration {REMOVES[0]} of a newer version has removed what this version needs"
    await there.site.plane.wait_for(lambda: is_told(there, told), "the older version says so", 60)
    row = await there.insert("sleep", 0.1)
    assert (await there.ended(row))["status"] == "succeeded", "Pods of the newer version are still there"


async def is_told(there: Installation, words: str) -> bool:
    logs = [
        await there.shell.run(f"kubectl -n {OURS} logs {pod['metadata']['name']} --tail=100 || true")
        for pod in await there.pods(OURS, **{"app.kubernetes.io/component": "run"})
    ]
    return any(words in log for log in logs)
