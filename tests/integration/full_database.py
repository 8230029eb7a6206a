"""A full database: a million finished rows, and a hundred thousand waiting ones in a hundred queues."""

from collections.abc import AsyncIterator

import pytest_asyncio

from dispatcher.pg.connect import open_connection
from tests.rig.postgres import Connection, Database, PostgresServer

QUEUES = [f"queue-{number}" for number in range(100)]
FINISHED, WAITING, PROCESSING, WINDOW = 1_000_000, 100_000, 300, 200
LAUNCHES = 200_000
"""Half of them in the last hour."""
SUBMITTERS = 20
"""In each queue; each submitter has equally many waiting rows."""

INDEXES = """
SELECT indexrelid::regclass::text AS name, pg_get_indexdef(indexrelid) AS definition
FROM pg_index WHERE indrelid = 'dispatch_private.tasks'::regclass AND NOT indisprimary
"""
FILL = [
    # No trigger runs for a million rows, and the indexes are made again after the inserts.
    "SET session_replication_role = replica",
    "INSERT INTO dispatch_private.queues (name) SELECT 'queue-' || n FROM generate_series(0, 99) AS n",
    f"""
    INSERT INTO dispatch_private.tasks (queue, status, launch, finished_at, kind)
    SELECT 'queue-' || n % 100, CASE WHEN n % 10 = 0 THEN 'failed' ELSE 'succeeded' END, 1,
           now() - interval '1 s' * n, decode(md5((n % 1000)::text), 'hex')
    FROM generate_series(1, {FINISHED}) AS n
    """,
    # Of twenty rows, one has been due for some time, and one is due later.
    f"""
    INSERT INTO dispatch_private.tasks (queue, submitted_by, priority, run_at, kind)
    SELECT 'queue-' || n % 100, 'team-' || n / 2000 % {SUBMITTERS}, n / 100 % 3 * 50,
           CASE n / 100 % 20 WHEN 0 THEN now() - interval '1 s' * n WHEN 1 THEN now() + interval '1 s' * n END,
           decode(md5((n % 1000)::text), 'hex')
    FROM generate_series(1, {WAITING}) AS n
    """,
    f"""
    INSERT INTO dispatch_private.tasks (queue, status, launch, run_digest, started_at, heartbeat_at, kind)
    SELECT 'queue-' || n % 100, 'processing', 1, uuid_send(gen_random_uuid()), now(), now(), decode(md5('x'), 'hex')
    FROM generate_series(1, {PROCESSING}) AS n
    """,
    f"""
    INSERT INTO dispatch_private.task_launches (task_id, attempt, launch, job_uid, started_at, ended_at, outcome, queue)
    SELECT n, 1, 1, 'job', now() - interval '36 ms' * n, now(), 'succeeded', 'queue-' || n % 100
    FROM generate_series(1, {LAUNCHES}) AS n
    """,
]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def full(postgres: PostgresServer) -> AsyncIterator[Database]:
    database = await postgres.create_database()
    admin = await database.session("admin")
    indexes = await admin.fetch(INDEXES)
    await admin.execute("DROP INDEX " + ", ".join(index["name"] for index in indexes))
    for statement in FILL:
        await admin.execute(statement)
    for index in indexes:
        await admin.execute(index["definition"])
    await admin.execute("ANALYZE dispatch_private.tasks, dispatch_private.queues")
    yield database
    await database.drop()


@pytest_asyncio.fixture(loop_scope="session")
async def reader(full: Database) -> AsyncIterator[Connection]:
    """A connection with the settings of every session of the dispatcher."""
    connection = await open_connection(full.url("reader"))
    yield connection
    connection.terminate()
