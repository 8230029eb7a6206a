"""Odd rows of the tables beside `tasks`: all programs go on without them, too.

The values are those of `tests/rig/odd_cells.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from dispatcher.views.answers import ApiRequest
from tests.controlplane.waiting import wait_for
from tests.integration.odd_company import FORGET, Company, database, owner
from tests.integration.odd_programs import Programs, programs
from tests.rig.odd_cells import Cell, every_cell, write_cell
from tests.rig.odd_rows import together
from tests.rig.postgres import Connection, Database

__all__ = ["database", "owner"]
BROUGHT: Final = "SELECT reason FROM dispatch_private.task_reasons WHERE task_id = $1"


async def complaints_about(database: Database, owner: Connection, folder: Path, cells: Sequence[Cell]) -> list[str]:
    await owner.execute(FORGET)
    async with programs(database, folder) as both:
        company = Company(both, owner)
        await company.gather([])
        company.odd = [await write_cell(owner, cell) for cell in cells]
        await company.launch()
        await company.show()
        for cell, id_ in zip(cells, company.odd, strict=True):
            if cell.table == "queues":
                await both.ask("/queues/{name}", ApiRequest(f"odd-{id_}"))
        await bring(both, owner, company.refused)
        await company.end()
        return both.complaints


async def bring(both: Programs, owner: Connection, id_: int) -> None:
    """The reason of a parked row is brought into the database."""
    before = len(both.complaints)

    async def is_brought() -> Any:
        await both.beside_rounds()
        return len(both.complaints) > before or await owner.fetchval(BROUGHT, id_)

    try:
        await wait_for(is_brought, "the reason of the refused row is in the database", 5)
    except TimeoutError as fault:
        both.complaints.append(f"reasons: {fault}")


@pytest.mark.slow
@pytest.mark.parametrize("cells", together(every_cell()))
async def test_programs_go_on_without_odd_rows_of_other_tables(
    database: Database, owner: Connection, tmp_path: Path, cells: Sequence[Cell]
) -> None:
    assert await complaints_about(database, owner, tmp_path, cells) == []
