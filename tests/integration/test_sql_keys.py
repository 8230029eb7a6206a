"""Keys are derived from secrets of the database: the same in SQL and in Python, and only for one row and one Pod."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime
from uuid import UUID

import pytest

from dispatcher.model.launches import start_key
from tests.integration.looking import looking
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import Pod, Row, insert_row

database = one_database

IDS = [1, 2, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 0, -1]
MOMENTS = [
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2000, 1, 1, tzinfo=UTC),
    datetime(2024, 2, 29, 12, 34, 56, 789_012, tzinfo=UTC),
    datetime(2038, 1, 19, 3, 14, 8, 1, tzinfo=UTC),
    datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_998, tzinfo=UTC),
]
START_SECRET = "SELECT start_inner, start_outer FROM dispatch_private.secrets ORDER BY generation DESC LIMIT 1"
RUN_SECRET = "SELECT run_inner, run_outer FROM dispatch_private.secrets ORDER BY generation DESC LIMIT 1"
START_KEY = "SELECT dispatch_private.start_keys($1, $2) LIMIT 1"
RUN_TOKEN = "SELECT dispatch_private.run_tokens($1, $2, $3, $4, $5) LIMIT 1"
ROTATE = "SELECT dispatch.rotate_secrets()"


async def blocks(database: Database, query: str) -> tuple[bytes, bytes]:
    """The inner and the outer block of the newest secret."""
    row = await (await database.session("admin")).fetchrow(query)
    assert row is not None
    return row[0], row[1]


def key_of(inner: bytes, outer: bytes) -> bytes:
    """The key of an HMAC, from either of its two blocks."""
    key = bytes(byte ^ 0x36 for byte in inner)
    assert key == bytes(byte ^ 0x5C for byte in outer)
    return key


def field(words: str | None) -> bytes:
    written = (words or "").encode()
    return (-1 if words is None else len(written)).to_bytes(4, "big", signed=True) + written


# The derivation


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
async def test_python_and_sql_derive_the_same_start_key(database: Database, moment: datetime) -> None:
    admin = await database.session("admin")
    secret = await blocks(database, START_SECRET)
    told = [str(await admin.fetchval(START_KEY, id_, moment)) for id_ in IDS]
    assert told == [start_key(secret, id_, moment) for id_ in IDS]
    assert len(set(told)) == len(IDS)


async def test_dispatcher_derives_the_key_that_starts_the_row(database: Database) -> None:
    row = await insert_row(database)
    async with looking(database) as rows:
        task, secret = (await rows.tasks([row.id]))[row.id], await rows.start_secret()
    key = UUID(start_key(secret, task.id, task.created_at))
    assert await row.start(start_key=key) is not None


async def test_a_start_key_is_a_time_and_an_hmac(database: Database) -> None:
    admin, moment = await database.session("admin"), MOMENTS[5]
    key = key_of(*await blocks(database, START_SECRET))
    microseconds = (1_709_210_096_789_012).to_bytes(8, "big")
    for id_ in IDS:
        message = b"start" + id_.to_bytes(8, "big", signed=True) + microseconds
        told = (await admin.fetchval(START_KEY, id_, moment)).bytes
        assert told == microseconds + hmac.digest(key, message, "sha256")[:8]


async def test_key_with_one_wrong_bit_starts_nothing(database: Database) -> None:
    row = await insert_row(database)
    for bit in range(128):
        assert await row.start(start_key=UUID(int=row.start_key.int ^ 1 << bit)) is None
    assert await row.status() == "waiting"
    assert await row.start() is not None


@pytest.mark.parametrize("micros", [0, -1, 2**63 - 1, -(2**63), 253_402_300_800_000_000, -2_208_988_800_000_001])
async def test_key_of_a_strange_time_starts_nothing(database: Database, micros: int) -> None:
    """Times before 1900 and after 9999, and times at which no row was inserted."""
    row = await insert_row(database)
    key = micros.to_bytes(8, "big", signed=True) + row.start_key.bytes[8:]
    assert await row.start(start_key=UUID(bytes=key)) is None


@pytest.mark.parametrize("pod", ["pod-1", "", "ü", None])
async def test_a_run_token_is_an_hmac(database: Database, pod: str | None) -> None:
    admin = await database.session("admin")
    key = key_of(*await blocks(database, RUN_SECRET))
    numbers = (7).to_bytes(8, "big") + (2).to_bytes(4, "big") + (3).to_bytes(4, "big")
    token = await admin.fetchval(RUN_TOKEN, 7, 2, 3, "job-1", pod)
    assert token.bytes == hmac.digest(key, b"run" + numbers + field("job-1") + field(pod), "sha256")[:16]


async def test_a_row_keeps_the_digest_of_its_token(database: Database) -> None:
    row = await insert_row(database)
    started = await row.started()
    (launch,) = await row.launches()
    digest = hashlib.sha256(started.run_token.bytes).digest()
    assert (await row.now())["run_digest"] == launch["run_digest"] == digest


async def test_secrets_are_random_and_differ(database: Database) -> None:
    start, run = key_of(*await blocks(database, START_SECRET)), key_of(*await blocks(database, RUN_SECRET))
    assert len({start, run, bytes(64)}) == 3
    assert (len(start), start[32:], run[32:]) == (64, bytes(32), bytes(32))


async def test_every_database_has_secrets_of_its_own(own_database: Database) -> None:
    """A copy of the tests' template has the same secrets as the template; a rotation makes new ones."""
    before = {*await blocks(own_database, START_SECRET), *await blocks(own_database, RUN_SECRET)}
    await (await own_database.session("admin")).execute(ROTATE)
    assert not before & {*await blocks(own_database, START_SECRET), *await blocks(own_database, RUN_SECRET)}


# Rows and Pods of a key


async def test_the_key_of_one_row_starts_no_other_of_the_same_moment(database: Database) -> None:
    team = await database.session("team_a")
    made = await team.fetch("INSERT INTO dispatch.tasks (priority) VALUES (1), (2) RETURNING id, created_at")
    one, other = [Row(database, row["id"], await database.start_key(row["id"])) for row in made]
    assert made[0]["created_at"] == made[1]["created_at"]
    assert await other.start(start_key=one.start_key) is None
    assert await one.start(start_key=other.start_key) is None
    assert await one.start() is not None
    assert await other.start() is not None


async def test_fields_of_a_token_never_run_together(database: Database) -> None:
    admin = await database.session("admin")
    pairs = [("bc", "a"), ("c", "ab"), ("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc"), ("abc", None)]
    tokens = {await admin.fetchval(RUN_TOKEN, 1, 1, 1, uid, pod) for uid, pod in pairs}
    numbers = {await admin.fetchval(RUN_TOKEN, *three, "bc", "a") for three in ((1, 1, 11), (1, 11, 1), (11, 1, 1))}
    assert len(tokens | numbers) == len(pairs) + 3


async def test_pod_with_the_same_joined_name_and_job_is_another_pod(database: Database) -> None:
    row = await insert_row(database)
    holder = await row.started(pod=Pod("a", "bc"))
    assert await row.start(pod=Pod("ab", "c")) is None
    assert await row.heartbeat(holder) == "continue"
