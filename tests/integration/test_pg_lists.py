"""Lists of rows in a real Postgres: every filter, alone and together, in pages; batches; failed rows; bounds."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from dispatcher.model.history import RowFilter, RowMatches
from dispatcher.model.tasks import Status
from dispatcher.pg.connect import Session
from dispatcher.pg.questions import OF_BATCHES, ListBounds, Questions
from dispatcher.pg.tasks import snapshot
from tests.integration.looking import opened
from tests.integration.plans import explain
from tests.rig.postgres import Connection, Database, PostgresServer

HOSTILE = "'\"<b>&\u202e\U0001f469\u200d\U0001f467\\u0000=%s{}$1"
ROWS = """
INSERT INTO dispatch_private.tasks
    (queue, submitted_by, template, batch, labels, status, launch, finished_at, kind, error, run_at, priority)
SELECT CASE n % 3 WHEN 0 THEN 'other' ELSE 'default' END, 'team-' || n % 2, 'template-' || n % 2,
       CASE n % 4 WHEN 0 THEN 'april' WHEN 1 THEN 'may' END,
       CASE n % 5 WHEN 0 THEN '{"month": "4", "kind": "a=b"}' ELSE '{}' END::jsonb, s.status,
       CASE s.status WHEN 'waiting' THEN 0 ELSE 1 END,
       CASE WHEN s.status IN ('succeeded', 'failed', 'cancelled') THEN now() - interval '1 min' * n END, 'x',
       CASE s.status WHEN 'failed' THEN 'no file ' || n END, CASE n % 7 WHEN 0 THEN now() END, n % 4
FROM generate_series(1, 600) AS n,
     LATERAL (SELECT (ARRAY['waiting', 'succeeded', 'failed', 'cancelled'])[1 + n / 5 % 4] AS status) AS s
"""
MATCH = """
SELECT id FROM dispatch.tasks
WHERE ($1::text IS NULL OR queue = $1) AND ($2::text IS NULL OR status = $2) AND ($3::text IS NULL OR submitted_by = $3)
  AND ($4::text IS NULL OR batch = $4) AND ($5::jsonb IS NULL OR labels @> $5) AND ($6::text IS NULL OR template = $6)
