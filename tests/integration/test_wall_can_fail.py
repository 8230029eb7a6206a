"""The comparison of two databases finds walls that are broken on purpose, each by what it was broken in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import pytest
import pytest_asyncio

from tests.integration.wall_calls import calls, guesses
from tests.integration.wall_pairs import Difference, seated
from tests.integration.wall_seats import Statement
from tests.integration.wall_settings import LOUD
from tests.integration.wall_shapes import columns, constants, over_views
from tests.integration.wall_worlds import ONE, OTHER_SIZE, copies
from tests.rig.postgres import Database, PostgresServer

OWN_TASK: Final = "dispatch_private.own_task(text, bigint)"
RIGHTS: Final = "dispatch_private.rights_of(text)"
VISIBLE: Final = "dispatch_private.visible_tasks(text)"
CANCEL: Final = "dispatch_private.task_cancel(text, bigint, text)"
BODY: Final = """
CREATE OR REPLACE FUNCTION dispatch_private.own_task(who text, task bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    whose text := (SELECT t.submitted_by FROM dispatch_private.tasks AS t WHERE t.id = task);
BEGIN
    {more}
    RETURN (SELECT t.id FROM dispatch_private.tasks AS t WHERE t.id = task AND t.submitted_by = who);
END $$
"""
SEES_ALL: Final = """
CREATE OR REPLACE FUNCTION dispatch_private.rights_of(who text, OUT self boolean, OUT sees boolean, OUT hides boolean,
                                                      OUT acts boolean, OUT owned text[], OUT own text) RETURNS record
LANGUAGE sql STABLE AS $$ SELECT true, true, false, true, '{}'::text[], who $$
"""
BARRIER: Final = """
CREATE OR REPLACE VIEW dispatch.tasks WITH (security_barrier) AS
SELECT {columns} FROM dispatch_private.tasks WHERE submitted_by = session_user::text COLLATE "default"
"""
TALKATIVE: Final = [
    f"ALTER FUNCTION {CANCEL} RESET {name}"
    for name in ("client_min_messages", "debug_print_plan", "plan_cache_mode")
]  # fmt: skip


@dataclass(frozen=True)
class Flaw:
    """A wall that is broken.

    parts: what of the statements has to differ then.
    broken: the functions that are changed, to be put back.
    settings: what the login sets before.
    """

    parts: set[str]
    broken: Sequence[str]
    statements: Sequence[str]
    settings: Sequence[str] = field(default=())


NO_INDEX: Final = ["enable_indexscan = off", "enable_bitmapscan = off", "enable_indexonlyscan = off"]


FLAWS: Final = {
    "a row is looked up by its id": Flaw({"touched"}, [OWN_TASK], [BODY.format(more="")]),
    "a message tells a foreign row": Flaw(
        {"messages"}, [OWN_TASK], [BODY.format(more="RAISE NOTICE 'it is of %', whose;")]
    ),
    "an error tells a foreign row": Flaw(
        {"answer"}, [OWN_TASK], [BODY.format(more="IF whose <> who THEN RAISE EXCEPTION 'not yours'; END IF;")]
    ),
    "a foreign row is locked": Flaw(
        {"locks"}, [OWN_TASK], [BODY.format(more="PERFORM FROM dispatch_private.tasks WHERE id = task FOR UPDATE;")]
    ),
    "every row is shown": Flaw({"answer", "touched"}, [RIGHTS], [SEES_ALL]),
    "a caller's settings choose the plan": Flaw(
        {"touched"}, [VISIBLE], [f"ALTER FUNCTION {VISIBLE} RESET ALL"], NO_INDEX
    ),
    "the plan of a function is told": Flaw(
        {"messages"},
        [OWN_TASK, CANCEL],
        [BODY.format(more="PERFORM FROM dispatch_private.queues WHERE name = whose;"), *TALKATIVE],
        LOUD,
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def others(postgres: PostgresServer) -> AsyncIterator[list[Database]]:
    async with copies(postgres, ONE, OTHER_SIZE) as made:
        yield made


@asynccontextmanager
async def changed(databases: Sequence[Database], kept: str, statements: Sequence[str]) -> AsyncIterator[None]:
    """Makes the statements in each database, and afterwards those that the query `kept` has given before."""
    before = []
    for database in databases:
        admin = await database.session("admin")
        before.append([row[0] for row in await admin.fetch(kept)])
        for statement in statements:
            await admin.execute(statement)
    try:
        yield
    finally:
        for database, its in zip(databases, before, strict=True):
            for statement in its:
                await (await database.session("admin")).execute(statement)


def unexplained(found: Sequence[Difference]) -> set[str]:
    return {one.part for one in found if not one.is_allowed}


async def asked(databases: Sequence[Database]) -> list[Statement]:
    """Calls and looks of team B."""
    every = await calls(databases[0], "team_b", await guesses(*databases))
    tasks = [one for one in await columns(databases[0], "team_b") if one.view == "dispatch.tasks"]
    looks = list(over_views(tasks, await constants(*databases), every=False))
    return [*[one for one in every if one.kind == "call task_cancel"][:12], *looks[:30]]


@pytest.mark.slow
@pytest.mark.parametrize("name", FLAWS)
async def test_a_broken_function_is_found(others: list[Database], name: str) -> None:
    flaw = FLAWS[name]
    kept = " UNION ALL ".join(f"SELECT pg_get_functiondef('{one}'::regprocedure)" for one in flaw.broken)
    statements = await asked(others)
    async with changed(others, kept, flaw.statements):
        with seated(others, "team_b", is_sized=False) as pair:
            assert all(pair.set(f"SET {setting}") for setting in flaw.settings)
            assert (
                unexplained(pair.differences([*statements[:3], *statements[-3:]] if flaw.settings else statements))
                >= flaw.parts
            )


async def test_a_barrier_view_over_the_table_is_found(others: list[Database]) -> None:
    its = [one for one in await columns(others[0], "team_b") if one.view == "dispatch.tasks"]
    barrier = BARRIER.format(columns=", ".join(f"{one.name}::{one.type} AS {one.name}" for one in its))
    kept = "SELECT 'CREATE OR REPLACE VIEW dispatch.tasks AS ' || pg_get_viewdef('dispatch.tasks')"
    statements = await asked(others)
    async with changed(others, kept, [barrier]):
        with seated(others, "team_b", is_sized=False) as pair:
            assert unexplained(pair.differences(statements)) >= {"plan", "touched"}


async def test_the_same_statements_find_nothing_in_whole_walls(others: list[Database]) -> None:
    with seated(others, "team_b", is_sized=False) as pair:
        assert unexplained(pair.differences(await asked(others))) == set()
