"""New passwords for all logins while the dispatcher works: as the page of installation says, and at once."""

from datetime import datetime
from typing import Final

from dispatcher.container.contract import START_SECONDS
from tests.node.confinement import pods_of_ours
from tests.node.install import as_here
from tests.node.installation import Installation
from tests.node.load import Load
from tests.rig.pages import INSTALL, find_block, without_comment

ROWS: Final = 8
BLOCK: Final = find_block(INSTALL, "# needs a cluster\n# no task may run meanwhile\n")
PAUSE, JOBS_AT_WORK, CHANGE, GO_ON = map(without_comment, BLOCK.splitlines()[2:])
OURS_IN_POSTGRES: Final = "FROM pg_stat_activity WHERE usename ~ '_dispatcher(_janitor)?$'"


async def run(there: Installation, line: str) -> str:
    return await there.shell.run(as_here(line.replace("psql work", f"psql {there.database.admin_url}"), there.database))


async def programs(there: Installation) -> dict[str, int]:
    """Restarts of every Pod of ours."""
    return {
        pod["metadata"]["name"]: sum(one["restartCount"] for one in pod["status"]["containerStatuses"])
        for pod in await pods_of_ours(there)
    }


async def disconnect(there: Installation) -> datetime:
    """Ends all sessions of our programs. Returns the time of it."""
    admin = await there.database.session("admin")
    await admin.execute(f"SELECT pg_terminate_backend(pid) {OURS_IN_POSTGRES}")
    at: datetime = await admin.fetchval("SELECT clock_timestamp()")
    return at


async def test_passwords_that_change_in_a_pause_cost_no_launch(there: Installation) -> None:
    load = Load(there, ROWS)
    await load.start()
    await run(there, PAUSE)

    async def are_over() -> bool:
        return await run(there, f"{{ {JOBS_AT_WORK}; }} || true") == ""

    await there.site.plane.wait_for(are_over, "no Job is at work", 60)
    await run(there, CHANGE)
    await run(there, GO_ON)
    found = await load.ended()
    assert (found.lost, found.doubles, found.again) == (0, 0, 0)


async def test_passwords_that_change_at_once_reach_running_pods_and_lose_no_row(there: Installation) -> None:
    before = await programs(there)
    load = Load(there, ROWS, seconds=15)  # some of them run until the passwords have changed
    await load.start()
    await run(there, CHANGE)
    changed = await disconnect(there)
    found = await load.ended(START_SECONDS)  # a container that was made just before has the old password
    assert found.lost == 0
    assert found.again > 0, "tasks that ran could not report"
    assert await programs(there) == before

    async def are_back() -> bool:
        admin = await there.database.session("admin")
        query = f"SELECT count(DISTINCT usename) {OURS_IN_POSTGRES} AND backend_start > $1"
        return bool(await admin.fetchval(query, changed) == 2)

    await there.site.plane.wait_for(are_back, "both logins are connected with the new passwords", 60)
