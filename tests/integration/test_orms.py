"""Object mappers insert and read rows of `dispatch.tasks` with the lines of docs/submitter.md.

SQLAlchemy and Django run here. Of other mappers, the statements that they send are run.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import asyncpg
import django
import pytest
from django.conf import settings
from django.db import connection, models
from sqlalchemy import FetchedValue, Text, create_engine, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

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
    "Sequelize": """
        INSERT INTO "dispatch"."tasks" ("id","queue","env") VALUES (DEFAULT,$1,$2) RETURNING "id","queue","env","status"
    """,
    "ActiveRecord": """
        INSERT INTO "dispatch"."tasks" ("queue", "env", "run_at", "status") VALUES ($1, $2, NULL, NULL) RETURNING "id"
    """,
    "GORM": """
        INSERT INTO "dispatch"."tasks" ("queue","env") VALUES ($1,$2) RETURNING "id","status","created_at"
    """,
    "Hibernate": "insert into dispatch.tasks (env, queue, id) values ($2, $1, default) returning id",
}


class Base(DeclarativeBase):
    pass


class Task(Base):
    __tablename__ = "tasks"
    __table_args__ = {"schema": "dispatch"}  # noqa: RUF012  # SQLAlchemy declares it so
    __mapper_args__ = {"eager_defaults": True}  # noqa: RUF012  # as above

    id: Mapped[int] = mapped_column(primary_key=True)
    queue: Mapped[str] = mapped_column(Text, server_default=FetchedValue())
    priority: Mapped[int] = mapped_column(server_default=FetchedValue())
    env: Mapped[dict[str, str]] = mapped_column(JSONB, server_default=FetchedValue())
    payload: Mapped[Any] = mapped_column(JSONB, nullable=True)
    batch: Mapped[str | None]
    dedupe_key: Mapped[str | None]
    status: Mapped[str] = mapped_column(server_default=FetchedValue())
    attempt: Mapped[int] = mapped_column(server_default=FetchedValue())
    created_at: Mapped[datetime] = mapped_column(server_default=FetchedValue())


def by_sqlalchemy(url: str) -> list[tuple[int, str, int, str]]:
    """Rows as the mapper holds them after one row, then two in one flush, then one by its key again."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session:
        one = Task(queue="default", env={"A": "1"}, dedupe_key="once")
        session.add(one)
        session.flush()
        session.add_all([Task(payload={"n": n}, batch="two") for n in range(2)])
        session.commit()
        session.add(again := Task(dedupe_key="once"))
        session.flush()
        assert again.id == one.id
        session.rollback()
        found = session.scalars(select(Task).where(Task.queue == "default").order_by(Task.id)).all()
        rows = [(task.id, task.status, task.priority, task.queue) for task in found]
    engine.dispose()
    return rows


async def test_sqlalchemy_inserts_and_reads_rows(database: Database) -> None:
    rows = await asyncio.to_thread(by_sqlalchemy, database.url("team_a"))

    assert rows == [(number, "waiting", 100, "default") for number in (1, 2, 3)]


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

    class Row(models.Model):  # type: ignore[misc]  # Django has no types
        id = models.BigAutoField(primary_key=True)
        queue = models.TextField(db_default="default")
        priority = models.IntegerField(db_default=100)
        env = models.JSONField(db_default={})
        payload = models.JSONField(null=True)
        status = models.TextField(null=True)
        created_at = models.DateTimeField(null=True)

        class Meta:
            app_label = "submitter"
            managed = False
            db_table = 'dispatch"."tasks'

    try:
        Row(env={"A": "1"}).save()
        Row.objects.create(payload={"n": 1}, priority=7)
        Row.objects.bulk_create([Row(), Row(queue="default")], ignore_conflicts=True)
        return [(row.pk, row.status, row.priority) for row in Row.objects.order_by("id")]
    finally:
        connection.close()


async def test_django_inserts_and_reads_rows(database: Database) -> None:
    rows = await asyncio.to_thread(by_django, database)

    assert rows == [(1, "waiting", 100), (2, "waiting", 7), (3, "waiting", 100), (4, "waiting", 100)]


@pytest.mark.parametrize("mapper", STATEMENTS)
async def test_statement_of_a_mapper_inserts_a_row(database: Database, mapper: str) -> None:
    team = await database.session("team_a")

    made = await team.fetchrow(STATEMENTS[mapper], "default", {"A": "1"})

    assert made is not None
    row = await database.task(made["id"])
    assert (row["queue"], row["env"], row["status"], row["priority"]) == ("default", {"A": "1"}, "waiting", 100)


async def test_mapper_that_updates_a_row_is_refused(database: Database) -> None:
    task_id = await database.insert_task()
    team = await database.session("team_a")

    with pytest.raises(asyncpg.PostgresError, match="cannot update view"):
        await team.execute("UPDATE dispatch.tasks SET priority = 1 WHERE id = $1", task_id)
