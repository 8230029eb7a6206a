"""A backup that is restored while the cluster lives, by the commands of docs/install.md."""

import re
from collections.abc import Sequence
from pathlib import Path

from tests.node.install import ready
from tests.node.installation import ENDED, Installation
from tests.node.load import Load
from tests.rig.pages import INSTALL, find_block

FEW, LATE = 16, 5
BEGINNING = "# needs a cluster\npsql work"
RESTORE = "# restore the database, and look at the rows"
IS_OVER = "SELECT bool_and(status = ANY ($1)) FROM dispatch.tasks WHERE id = ANY ($2)"
UNFINISHED = """SELECT 'unfinished: ' || count(*) FROM dispatch.tasks
                WHERE status IN ('waiting', 'processing') AND id = ANY ('{{{}}}')"""
PODS = "SELECT task_id, array_agg(DISTINCT pod) AS pods FROM public.trace WHERE task_id = ANY ($1) GROUP BY task_id"
NOT_REPORTED = "ExitedWithoutReport"


async def test_restored_rows_meet_their_jobs_and_ids_that_come_again_meet_none(
    there: Installation, tmp_path: Path
) -> None:
    """The backup is made while rows run. Their Jobs end after it, and rows come of which the backup knows nothing."""
    load = Load(there, FEW)
    await load.start()
    url, backup = there.database.admin_url, tmp_path / "work.dump"
    # The table of traces is the test's own memory: it is not restored.
    await there.shell.run(f"pg_dump '{url}' --format=custom --exclude-table=public.trace --file={backup}")
    assert (await load.ended()).lost == 0
    late = [await there.insert("sleep", 0.1) for _ in range(LATE)]
    for row in late:
        await there.ended(row)
    before = await pods_of(there, late)

    restore = f"pg_restore --dbname='{url}' --clean --if-exists --single-transaction {backup}"
    unfinished = UNFINISHED.format(",".join(map(str, load.ids)))
    restore += f"\npsql '{url}' --tuples-only --command=\"{unfinished}\""
    block = find_block(INSTALL, BEGINNING)
    assert RESTORE in block
    told = await there.shell.run(block.replace(RESTORE, restore).replace("psql work", f"psql '{url}'"))
    (waited,) = map(int, re.findall(r"unfinished: (\d+)", told))
    assert waited > 0, "rows ran when the backup was made"
    await ready(there.site)

    again = [await there.insert("sleep", 0.1) for _ in range(LATE)]
    assert again == late
    for row in again:
        assert (await there.ended(row))["status"] == "succeeded"
    after = await pods_of(there, again)
    assert [row for row in late if after[row] == before[row]] == [], "each id that came again ran in a Pod of its own"
    await have_ended(there, load.ids)
    traces = await there.traces(load.ids)
    assert [row for row, one in traces.items() if one["end"] != 1] == [], "no Job of before the restore is made again"
    rows = [await there.database.task(row) for row in load.ids]
    parked = [row for row in rows if row["status"] != "succeeded"]
    assert len(parked) == waited
    assert [row["error"] for row in parked if not row["error"].startswith(NOT_REPORTED)] == []


async def pods_of(there: Installation, rows: Sequence[int]) -> dict[int, set[str]]:
    admin = await there.database.session("admin")
    return {row["task_id"]: set(row["pods"]) for row in await admin.fetch(PODS, rows)}


async def have_ended(there: Installation, rows: Sequence[int]) -> None:
    async def is_over() -> bool:
        there.site.check()
        admin = await there.database.session("admin")
        return bool(await admin.fetchval(IS_OVER, list(ENDED), rows))

    await there.site.plane.wait_for(is_over, "the end of the restored rows", 120)
