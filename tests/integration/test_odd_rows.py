"""A row that cannot be read is that row's fault: whatever one row holds, all programs go on without it.

The owner of the tables writes the rows, past all triggers. Each odd value of each column stands in a row of its own
beside good rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.integration.odd_company import complaints_about, database, owner
from tests.rig.odd_rows import Odd, every_odd, refusal_of, together
from tests.rig.postgres import Connection, Database

__all__ = ["database", "owner"]
NOWHERE: Final = {
    "NUL in a text": r"U&'a\0000'",
    "NUL as a character": "chr(0)",
    "NUL in JSON": r"""'"a\u0000"'::jsonb""",
    "half of a pair": "chr(55296)",
    "half of a pair in JSON": r"""'"\ud800"'::jsonb""",
    "other half of a pair in JSON": r"""'"\udc00"'::jsonb""",
    "no UTF-8": r"convert_from('\xff', 'UTF8')",
    "NaN in JSON": "'NaN'::jsonb",
    "Infinity in JSON": "'-Infinity'::jsonb",
    "too many digits": "'1e131072'::jsonb",
    "too deep": "repeat('[', 100000)::jsonb",
    "time after the last": "'294277-01-01'::timestamptz",
    "time before the first": "'4714-01-01 BC'::timestamptz",
    "large smallint": "32768::smallint",
}
"""Values that Postgres stores in no row."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # aiohttp's, for a Job of 1 MiB
@pytest.mark.parametrize("odds", together(every_odd()))
async def test_programs_go_on_without_odd_rows(
    database: Database, owner: Connection, tmp_path: Path, odds: Sequence[Odd]
) -> None:
    complaints = await complaints_about(database, owner, tmp_path, odds)
    assert complaints == []


@pytest.mark.parametrize("expression", NOWHERE.values(), ids=NOWHERE.keys())
async def test_value_that_no_row_can_hold_is_refused_by_postgres(owner: Connection, expression: str) -> None:
    assert await refusal_of(owner, expression)
