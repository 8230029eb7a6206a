"""The blocks of docs/drivers.md insert rows.

Those of Python run here. Of the others, the statements that they send are run.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import textwrap
from pathlib import Path
from typing import Any

import asyncpg
import django
import psycopg
import pytest
from django.conf import settings
from django.db import connection
from sqlalchemy import create_engine, select

from tests.rig.postgres import Database

# Each inserts a row with a queue and env, as its mapper writes the statement.
STATEMENTS = {
    "Drizzle": """
        insert into "dispatch"."tasks" ("id", "queue", "priority", "run_at", "env", "payload", "status", "created_at")
        values (default, $1, default, default, $2, default, default, default) returning "id", "status", "created_at"
    """,
    "TypeORM": """
        INSERT INTO "dispatch"."tasks"("id", "queue", "env", "status", "attempt", "created_at", "finished_at")
        VALUES (DEFAULT, $1, $2, DEFAULT, DEFAULT, DEFAULT, DEFAULT) RETURNING "id", "status", "attempt", "created_at"
    """,
    "Prisma": """
        INSERT INTO "dispatch"."tasks" ("queue","env") VALUES ($1,$2)
        RETURNING "dispatch"."tasks"."id", "dispatch"."tasks"."queue", "dispatch"."tasks"."status"
    """,
    "Sequelize": """
        INSERT INTO "dispatch"."tasks" ("id","queue","env") VALUES (DEFAULT,$1,$2) RETURNING "id","queue","env","status"
    """,
    "ActiveRecord": """
        INSERT INTO "dispatch"."tasks" ("queue", "env", "payload") VALUES ($1, $2, NULL) RETURNING "id"
    """,
    "GORM": """
        INSERT INTO "dispatch"."tasks" ("queue","env") VALUES ($1,$2) RETURNING "id","status","created_at"
    """,
    "Hibernate": "insert into dispatch.tasks (env, queue, id) values ($2, $1, default) returning id",
}

DEFAULTS = """
    SELECT a.attname AS name, coalesce(pg_get_expr(d.adbin, d.adrelid), 'NULL') AS written
      FROM pg_attribute AS a LEFT JOIN pg_attrdef AS d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
     WHERE a.attrelid = 'dispatch.tasks'::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""

PAGE = (Path(__file__).parents[2] / "docs" / "drivers.md").read_text(encoding="utf-8")
INSERTS = sorted(set(re.findall(r"INSERT INTO dispatch\.tasks \(queue, payload\) VALUES .+? RETURNING id", PAGE)))


def block_of(heading: str) -> str:
    return PAGE.split(f"## {heading}\n")[1].split("```python\n")[1].split("```")[0]


def ran(heading: str, **given: Any) -> dict[str, Any]:
    """The names after the block has run. `given`: the names that it finds."""
    names = {"__name__": "tests.of_a_page", **given}
    exec(compile(block_of(heading), "drivers.md", "exec", dont_inherit=True), names)  # the block of our own page
    return names


async def waiting(database: Database, task_id: int) -> Any:
    row = await database.task(task_id)
    assert (row["queue"], row["status"], row["priority"], row["env"]) == ("default", "waiting", 100, {})
    return row["payload"]


async def test_block_of_psycopg(database: Database) -> None:
    names = await asyncio.to_thread(ran, "Python: psycopg", url=database.url("team_a"))

    assert await waiting(database, names["row"][0]) == {"month": 3}


async def test_pause_without_an_end_is_read_as_the_page_says(database: Database) -> None:
    await (await database.session("operator")).execute("UPDATE dispatch.queues SET paused_until = 'infinity'")
    (statement,) = re.findall(r"`(SELECT name, paused_until.*?)`", PAGE)

    def read(statement: str) -> dict[str, Any]:
        with psycopg.connect(database.url("team_a")) as session:
            return dict(session.execute(statement).fetchall())

    assert await asyncio.to_thread(read, statement) == {"*": "infinity", "default": "infinity"}
    with pytest.raises(psycopg.DataError):
        await asyncio.to_thread(read, statement.replace("::text", ""))


async def test_block_of_asyncpg(database: Database) -> None:
    lines = textwrap.indent(block_of("Python: asyncpg"), "    ")
    names: dict[str, Any] = {"url": database.url("team_a")}
    exec(f"async def inserted():\n{lines}\n    await connection.close()\n    return row", names)  # as above

    assert await waiting(database, (await names["inserted"]())["id"]) == {"month": 3}


