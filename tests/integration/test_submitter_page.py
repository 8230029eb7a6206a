"""Each block of the submitter's page is pasted into psql by a submitter, and does what the page says.

What the page calls impossible is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import asyncpg
import pytest

from tests.house.tree import ROOT
from tests.integration.installing import TASK, psql, ready
from tests.rig.pages import SUBMITTER, read_page, statements_of
from tests.rig.postgres import Connection, Database
from tests.rig.rows import Row

__all__ = ["ready"]

OCTOBER = {"queue": "reports", "batch": "october", "labels": {"source": "shop"}}


class Recipe(NamedTuple):
    """One block.

    answers: the beginnings of the lines that psql prints; None: they are different each time.
    rows: columns of each row that is in the table afterwards, newest last.
    given: columns of rows that are there before.
    """

    answers: list[str] | None = None
    rows: list[dict[str, Any]] = []  # noqa: RUF012  # a field of a NamedTuple
    given: list[dict[str, Any]] = []  # noqa: RUF012  # a field of a NamedTuple


QUEUED = {"queue": "reports"}
ONE = [QUEUED]
RECIPES: Mapping[str, Recipe] = {
    "INSERT INTO dispatch.tasks (queue, env, pay": Recipe(
        [str(TASK)], [{"env": {"REGION": "eu"}, "payload": {"month": "2026-10"}}]
    ),
    "SELECT name, note": Recipe(
        ["*|defaults of all queues|", "default|rows that name no queue|", "reports||",
         'default|{cpu,env,memory}|{"cpu": "8", "memory": "16Gi", "seconds": 604800}|{}|{}|']
    ),
    "INSERT INTO dispatch.tasks (template": Recipe(
        [], [{"spec": {"memory": "1Gi"}, "timeout_seconds": 7200}]
    ),
    "INSERT INTO dispatch.tasks (queue, batch, la": Recipe(
        [], [{**OCTOBER, "payload": {"day": f"2026-10-0{day}"}} for day in (1, 2)]
    ),
    "SELECT dispatch.submit": Recipe(
        [str(TASK), str(TASK + 1)], [{**QUEUED, "payload": {"day": f"2026-10-0{day}"}} for day in (1, 2)]
    ),
    "COPY dispatch.tasks": Recipe(
        [], [
            {"batch": "days", "env": {"REGION": region}, "payload": {"day": f"2026-10-0{day}"}}
            for day, region in ((1, "eu"), (2, "us"))
        ]
    ),
    "INSERT INTO dispatch.tasks (queue, run_at": Recipe([], ONE),
    "INSERT INTO dispatch.tasks (queue, priority": Recipe(["waiting"], [{"priority": 5}]),
    "INSERT INTO dispatch.tasks (queue, dedupe": Recipe(
        [f"{TASK}|waiting|t"], [{"dedupe_key": "report-2026-11"}]
    ),
    "INSERT INTO dispatch.tasks (queue, max_f": Recipe([], [{"max_failures": 1}]),
    "BEGIN": Recipe([], [{"payload": {"order": 17}}]),
    "INSERT INTO dispatch.tasks (id": Recipe([f"{TASK}|waiting"], ONE),
    "SELECT id, status, attempt": Recipe([f"{TASK}|waiting|1||||"], ONE, ONE),
    "SELECT reason": Recipe(
        ["Unjudged|nobody|the dispatcher has not reported yet; the dispatcher has not looked at it yet|1|1|"], ONE, ONE
    ),
    "SELECT attempt": Recipe([], ONE, ONE),
    "SELECT tasks": Recipe(["1|1|0|0|0|0", f"{TASK}|waiting"], [OCTOBER], [OCTOBER]),
    "SELECT queue, waiting": Recipe([]),
    "SELECT id, status, result FROM dispatch.task(": Recipe(
        [
            f"{TASK}|waiting|",
            "Unjudged|the dispatcher has not reported yet; the dispatcher has not looked at it yet|1",
            "1|1|0|0|0|0",
            *[f"{TASK}|waiting"] * 3,
        ],
        [OCTOBER],
        [OCTOBER],
    ),
    "LISTEN": Recipe([]),
    "SELECT dispatch.task_cancel": Recipe(["cancelled"], [{"status": "cancelled", "error": "wrong month"}], ONE),
    "SELECT dispatch.task_retry": Recipe(["waiting", "waiting"], [{"attempt": 2}], ONE),
    "SELECT dispatch.batch_cancel": Recipe(["1", "1"], [{"status": "waiting", "attempt": 2}], [OCTOBER]),
    "SELECT count": Recipe(["0"], ONE, ONE),
}  # fmt: skip


@pytest.mark.parametrize("beginning", RECIPES)
async def test_recipe_of_the_submitters_page_runs_as_it_is_pasted(ready: Database, beginning: str) -> None:
    recipe = RECIPES[beginning]
    for columns in recipe.given:
        await ready.insert_task(**columns)
    (block,) = [one for one in statements_of(SUBMITTER) if one.startswith(beginning)]
    answers = await psql(ready.url("team_a"), block)
    if recipe.answers is not None:
        assert len(answers) == len(recipe.answers)
        pairs = zip(sorted(answers), sorted(recipe.answers), strict=True)
        assert [answer for answer, wanted in pairs if not answer.startswith(wanted)] == []
    admin = await ready.session("admin")
    rows = await admin.fetch("SELECT * FROM dispatch.tasks ORDER BY id")
    assert len(rows) == len(recipe.rows)
    for row, wanted in zip(rows, recipe.rows, strict=True):
        assert {name: row[name] for name in wanted} == wanted


def test_every_block_of_the_page_is_a_recipe() -> None:
    found = [[name for name in RECIPES if block.startswith(name)] for block in statements_of(SUBMITTER)]
    assert [len(names) for names in found] == [1] * len(RECIPES)


def test_rows_to_copy_end_in_every_psql() -> None:
    """psql before 18 sends the end of typed CSV as a line, which Postgres 18 reads as a row."""
    copies = [block for block in statements_of(SUBMITTER) if "FROM STDIN" in block]
    assert [block for block in copies if "csv" not in block.lower()] == copies != []


async def test_row_for_later_is_not_due_before(ready: Database) -> None:
    (block,) = [one for one in statements_of(SUBMITTER) if "run_at" in one]
    await psql(ready.url("team_a"), block)
    run_at = (await ready.task(TASK))["run_at"]
    assert timedelta(minutes=119) < run_at - datetime.now(UTC) < timedelta(minutes=121)


async def test_second_insert_with_a_key_finds_the_living_row(ready: Database) -> None:
    (block,) = [one for one in statements_of(SUBMITTER) if "dedupe_key" in one]
    for answer in (f"{TASK}|waiting|t", f"{TASK}|waiting|f"):
        assert await psql(ready.url("team_a"), block) == [answer]


async def test_ends_of_rows_are_told(ready: Database) -> None:
    row = Row(ready, await ready.insert_task(batch="october"), await ready.start_key(TASK))
    await row.finish(await row.started(), "failed", error="no disk")
    (waits,) = [one for one in statements_of(SUBMITTER) if one.startswith("LISTEN")]
    (history,) = [one for one in statements_of(SUBMITTER) if one.startswith("SELECT attempt")]
    assert await psql(ready.url("team_a"), waits) == [f"{TASK}|october|failed"]
    assert await psql(ready.url("team_a"), history) == ["1|1|failed|||no disk"]


async def test_rows_that_failed_for_one_reason_run_again(ready: Database) -> None:
    ids = [await ready.insert_task(queue="reports") for _ in range(3)]
    ended = "UPDATE dispatch_private.tasks SET status = 'failed', finished_at = now(), error = $2 WHERE id = $1"
    for task_id, error in zip(ids, ["LaunchesExhausted: x", "LaunchesExhausted: y", "other"], strict=True):
        await (await ready.session("admin")).execute(ended, task_id, error)
    (block,) = [one for one in statements_of(SUBMITTER) if one.startswith("SELECT count")]
    assert await psql(ready.url("team_a"), block) == ["2"]
    assert [(await ready.task(task_id))["status"] for task_id in ids] == ["waiting", "waiting", "failed"]


REFUSED = {
    "UPDATE dispatch.tasks SET priority = 1": "55000",
    "DELETE FROM dispatch.tasks": "55000",
    "SELECT FROM dispatch.tasks FOR UPDATE": "42501",
    "LOCK TABLE dispatch.tasks IN SHARE MODE": "42501",
    "INSERT INTO dispatch.tasks (dedupe_key) VALUES ('k') ON CONFLICT (dedupe_key) DO NOTHING": "42P10",
    "INSERT INTO dispatch.tasks (queue, status) VALUES ('reports', 'waiting')": "DI010",
    """SELECT dispatch.submit('[{"que": "reports"}]')""": "DI010",
    "CREATE TEMPORARY TABLE orders (task_id bigint REFERENCES dispatch.tasks)": "42809",
}
"""Statements that the page calls impossible, with the SQLSTATE of the refusal."""


@pytest.mark.parametrize(("statement", "sqlstate"), REFUSED.items())
async def test_statement_that_the_page_calls_impossible_is_refused(
    ready: Database, statement: str, sqlstate: str
) -> None:
    await ready.insert_task(queue="reports")
    team = await ready.session("team_a")
    with pytest.raises(asyncpg.PostgresError) as refusal:
        async with team.transaction():
            await team.execute(statement)
    assert refusal.value.sqlstate == sqlstate


def test_page_has_every_sqlstate_of_a_refused_insert() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "sql" / "functions").glob("*.sql")]
    raised = {code for source in sources for code in re.findall(r"'(DI\d{3})'", source)}
    assert raised == set(re.findall(r"^\| (DI\d{3}) \|", read_page(SUBMITTER), re.MULTILINE))


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO dispatch.tasks (queue, dedupe_key) VALUES ('reports', 'k')",
        f"SELECT dispatch.task_cancel({TASK})",
        f"SELECT dispatch.task_retry({TASK})",
        f"SELECT dispatch.task_set_priority({TASK}, 5)",
    ],
)
async def test_change_of_a_row_that_another_transaction_changed_fails_under_repeatable_read(
    ready: Database, change: str
) -> None:
    team, other = await ready.session("team_a"), await ready.connect("team_a")
    if "INSERT" not in change:
        await ready.insert_task(queue="reports", dedupe_key="k")
    elsewhere = change.replace("dispatch.task_cancel", "dispatch.task_retry")
    for default, is_refused in (("repeatable read", True), ("read committed", False)):
        await team.execute(f"SET default_transaction_isolation = '{default}'")
        async with team.transaction():
            await team.execute("SELECT FROM dispatch.tasks")
            await other.execute(elsewhere)
            assert await is_serialization_failure(team, change) is is_refused


async def is_serialization_failure(connection: Connection, statement: str) -> bool:
    """Runs a statement. True: it failed with 40001. The transaction goes on."""
    try:
        async with connection.transaction():
            await connection.execute(statement)
    except asyncpg.SerializationError:
        return True
    return False
