"""Databases of one server that are equal in everything but the rows of another team.

Team B (login team_b) has the same rows everywhere: its own, and those of a queue that it owns. Team A has rows in
`default`, in an open queue and in a closed queue of its own. `Rows` says how A's rows of a database differ. All
databases are copies of one, so that OIDs and catalogs are equal, and all were vacuumed and analysed in the same way.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.rig.postgres import Connection, Database, PostgresServer, connect

GUESTS = {"wall_leads": "team_b", "wall_closed": "team_a"}
"""Group roles of these tests, with their only member."""
PLAIN = "wall_plain"
"""A login that is in no group."""
OWN_IDS = (1, 5001)
"""The first ids of B's two runs of rows: one before A's rows, one after them."""

SHARED = """
CREATE SCHEMA team_b AUTHORIZATION team_b;
GRANT USAGE ON SCHEMA team_b TO PUBLIC;
SET ROLE team_b;
CREATE FUNCTION team_b.told(value text, other text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$
BEGIN
    RAISE NOTICE 'told % of %', value, other;
    RETURN value = other;
END $$;
CREATE OPERATOR team_b.<=#=> (FUNCTION = team_b.told, LEFTARG = text, RIGHTARG = text);
RESET ROLE;
INSERT INTO dispatch_private.queues (name, owner_role, submit_role, max_waiting_per_submitter) VALUES
    ('lowcost', NULL, NULL, 1000), ('jointly', 'wall_leads', 'dispatch_submitter', NULL);
INSERT INTO dispatch_private.templates (name, row_may_set) VALUES ('default', '{env}');
INSERT INTO dispatch_private.reported (as_of) VALUES ('2021-03-01 UTC');
"""
ROWS = """
INSERT INTO dispatch_private.tasks OVERRIDING SYSTEM VALUE
SELECT r.* FROM generate_series(0, $1::integer - 1) AS i
CROSS JOIN LATERAL (SELECT i + $2::integer AS k, substr(md5($3::text || i), 1, 12) AS word,
                           timestamptz '2021-01-01 UTC' + make_interval(mins => i * 7 % 5003) AS made) AS n
CROSS JOIN LATERAL (SELECT (ARRAY['waiting', 'processing', 'succeeded', 'failed', 'cancelled'])[1 + k % 5] AS status,
                           $8::boolean OR k % 5 > 0 AS has_run, $8::boolean OR k % 5 > 1 AS has_ended) AS s
CROSS JOIN LATERAL jsonb_populate_record(NULL::dispatch_private.tasks, jsonb_build_object(
    'id', $4::bigint + i * $5::bigint, 'queue', ($6::text[])[1 + k / 5 % cardinality($6::text[])],
    'priority', 50 + k % 2 * 100, 'run_at', CASE i % 7 WHEN 0 THEN timestamptz '2099-01-01 UTC' END,
    'timeout_seconds', 60 + k % 7, 'max_failures', 3 + k % 2, 'template', 'default',
    'env', jsonb_build_object('NAME', word),
    'spec', '{}'::jsonb, 'payload', word, 'cache_key', word, 'dedupe_key', rpad(word, 24 - length(status), 'x'),
    'status', status, 'attempt', 1 + k % 3, 'launch', has_run::integer, 'failures', k % 2,
    'submitted_by', ($7::text[])[1 + i % cardinality($7::text[])],
    'created_at', made, 'kind', '\\x00', 'batch', $3::text || k % 7, 'labels', jsonb_build_object('team', word),
    'second_process', k % 2 = 1)
  || CASE WHEN has_run THEN jsonb_build_object(
        'job_uid', word, 'started_at', made, 'heartbeat_at', made, 'node_name', word, 'pod_name', word,
        'progress', 0.5, 'note', word) ELSE '{}' END
  || CASE WHEN has_ended THEN jsonb_build_object('finished_at', made, 'error', word, 'result', word) ELSE '{}' END
  || CASE WHEN $8 OR k % 5 = 1 THEN jsonb_build_object('run_digest', sha256(word::bytea)) ELSE '{}' END) AS r
"""
LAUNCHES = """
INSERT INTO dispatch_private.task_launches
    (task_id, attempt, launch, job_uid, node_name, pod_name, started_at, ended_at, outcome, error, run_digest,
     exit_code, reason, queue)
SELECT id, attempt, launch, job_uid, node_name, pod_name, started_at, finished_at, outcome,
       rpad(error, 30 - length(outcome), 'x'), run_digest, 1, note, queue
FROM dispatch_private.tasks CROSS JOIN LATERAL (
    SELECT CASE WHEN finished_at IS NULL THEN NULL WHEN status IN ('waiting', 'processing') THEN 'lost' ELSE status END
           AS outcome) AS o
WHERE launch > 0 AND id BETWEEN $1 AND $2
"""
REASONS = """
INSERT INTO dispatch_private.task_reasons (task_id, attempt, reason, message, since)
SELECT id, attempt, 'Poison', 'because ' || cache_key, created_at FROM dispatch_private.tasks
WHERE status = 'waiting' AND id BETWEEN $1 AND $2
"""
EARLIER_KEYS = """
INSERT INTO dispatch_private.earlier_start_keys (task_id, digest)
SELECT id, sha256(cache_key::bytea) FROM dispatch_private.tasks WHERE launch > 0 AND id BETWEEN $1 AND $2
"""
CLOSED = """
INSERT INTO dispatch_private.queues (name, owner_role, submit_role, note) SELECT name, 'wall_closed', 'wall_closed', $2
FROM unnest($1::text[]) AS name
"""
QUEUE_REASONS = """
INSERT INTO dispatch_private.queue_reasons (queue, waiting, in_flight, weight, share, oldest, reasons, behind)
SELECT name, $2::integer, $2 / 2, 1, 0.5, timestamptz '2021-02-01 UTC' + make_interval(mins => $2::integer),
       jsonb_build_object('NoRoomNow', $2::integer),
       jsonb_build_object('reason', $3::text, 'message', 'behind ' || $2::integer)
FROM unnest($1::text[]) AS name
"""
TABLES = """
SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'dispatch_private'::regnamespace AND relkind = 'r'
"""
STALE = """
SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'dispatch_private'::regnamespace AND relkind = 'r'
AND (relallvisible < pg_relation_size(oid) / 8192 OR reltuples < 0) ORDER BY oid
"""


@dataclass(frozen=True)
class Rows:
    """The rows of team A in one database.

    seed: what all their texts are made of.
    shift: by how much statuses, queues, attempts and batches are moved along the rows.
    is_even: every row has a value in every column, and a length that does not depend on its values.
    """

    seed: str
    count: int = 2100
    shift: int = 0
    first: int = 1001
    step: int = 1
    closed: Sequence[str] = ("merging",)
    logins: Sequence[str] = ("team_a",)
    waiting: int = 400
    behind: str = "QueueCap"
    is_even: bool = True
    payload: str = ""


# The closed queues stand on the same side of `jointly` in every index, so the rows that B sees begin at the same place.
ONE = Rows("ice")
SAME_SIZE = Rows("oak", shift=1, closed=("opening",), waiting=700, behind="DrainNow")
OTHER_SIZE = Rows(
    "a much longer seed", count=1365, shift=2, first=1002, step=2, waiting=90, behind="JobCap", is_even=False,
    closed=("secret-one", "secret-two", "a-very-long-name-of-a-queue"), logins=("team_a", "team_c", "another_team"),
)  # fmt: skip


async def plant(admin: Connection, rows: Rows) -> None:
    """Puts the rows of team A into a database, and settles it."""
    queues = ["default", "lowcost", *rows.closed]
    last = rows.first + (rows.count - 1) * rows.step
    await admin.execute(CLOSED, list(rows.closed), f"for {rows.seed}")
    await admin.execute(
        ROWS, rows.count, rows.shift, rows.seed, rows.first, rows.step, queues, list(rows.logins), rows.is_even
    )
    for statement in (LAUNCHES, REASONS, EARLIER_KEYS):
        await admin.execute(statement, rows.first, last)
    await admin.execute(QUEUE_REASONS, queues, rows.waiting, rows.behind)
    if rows.payload:
        changed = "UPDATE dispatch_private.tasks SET payload = to_jsonb($1::text) WHERE submitted_by = 'team_a'"
        await admin.execute(changed, rows.payload)
    await settle(admin)


async def settle(admin: Connection) -> None:
    """Vacuums and analyses everything, and sets the sequence of ids to the same number everywhere."""
    await admin.execute("SELECT setval('dispatch_private.tasks_id_seq', 10000)")
    while stale := await admin.fetch(STALE):  # a page that somebody has pinned is left out
        for (table,) in stale:
            await admin.execute(f"VACUUM (FREEZE, ANALYZE) {table}")


async def plant_common(admin: Connection) -> None:
    """What all databases have: the rows of team B, its queue with rows of A, and a leaky operator of B's own."""
    await admin.execute(SHARED)
    for (table,) in await admin.fetch(TABLES):  # it would clean one database and not the other
        await admin.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    for number, first in enumerate(OWN_IDS):
        queues = ["default", "lowcost", "jointly"]
        await admin.execute(ROWS, 15, number, f"mine{number}", first, 1, queues, ["team_b"], False)
    await admin.execute(ROWS, 15, 0, "joint", 100, 1, ["jointly"], ["team_a"], False)
    # Rows of a third team, so that no page has rows that B sees beside rows that differ.
    await admin.execute(ROWS, 30, 0, "third", 200, 1, ["lowcost"], ["team_c"], False)
    for statement in (LAUNCHES, REASONS):
        await admin.execute(statement, 1, 6000)


@asynccontextmanager
async def roles(postgres: PostgresServer) -> AsyncIterator[None]:
    """The roles of these tests, which belong to the whole server. Whoever made them removes them."""
    admin = await connect(postgres.admin_url)
    is_ours = not await admin.fetchval("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", PLAIN)
    try:
        if is_ours:
            await admin.execute(f"CREATE ROLE {PLAIN} LOGIN PASSWORD '{PLAIN}'")
            for role, member in GUESTS.items():
                await admin.execute(f"CREATE ROLE {role} ROLE {member}")
        yield
    finally:
        if is_ours:
            for role in (*GUESTS, PLAIN):
                await admin.execute(f"DROP ROLE IF EXISTS {role}")
        await admin.close()


@asynccontextmanager
async def copies(postgres: PostgresServer, *kinds: Rows) -> AsyncIterator[list[Database]]:
    """One database for each kind of rows."""
    made: list[Database] = []
    origin = await postgres.create_database()
    try:
        async with roles(postgres):
            admin = await origin.connect()
            await plant_common(admin)
            await admin.close()
            for rows in kinds:
                made.append(await copy(postgres, origin))
                admin = await made[-1].connect()
                await plant(admin, rows)
                await admin.close()
            yield made
            for database in made:
                await database.drop()
    finally:
        for database in [*made, origin]:
            await database.drop()


async def copy(postgres: PostgresServer, origin: Database) -> Database:
    """A copy of a database to which nobody is connected."""
    name = f"dispatch_wall_{secrets.token_hex(5)}"
    await postgres.execute(f'CREATE DATABASE "{name}" TEMPLATE "{origin.name}" STRATEGY file_copy')
    return Database(postgres, name)
