"""`dispatcher exec` behind a pooler that refuses settings, as PgBouncer does with settings that it does not know."""

from __future__ import annotations

import pytest

from tests.rig.execing import DONE, execute
from tests.rig.poolers import REFUSALS, pooler
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import insert_row

database = one_database


@pytest.mark.parametrize("kind", REFUSALS)
async def test_pooler_that_refuses_a_setting_is_asked_without_it(database: Database, kind: str) -> None:
    row = await insert_row(database)
    async with pooler(database.url("task"), kind) as (url, startups):
        ended = await execute(row, "true", TASK_DATABASE_URL=url)
    assert (ended.status, await row.status()) == (DONE, "succeeded"), ended
    assert [b"search_path" in startup for startup in startups] == [True, False] * 2, "twice: the start and the report"
