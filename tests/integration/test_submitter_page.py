"""Each block of the submitter's page is pasted into psql by a submitter, and does what the page says."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import pytest
import pytest_asyncio

from dispatcher.jobs.offered import offered_templates
from tests.builders import a_template
from tests.integration.test_page_statements import TASK, psql
from tests.pages import SUBMITTER, recipes_of
from tests.postgres import Database
from tests.rows import Row

TEMPLATE = a_template(opens="env,cpu,memory", bounds={"max-cpu": "8", "max-memory": "16Gi"})
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


ONE = [{"queue": "reports"}]
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
    "CREATE TEMPORARY TABLE days": Recipe(
        [], [
            {"batch": "days", "env": {"REGION": region}, "payload": {"day": f"2026-10-0{day}"}}
            for day, region in ((1, "eu"), (2, "us"))
        ]
    ),
    "INSERT INTO dispatch.tasks (queue, run_at": Recipe([], ONE),
    "INSERT INTO dispatch.tasks (queue, priority": Recipe(["waiting"], [{"priority": 5}]),
    "INSERT INTO dispatch.tasks (queue, dedupe": Recipe(
        [str(TASK), f"{TASK}|waiting"], [{"dedupe_key": "report-2026-11"}]
    ),
    "INSERT INTO dispatch.tasks (queue, max_f": Recipe([], [{"max_failures": 1}]),
    "BEGIN": Recipe([], [{"payload": {"order": 17}}]),
    "SELECT id, status, attempt": Recipe([f"{TASK}|waiting|1||||"], ONE, ONE),
    "SELECT reason": Recipe(
        ["InLine|nobody|the dispatcher has not reported yet; other rows come first|1|1|"], ONE, ONE
    ),
    "SELECT attempt": Recipe([], ONE, ONE),
    "SELECT tasks": Recipe(["1|1|0|0|0|0", f"{TASK}|waiting"], [OCTOBER], [OCTOBER]),
    "SELECT queue, waiting": Recipe([]),
    "LISTEN": Recipe([]),
    "SELECT dispatch.task_cancel": Recipe(["cancelled"], [{"status": "cancelled", "error": "wrong month"}], ONE),
    "SELECT dispatch.task_retry": Recipe(["waiting", "waiting"], [{"attempt": 2}], ONE),
    "SELECT dispatch.batch_cancel": Recipe(["1", "1"], [{"status": "waiting", "attempt": 2}], [OCTOBER]),
    "SELECT count": Recipe(["0"], ONE, ONE),
}  # fmt: skip


@pytest_asyncio.fixture(loop_scope="session")
async def ready(database: Database) -> Database:
    """A database whose next row has the id of the page, with a queue and a template."""
    admin, janitor = await database.session("admin"), await database.session("janitor")
    await admin.execute(f"ALTER TABLE dispatch.tasks ALTER COLUMN id RESTART WITH {TASK}")
    await admin.execute("INSERT INTO dispatch.queues (name) VALUES ('reports')")
    offered = msgspec.to_builtins(offered_templates({"default": TEMPLATE}, ()))
    assert await janitor.fetchval("SELECT dispatch.janitor_templates($1, true)", offered) == 1
    return database


@pytest.mark.parametrize("beginning", RECIPES)
async def test_recipe_of_the_submitters_page_runs_as_it_is_pasted(ready: Database, beginning: str) -> None:
    recipe = RECIPES[beginning]
    for columns in recipe.given:
        await ready.insert_task(**columns)
    (block,) = [one for one in recipes_of(SUBMITTER) if one.startswith(beginning)]
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
    found = [[name for name in RECIPES if block.startswith(name)] for block in recipes_of(SUBMITTER)]
    assert [len(names) for names in found] == [1] * len(RECIPES)


def test_rows_to_copy_end_in_every_psql() -> None:
    """psql before 18 sends the end of typed CSV as a line, which Postgres 18 reads as a row."""
    copies = [block for block in recipes_of(SUBMITTER) if "FROM STDIN" in block]
    assert [block for block in copies if "csv" not in block.lower()] == copies != []


async def test_row_for_later_is_not_due_before(ready: Database) -> None:
    (block,) = [one for one in recipes_of(SUBMITTER) if "run_at" in one]
    await psql(ready.url("team_a"), block)
    run_at = (await ready.task(TASK))["run_at"]
    assert timedelta(minutes=119) < run_at - datetime.now(UTC) < timedelta(minutes=121)


async def test_second_insert_with_a_key_finds_the_living_row(ready: Database) -> None:
    (block,) = [one for one in recipes_of(SUBMITTER) if "dedupe_key" in one]
    for answers in ([str(TASK), f"{TASK}|waiting"], [f"{TASK}|waiting"]):
        assert await psql(ready.url("team_a"), block) == answers


async def test_ends_of_rows_are_told(ready: Database) -> None:
    row = Row(ready, await ready.insert_task(batch="october"), await ready.start_key(TASK))
    await row.finish(await row.started(), "failed", error="no disk")
    (waits,) = [one for one in recipes_of(SUBMITTER) if one.startswith("LISTEN")]
    (history,) = [one for one in recipes_of(SUBMITTER) if one.startswith("SELECT attempt")]
    assert await psql(ready.url("team_a"), waits) == [f"{TASK}|october|failed"]
    assert await psql(ready.url("team_a"), history) == ["1|1|failed|||no disk"]


async def test_rows_that_failed_for_one_reason_run_again(ready: Database) -> None:
    ids = [await ready.insert_task(queue="reports") for _ in range(3)]
    ended = "UPDATE dispatch.tasks SET status = 'failed', finished_at = now(), error = $2 WHERE id = $1"
    for task_id, error in zip(ids, ["LaunchesExhausted: x", "LaunchesExhausted: y", "other"], strict=True):
        await (await ready.session("admin")).execute(ended, task_id, error)
    (block,) = [one for one in recipes_of(SUBMITTER) if one.startswith("SELECT count")]
    assert await psql(ready.url("team_a"), block) == ["2"]
    assert [(await ready.task(task_id))["status"] for task_id in ids] == ["waiting", "waiting", "failed"]