ORDER BY id DESC
"""
FILTERS: list[dict[str, Any]] = [
    {},
    {"queue": "other"},
    {"status": Status.WAITING},
    {"status": Status.WAITING, "queue": "other"},
    {"status": Status.WAITING, "template": "template-1"},
    {"status": Status.WAITING, "queue": "other", "submitted_by": "team-0"},
    {"status": Status.SUCCEEDED, "template": "template-1"},
    {"status": Status.FAILED, "template": "template-0"},
    {"status": Status.PROCESSING},
    {"submitted_by": "team-1", "status": Status.CANCELLED},
    {"batch": "april"},
    {"batch": "april", "queue": "other"},
    {"batch": "may", "queue": "other", "submitted_by": "team-1", "status": Status.FAILED},
    {"batch": "may", "submitted_by": "team-0"},
    {"label": "month=4"},
    {"label": "kind=a=b", "batch": "may"},
    {"label": "month=5"},
    {"queue": HOSTILE, "batch": HOSTILE, "template": HOSTILE, "submitted_by": HOSTILE, "label": f"{HOSTILE}=x"},
]


def reading(session: Session, **given: int) -> AbstractAsyncContextManager[Questions]:
    """No index is given up because the machine is busy, unless `given` says so."""

    class Bounded(Questions):
        bounds = ListBounds(**{"few_milliseconds": 5000, **given})

    return snapshot(session, Bounded)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def filled(postgres: PostgresServer) -> AsyncIterator[Database]:
    database = await postgres.create_database()
    admin = await database.session("admin")
    await admin.execute("INSERT INTO dispatch.queues (name) VALUES ('other')")
    await admin.execute("SET session_replication_role = replica")
    await admin.execute(ROWS)
    yield database
    await database.drop()


@pytest_asyncio.fixture(loop_scope="session")
async def session(filled: Database) -> AsyncIterator[Session]:
    async with opened(filled.url("reader")) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def admin(filled: Database) -> Connection:
    return await filled.session("admin")


def labels_of(filters: dict[str, Any]) -> str | None:
    name, _, value = filters.get("label", "").partition("=")
    return json.dumps({name: value}) if name else None


async def expected(admin: Connection, filters: dict[str, Any]) -> list[int]:
    names = ("queue", "status", "submitted_by", "batch", "labels", "template")
    given = {**filters, "labels": json.loads(labels_of(filters) or "null")}
    return [row["id"] for row in await admin.fetch(MATCH, *(given.get(name) for name in names))]


async def every_page(rows: Questions, filters: dict[str, Any], limit: int) -> list[int]:
    """The ids of all pages. Each page tells how many rows there are from it on."""
    found, after, left = list[int](), None, None
    while True:
        page = await rows.find(RowFilter(**filters, after=after, limit=limit), labels_of(filters), None)
        assert left is None or page.matching == left, "as many as the page before has told"
        assert page.looked_to is None
        found += page.ids
        if page.matching <= limit:
            return found
        after, left = page.ids[-1], page.matching - limit


@pytest.mark.parametrize("filters", FILTERS, ids=lambda one: "&".join(one) or "none")
async def test_pages_have_every_row_that_matches_once_and_no_other(
    admin: Connection, session: Session, filters: dict[str, Any]
) -> None:
    matching = await expected(admin, filters)
    async with reading(session) as rows:
        assert await every_page(rows, filters, 500) == matching
        assert await every_page(rows, filters, 37) == matching


async def test_rows_among_given_ones_are_found_in_any_order(session: Session, admin: Connection) -> None:
    waiting = await expected(admin, {"status": Status.WAITING})
    async with reading(session) as rows:
        found = await rows.find(RowFilter(status=Status.WAITING, limit=2), None, [*waiting[5:8], 2**62, *waiting[3:5]])
        assert found == RowMatches(waiting[3:5], 5)
        later = await rows.find(RowFilter(after=waiting[4], limit=2), None, waiting)
        assert later.ids == waiting[5:7]
        assert await rows.find(RowFilter(id=waiting[3]), None, None) == RowMatches([waiting[3]], 1)
        assert await rows.find(RowFilter(id=waiting[3], status=Status.FAILED), None, None) == RowMatches([], 0)
        assert await rows.find(RowFilter(), None, []) == RowMatches([], 0)


async def test_more_given_rows_than_are_read_are_found_page_by_page(session: Session, admin: Connection) -> None:
    failed = await expected(admin, {"status": Status.FAILED})
    async with reading(session, few=20) as rows:
        first = await rows.find(RowFilter(queue="other", limit=50), None, failed)
        assert (first.looked_to, first.matching) == (failed[19], len(first.ids))
        second = await rows.find(RowFilter(queue="other", limit=50, after=first.looked_to), None, failed)
    assert second.looked_to == failed[39]
    others = await expected(admin, {"status": Status.FAILED, "queue": "other"})
    assert [*first.ids, *second.ids] == [id_ for id_ in others if id_ >= failed[39]]


async def test_more_rows_than_are_looked_at_are_found_page_by_page(session: Session, admin: Connection) -> None:
    """With small bounds, by each index: each page says how far it has looked, and the next one goes on there."""
    for filters in FILTERS:
        found, after, pages = list[int](), None, 0
        async with reading(session, looked_at=20, looked_at_of_some=20, few=20) as rows:
            while pages == 0 or after is not None:
                page = await rows.find(RowFilter(**filters, after=after, limit=10), labels_of(filters), None)
                assert len(page.ids) == min(page.matching, 10) <= 10
                found += page.ids
                after, pages = page.ids[-1] if page.matching > 10 else page.looked_to, pages + 1
                assert pages < 100
        assert found == await expected(admin, filters), filters


async def test_waiting_rows_are_found_behind_any_number_of_newer_rows(session: Session, admin: Connection) -> None:
    for filters in ({"status": Status.WAITING}, {"status": Status.WAITING, "queue": "other"}):
        waiting = await expected(admin, filters)
        async with reading(session, looked_at=1) as rows:
            assert await rows.find(RowFilter(**filters, limit=5), None, None) == RowMatches(waiting[:5], len(waiting))


async def test_waiting_rows_that_are_due_and_those_that_are_not_are_told_apart(
    session: Session, admin: Connection
) -> None:
    waiting = "SELECT id FROM dispatch.tasks WHERE status = 'waiting' AND {} ORDER BY id DESC"
    due, later = waiting.format("(run_at IS NULL OR run_at <= now())"), waiting.format("run_at > now()")
    some = "SELECT id FROM dispatch.tasks WHERE status = 'waiting' ORDER BY id LIMIT 4"
    await admin.execute(f"UPDATE dispatch_private.tasks SET run_at = now() + interval '1 hour' WHERE id IN ({some})")
    await admin.execute(f"UPDATE dispatch_private.tasks SET run_at = created_at WHERE id IN ({some} OFFSET 4)")
    async with reading(session) as rows:
        for query, are_due in ((due, True), (later, False)):
            expect = [row["id"] for row in await admin.fetch(query)]
            assert await rows.newest_waiting(None, RowFilter(), are_due=are_due) == expect
            assert await rows.newest_waiting(["nowhere"], RowFilter(), are_due=are_due) == []
            assert await rows.newest_waiting(None, RowFilter(after=expect[0]), are_due=are_due) == expect[1:]


async def test_index_that_takes_too_long_is_given_up_in_the_same_snapshot(session: Session, admin: Connection) -> None:
    await admin.execute("""
        INSERT INTO dispatch_private.tasks (labels, kind, status, launch, finished_at)
        SELECT '{"many": "yes"}', 'x', 'cancelled', 1, now() FROM generate_series(1, 50000)
    """)
    try:
        async with reading(session, few_milliseconds=1) as rows:
            assert await rows.few(RowFilter(), '{"many": "yes"}') is None
            found = await rows.find(RowFilter(limit=3), '{"many": "yes"}', None)
            assert (len(found.ids), found.matching) == (3, 10_001)
            assert len(await rows.page(found.ids)) == 3
            assert await rows._connection.fetchval("SHOW statement_timeout") == "5s"
    finally:
        await admin.execute('DELETE FROM dispatch_private.tasks WHERE labels @> \'{"many": "yes"}\'')


async def test_batches_are_counted_as_the_view_counts_them(session: Session, admin: Connection) -> None:
    async with reading(session) as rows:
        found = await rows.batches(None, None, "april")
        other = await rows.batches("other", "team-0", "april")
        nothing = await rows.batches(None, None, HOSTILE)
    view = "SELECT *, true FROM dispatch.batch_status WHERE batch = 'april' ORDER BY queue, submitted_by"
    fields = [
        (one.queue, one.submitted_by, one.batch, one.tasks, *(one.by_status.get(status, 0) for status in OF_BATCHES),
         one.first_started_at, one.last_finished_at, one.is_whole)
        for one in found
    ]  # fmt: skip
    assert fields == [tuple(row) for row in await admin.fetch(view)]
    assert not any(0 in one.by_status.values() for one in found), "statuses without a row are left out"
    assert (len(found), nothing) == (2, [])
    assert other == [one for one in found if one.queue == "other"]


async def test_submitter_without_the_batch_costs_no_look_at_its_rows(session: Session) -> None:
    async with session.use() as connection:
        plan = await explain(connection, "owners_of_batch", None, "team-nobody", "april", 20)
    assert (plan.rows, plan.dropped <= 3) == (0, True), "one entry of the index for each queue"


async def test_large_batch_is_counted_up_to_a_limit(session: Session) -> None:
    for most, is_whole in ((10, False), (100, True)):
        async with reading(session, of_batch=most) as rows:
            (one,) = await rows.batches("default", "team-0", "april")
            assert (one.tasks, one.is_whole) == (most, is_whole)


async def test_failed_rows_are_the_newest_of_the_last_day(session: Session, admin: Connection) -> None:
    now: datetime = await admin.fetchval("SELECT now()")
    failed = "SELECT id FROM dispatch.tasks WHERE status = 'failed' AND finished_at > $1 ORDER BY finished_at DESC"
    since = now - timedelta(hours=5)
    ids = [row["id"] for row in await admin.fetch(failed, since)]
    async with reading(session) as rows:
        found = await rows.failed(since)
        assert [one.id for one in found] == ids
        assert (found[0].head, found[0].tail) == (f"no file {ids[0]}", f"no file {ids[0]}")
        of_batch = await rows.failed_of_batch("default", "team-0", "april")
    async with reading(session, failed=7) as rows:
        assert [one.id for one in await rows.failed(since)] == ids[:7]
    want = await expected(admin, {"queue": "default", "submitted_by": "team-0", "batch": "april", "status": "failed"})
    assert sorted((one.id for one in of_batch), reverse=True) == want


async def test_long_errors_are_read_in_parts(session: Session, admin: Connection) -> None:
    id_ = await admin.fetchval("""
        INSERT INTO dispatch_private.tasks (status, launch, finished_at, kind, error, spec)
        VALUES ('failed', 1, now() + interval '1 min', 'x', repeat('h', 4000) || repeat('t', 4000),
                '{"image": "app:2"}')
        RETURNING id
    """)
    async with reading(session) as rows:
        newest = (await rows.failed(rows.now))[0]
        (source,) = await rows.sources([id_])
        (listed,) = await rows.page([id_])
    assert (newest.id, newest.head, newest.tail, newest.image) == (id_, "h" * 400, "t" * 400, "app:2")
    assert (source.template, source.image, listed.error) == ("default", "app:2", "h" * 300)
    await admin.execute("DELETE FROM dispatch_private.tasks WHERE id = $1", id_)