def by_sqlalchemy(url: str) -> tuple[int, str]:
    """The row of the block. Then two rows in one flush, and one by its key again."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    names = ran("Python: SQLAlchemy", engine=engine)
    task, row = names["Task"], names["row"]
    with names["Session"](engine) as session:
        session.add(task(env={"A": "1"}, dedupe_key="once"))
        session.add_all([task(payload={"n": n}, batch="two") for n in range(2)])
        session.commit()
    with names["Session"](engine) as session:
        session.add(again := task(dedupe_key="once"))
        session.flush()
        assert again.env == {"A": "1"}
        session.rollback()
        assert len(session.scalars(select(task.id)).all()) == 4
    engine.dispose()
    return row[0], row[1]


async def test_block_of_sqlalchemy(database: Database) -> None:
    """Also with ids that need more than 32 bits."""
    await (await database.session("admin")).execute("SELECT setval('dispatch_private.tasks_id_seq', 3000000000)")
    task_id, status = await asyncio.to_thread(by_sqlalchemy, database.url("team_a"))

    assert (status, await waiting(database, task_id)) == ("waiting", {"month": 3})


def by_django(database: Database) -> list[tuple[int, str, int]]:
    host, _, port = database.admin_url.rpartition("@")[2].partition("/")[0].partition(":")
    settings.configure(
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql", "NAME": database.name,
                "USER": "team_a", "PASSWORD": "team_a", "HOST": host, "PORT": port,
            }
        },
        INSTALLED_APPS=[],
        USE_TZ=True,
        LOGGING_CONFIG=None,
    )  # fmt: skip
    django.setup()
    try:
        names = ran("Python: Django")
        assert names["row"][1] == "waiting"
        task = names["Task"]
        task(env={"A": "1"}, priority=7).save()
        task.objects.bulk_create([task(), task(queue="default")], ignore_conflicts=True)
        return [(row.pk, row.status, row.priority) for row in task.objects.order_by("id")]
    finally:
        connection.close()


async def test_block_of_django(database: Database) -> None:
    rows = await asyncio.to_thread(by_django, database)

    assert rows == [(1, "waiting", 100), (2, "waiting", 7), (3, "waiting", 100), (4, "waiting", 100)]
    assert await waiting(database, 1) == {"month": 3}


@pytest.mark.parametrize("statement", INSERTS)
async def test_statement_of_a_block_inserts_a_row(database: Database, statement: str) -> None:
    number = itertools.count(1)
    written = re.sub(r"%s|\?|@\w+|\$\d", lambda _: f"${next(number)}", statement)
    team = await database.session("team_a")

    assert await waiting(database, await team.fetchval(written, "default", {"month": 3})) == {"month": 3}


@pytest.mark.parametrize("mapper", STATEMENTS)
async def test_statement_of_a_mapper_inserts_a_row(database: Database, mapper: str) -> None:
    team = await database.session("team_a")

    made = await team.fetchrow(STATEMENTS[mapper], "default", {"A": "1"})

    assert made is not None
    row = await database.task(made["id"])
    assert (row["queue"], row["env"], row["status"], row["priority"]) == ("default", {"A": "1"}, "waiting", 100)


async def test_insert_of_the_imported_defaults_makes_a_row(database: Database) -> None:
    """postgres_fdw sends every column, each with the default that it has imported into another database, or NULL."""
    admin, team = await database.session("admin"), await database.session("team_a")
    sent = {row["name"]: row["written"] for row in await admin.fetch(DEFAULTS)}
    assert not [one for one in sent.values() if "dispatch." in one], "nothing of ours is there"

    statement = f"INSERT INTO dispatch.tasks ({', '.join(sent)}) VALUES ({', '.join(sent.values())}) RETURNING id"

    assert await waiting(database, await team.fetchval(statement)) is None


async def test_mapper_that_updates_a_row_is_refused(database: Database) -> None:
    task_id = await database.insert_task()
    team = await database.session("team_a")

    with pytest.raises(asyncpg.PostgresError, match="cannot update view"):
        await team.execute("UPDATE dispatch.tasks SET priority = 1 WHERE id = $1", task_id)
