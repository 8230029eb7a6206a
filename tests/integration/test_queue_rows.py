"""`migrate --queues` on a real database: it inserts what is missing, and never changes what an operator has changed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dispatcher.model.errors import DatabaseUnfit
from dispatcher.pg.tasks import QueueRow, declare_queues, read_queues
from tests.integration.columns import QUEUES
from tests.rig.postgres import Database

ALL = {
    "name": "reports", "weight": 3, "max_jobs": 20, "max_jobs_per_submitter": 5, "max_pending": 2,
    "paused_until": "infinity", "owner_role": "team_a", "submit_role": "team_b", "max_waiting_per_submitter": 1000,
    "note": "nightly", "fair_submitters": True,
}  # fmt: skip


def written(folder: Path, *queues: object) -> Path:
    file = folder / "queues.json"
    file.write_bytes(msgspec.json.encode(queues))
    return file


def test_file_may_name_every_column_of_the_table() -> None:
    assert {field.name for field in msgspec.structs.fields(QueueRow)} == QUEUES == ALL.keys()


async def test_queue_is_inserted_with_all_its_values(database: Database, tmp_path: Path) -> None:
    admin = await database.session("admin")
    assert await declare_queues(database.admin_url, read_queues(written(tmp_path, ALL))) == ["reports"]
    row = dict(await admin.fetchrow("SELECT *, paused_until::text FROM dispatch.queues WHERE name = 'reports'") or {})
    assert row == ALL


async def test_defaults_are_those_of_the_table(database: Database, tmp_path: Path) -> None:
    admin = await database.session("admin")
    await declare_queues(database.admin_url, read_queues(written(tmp_path, {"name": "declared"})))
    await admin.execute("INSERT INTO dispatch.queues (name) VALUES ('inserted')")
    rows = await admin.fetch("SELECT * FROM dispatch.queues WHERE name IN ('declared', 'inserted')")
    first, second = ({key: value for key, value in dict(row).items() if key != "name"} for row in rows)
    assert first == second


async def test_queues_that_a_migration_made_take_the_declared_values_once(database: Database, tmp_path: Path) -> None:
    """`*` and `default` are there before anybody can declare them. Their caps are what an operator declares first."""
    admin, caps = await database.session("admin"), "SELECT name, max_jobs, note FROM dispatch.queues ORDER BY name"
    before = await admin.fetch(caps)
    await admin.execute("UPDATE dispatch.queues SET weight = weight WHERE name = '*'")
    declared = read_queues(written(tmp_path, {"name": "*", "max_jobs": 5}, {"name": "default", "max_jobs": 7}))
    assert await declare_queues(database.admin_url, declared) == ["default"]
    every, default = before
    assert await admin.fetch(caps) == [every, (default["name"], 7, default["note"])]
    await admin.execute("UPDATE dispatch.queues SET max_jobs = NULL WHERE name = 'default'")
    assert await declare_queues(database.admin_url, declared) == []
    assert await admin.fetch(caps) == before


async def test_queue_that_an_operator_changed_stays_as_it_is(database: Database, tmp_path: Path) -> None:
    admin, file = await database.session("admin"), written(tmp_path, ALL, {"name": "default", "max_jobs": 1})
    await declare_queues(database.admin_url, read_queues(file))
    await admin.execute("UPDATE dispatch.queues SET max_jobs = 99, paused_until = NULL WHERE name = 'reports'")
    before = await admin.fetch("SELECT * FROM dispatch.queues ORDER BY name")
    assert await declare_queues(database.admin_url, read_queues(file)) == []
    assert await admin.fetch("SELECT * FROM dispatch.queues ORDER BY name") == before


async def test_queues_are_declared_all_or_none(database: Database) -> None:
    admin = await database.session("admin")
    with pytest.raises(DatabaseUnfit, match="yesterday at noon"):
        await declare_queues(
            database.admin_url, [QueueRow("first"), QueueRow("second", paused_until="yesterday at noon")]
        )
    assert not await admin.fetchval("SELECT count(*) FROM dispatch.queues WHERE name = 'first'")


@pytest.mark.parametrize(
    ("queue", "told"),
    [
        ({"name": "reports", "max_job": 1}, "unknown field `max_job`"),
        ({"name": "Reports"}, r"\$\[1\]\.name"),
        ({"name": "reports", "weight": 0}, r"\$\[1\]\.weight"),
        ({"name": "reports", "max_jobs": -1}, r"\$\[1\]\.max_jobs"),
        ({"name": "first"}, "first is declared twice"),
        ({"weight": 1}, "missing required field `name`"),
    ],
)
def test_faulty_file_is_refused_with_its_place(tmp_path: Path, queue: object, told: str) -> None:
    with pytest.raises(DatabaseUnfit, match=told):
        read_queues(written(tmp_path, {"name": "first"}, queue))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnfit, match=r"none\.json"):
        read_queues(tmp_path / "none.json")
