"""Odd values together: several in one row, several rows at once, and rows whose kind belies what they hold."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.odd_company import FORGET, OF_KIND, OWN_KIND, Company, database, owner
from tests.integration.odd_programs import programs
from tests.property.profiles import STORY
from tests.rig.odd_rows import STATES, Odd, every_odd, write
from tests.rig.postgres import Connection, Database

__all__ = ["database", "owner"]
BY_STATE: Final = {state: [odd for odd in every_odd() if odd.state == state] for state in STATES}
FEW: Final = settings(
    STORY, max_examples=STORY.max_examples // 4,
    suppress_health_check=[*STORY.suppress_health_check, HealthCheck.function_scoped_fixture],
)  # fmt: skip
ROW: Final = st.sampled_from(list(STATES)).flatmap(
    lambda state: st.lists(st.sampled_from(BY_STATE[state]), min_size=1, max_size=8, unique_by=lambda odd: odd.column)
)
NOT_TAKEN: Final = (asyncpg.UniqueViolationError, asyncpg.ProgramLimitExceededError)
"""Two values may need the same place, or more of an index than it has."""
EDITS: Final[Mapping[str, str]] = {
    "template": "'nobodys'",
    "spec": """'{"cpu": "9999G"}'""",
    "timeout_seconds": "2147483647",
    "env": """'{"PATH": "/x"}'""",
}
"""Values that the template refuses, by column."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # aiohttp's, for a Job of 1 MiB
@FEW
@given(rows=st.lists(ROW, min_size=1, max_size=6))
async def test_programs_go_on_without_rows_of_many_odd_values(
    database: Database, owner: Connection, rows: Sequence[Sequence[Odd]]
) -> None:
    await owner.execute(FORGET)
    with tempfile.TemporaryDirectory() as folder:
        async with programs(database, Path(folder)) as both:
            company = Company(both, owner)
            await company.gather([])
            for odds in rows:
                with suppress(*NOT_TAKEN):
                    company.odd.append(await write(owner, "FIRST", odds[0].state, values_of(odds)))
            assert await company.judge() == []


def values_of(odds: Sequence[Odd]) -> dict[str, str]:
    """The values by column. A row that asks for something else than others is of another kind."""
    values = {odd.column: odd.expression for odd in odds}
    return {"kind": OWN_KIND, **values} if OF_KIND & values.keys() else values


@pytest.mark.parametrize("is_known", [False, True], ids=["new kind", "known kind"])
@pytest.mark.parametrize("column", EDITS)
async def test_row_that_the_owner_edits_changes_no_other_row_of_its_kind(
    database: Database, owner: Connection, tmp_path: Path, column: str, is_known: bool
) -> None:
    await owner.execute(FORGET)
    async with programs(database, tmp_path) as both:
        if is_known:
            await write(owner, "ALIKE", "waiting", {})
            await both.cycles()
        first, odd = [await write(owner, "ALIKE", "waiting", {}) for _ in range(2)]
        admin = await database.session("admin")
        await admin.execute(f"UPDATE dispatch_private.tasks SET {column} = {EDITS[column]} WHERE id = $1", odd)
        await both.cycles()
        later = await write(owner, "ALIKE", "waiting", {})
        await both.cycles()
        assert both.complaints == []
        assert {first, odd, later} & both.launched() == {first, later}
