"""The model's rows move as the real ones do: every small row under every call, both ways.

All rows stand in the table at once; a call is made of each of them in one statement, compared, and rolled back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from tests.model import row as rows
from tests.model.row import CANCELLED, FAILED, NONE, PROCESSING, SUCCEEDED, WAITING, Call, End, Gave, Return, Row
from tests.postgres import Connection, Database, Record

STATUSES = ("waiting", "processing", "succeeded", "failed", "cancelled")
OTHER_TOKEN = 1999


class Stood(NamedTuple):
    """A row as it stood, and what of it the model takes as arguments."""

    row: Row
    max_failures: int
    is_stale: bool = False


@dataclass(frozen=True)
class Asked:
    """One call. `sql` takes of `s`: id, start_key, token (the row's), other (nobody's); `model`: what it should do."""

    name: str
    sql: str
    model: Callable[[Stood], tuple[Row, object]]


def all_rows() -> list[Stood]:
    waiting = [Row(WAITING, 2, 0, failures) for failures in range(3)]
    over = [Row(status, 2, 1, 1, 1) for status in (SUCCEEDED, FAILED, CANCELLED)]
    still = [Stood(row, most) for row, most in product(waiting + over, (1, 2, 3))]
    running = [
        Stood(Row(PROCESSING, 2, launch, failures, uid, pod, uid * 2 + pod + 1, cancel), most, is_stale)
        for launch, failures, uid, pod, cancel, most, is_stale in product(
            (1, 2), range(3), (1, 2), (0, 1), (0, 1), (1, 2, 3), (False, True)
        )
    ]
    return still + running


def starts() -> list[Asked]:
    return [
        start_of(Call(attempt, launch, uid, pod, key))
        for attempt, launch, uid, pod, key in product((1, 2, 3), range(4), (1, 2), (0, 1), (True, False))
    ]


def start_of(call: Call) -> Asked:
    key = "s.start_key" if call.has_key else "gen_random_uuid()"
    sql = f"""(SELECT run_token::text FROM dispatch.task_start(s.id, {key}, {call.attempt}, {call.launch},
               'job-{call.uid}', 'node', 'pod-{call.pod}'))"""
    return Asked(f"start {tuple(call)}", sql, lambda stood: rows.start(stood.row, call, stood.max_failures))


def reports() -> list[Asked]:
    found = []
    for outcome, mine in product(("succeeded", "retry", "failed"), (True, False)):
        token = "s.token" if mine else "s.other"
        found.append(
            Asked(f"finish {outcome} {mine}", f"dispatch.task_finish({token}, '{outcome}')", told(outcome, mine))
        )
    for mine in (True, False):
        token = "s.token" if mine else "s.other"
        found.append(Asked(f"heartbeat {mine}", f"dispatch.task_heartbeat({token})", beats(mine)))
    return found


def told(outcome: str, mine: bool) -> Callable[[Stood], tuple[Row, object]]:
    def model(stood: Stood) -> tuple[Row, object]:
        token = (stood.row.token if mine else OTHER_TOKEN) or OTHER_TOKEN
        row, answer = rows.finish(stood.row, token, outcome, stood.max_failures)
        return row, None if answer is None else STATUSES[answer]

    return model


def beats(mine: bool) -> Callable[[Stood], tuple[Row, object]]:
    return lambda stood: (stood.row, rows.heartbeat(stood.row, (stood.row.token if mine else 0) or OTHER_TOKEN))


def persons() -> list[Asked]:
    def cancelled(stood: Stood) -> tuple[Row, object]:
        row = rows.cancel(stood.row, is_stale=stood.is_stale)
        return row, STATUSES[row.status]

    def again(attempt: int | None) -> Callable[[Stood], tuple[Row, object]]:
        def model(stood: Stood) -> tuple[Row, object]:
            row = rows.retry(stood.row, attempt)
            return row, STATUSES[row.status]

        return model

    retries = [
        Asked(f"retry {attempt}", f"dispatch.task_retry(s.id, {attempt or 'NULL'})", again(attempt))
        for attempt in (None, 1, 2, 3)
    ]
    return [Asked("cancel", "dispatch.task_cancel(s.id)", cancelled), *retries]


def returns() -> list[Asked]:
    found = []
    for attempt, launch, mine, failures in product((1, 2, 3), (0, 1, 2), (True, False), (1, 2)):
        told = f"dispatch.token_digest({'s.token' if mine else 's.other'})"
        sql = f"dispatch.janitor_return(s.id, {attempt}, {launch}, {told}, {failures}, 'gone')"
        found.append(
            Asked(f"return {attempt} {launch} {mine} {failures}", sql, returned(attempt, launch, mine, failures))
        )
    return found


def returned(attempt: int, launch: int, mine: bool, failures: int) -> Callable[[Stood], tuple[Row, object]]:
    def model(stood: Stood) -> tuple[Row, object]:
        row, is_stale = stood.row, stood.is_stale
        asked = Return(attempt, launch, row.token if mine else OTHER_TOKEN, failures)
        return hit(row, rows.janitor_return(row, asked, stood.max_failures, is_stale=is_stale, without=NONE))

    return model


def ends() -> list[Asked]:
    found = []
    for attempt, launch, uid, status in product((1, 2, 3), (0, 1, 2), (-1, 1, 2), (SUCCEEDED, FAILED)):
        asked = End(attempt, launch, uid, status)
        job = "NULL" if uid < 0 else f"'job-{uid}'"
        sql = f"dispatch.janitor_end(s.id, {attempt}, {launch}, {job}, '{STATUSES[status]}', 'parked')"
        found.append(Asked(f"end {tuple(asked)}", sql, ended_by(asked)))
    for attempt, mine in product((1, 2, 3), (True, False)):
        told = f"dispatch.token_digest({'s.token' if mine else 's.other'})"
        sql = f"dispatch.janitor_cancel(s.id, {attempt}, {told})"
        found.append(Asked(f"end cancelled {attempt} {mine}", sql, cancel_ended(attempt, mine)))
    return found


def ended_by(asked: End) -> Callable[[Stood], tuple[Row, object]]:
    return lambda stood: hit(stood.row, rows.janitor_end(stood.row, asked))


def cancel_ended(attempt: int, mine: bool) -> Callable[[Stood], tuple[Row, object]]:
    def model(stood: Stood) -> tuple[Row, object]:
        token = stood.row.token if mine else OTHER_TOKEN
        return hit(stood.row, rows.janitor_cancel(stood.row, attempt, token))

    return model


def hit(before: Row, after: Row) -> tuple[Row, object]:
    """The janitor's functions answer with the new status, or NULL where they hit no row."""
    return after, None if after == before else STATUSES[after.status]


STOOD = all_rows()
INSERT = """
INSERT INTO dispatch.tasks (max_failures) SELECT most FROM unnest($1::int[]) AS most
RETURNING id
"""
STAND = """
UPDATE dispatch.tasks AS t SET
    status = s.status, attempt = 2, launch = s.launch, failures = s.failures, job_uid = s.uid, pod_name = s.pod,
    run_digest = CASE s.status WHEN 'processing' THEN dispatch.token_digest(
        (SELECT k FROM dispatch.run_tokens(t.id, 2, s.launch, s.uid, s.pod) AS k LIMIT 1)) END,
    started_at = now(), heartbeat_at = now() - s.age * interval '1 s',
    cancel_requested_at = CASE WHEN s.cancel THEN now() END,
    finished_at = CASE WHEN s.status NOT IN ('waiting', 'processing') THEN now() END
FROM unnest($1::bigint[], $2::text[], $3::int[], $4::int[], $5::text[], $6::text[], $7::int[], $8::bool[])
     AS s(id, status, launch, failures, uid, pod, age, cancel)
WHERE t.id = s.id
"""
CALL = """
SELECT s.id, {call} AS answer
FROM (SELECT t.id, (SELECT k FROM dispatch.start_keys(t.id, t.created_at) AS k LIMIT 1) AS start_key, s.other,
             CASE t.status WHEN 'processing' THEN
                  (SELECT k FROM dispatch.run_tokens(t.id, 2, t.launch, t.job_uid, t.pod_name) AS k LIMIT 1)
             ELSE s.other END AS token
      FROM dispatch.tasks AS t
      JOIN unnest($1::bigint[], $2::uuid[]) AS s(id, other) ON s.id = t.id ORDER BY t.id OFFSET 0) AS s
"""
READ = "SELECT * FROM dispatch.tasks ORDER BY id"


def nobodys_token(number: int) -> UUID:
    """Each row has its own: the functions find a run by its token alone."""
    return UUID(int=number)


def digest(token: object) -> bytes:
    """What a row keeps of its token, which comes as text."""
    return hashlib.sha256(UUID(str(token)).bytes).digest()


@dataclass(frozen=True)
class Table:
    admin: Connection
    ids: list[int]
    digests: list[bytes | None]

    async def asked(self, sql: str) -> list[tuple[Record, object]]:
        """Every row after the call, and its answer."""
        others = [nobodys_token(number) for number in range(len(STOOD))]
        transaction = self.admin.transaction()
        await transaction.start()
        answers = await self.admin.fetch(CALL.format(call=sql), self.ids, others)
        known = {record["id"]: record["answer"] for record in answers}
        after = [(record, known[record["id"]]) for record in await self.admin.fetch(READ)]
        await transaction.rollback()
        return after


async def stand(database: Database) -> Table:
    admin = await database.session("admin")
    ids = sorted(one["id"] for one in await admin.fetch(INSERT, [stood.max_failures for stood in STOOD]))
    columns: list[Any] = [[], [], [], [], [], [], []]
    for row, _, is_stale in STOOD:
        uid, pod = (f"job-{row.uid}", f"pod-{row.pod}") if row.uid else (None, None)
        values = (
            STATUSES[row.status],
            row.launch,
            row.failures,
            uid,
            pod,
            61 if is_stale else 5,
            bool(row.cancel),
        )
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    await admin.execute(STAND, ids, *columns)
    return Table(admin, ids, [record["run_digest"] for record in await admin.fetch(READ)])


def difference(before: bytes | None, record: Record, answer: object, expected: tuple[Row, object]) -> str:
    """In what the real row, or its answer, is not what the model says; empty: in nothing."""
    row, says = expected
    uid = int(record["job_uid"][4:]) if record["job_uid"] else 0
    pod = int(record["pod_name"][4:]) if row.status == PROCESSING else row.pod
    is_held, is_cancelled = record["run_digest"] is not None, record["cancel_requested_at"] is not None
    real = (STATUSES.index(record["status"]), record["attempt"], record["launch"], record["failures"], uid, pod)
    if (*real, is_held) != (*row[:6], bool(row.token)):
        return f"row {real} {is_held}, the model says {tuple(row)}"
    if row.status == PROCESSING and is_cancelled != bool(row.cancel):
        return f"cancel asked: {is_cancelled}"
    if isinstance(says, Gave):
        is_new = record["run_digest"] not in {None, before}
        gave = Gave.NOTHING if answer is None else Gave.NEW if is_new else Gave.SAME
        given = answer is None or digest(answer) == record["run_digest"]
        return "" if gave is says and given else f"the start gave {gave}, the model says {says}"
    return "" if answer == says else f"the answer is {answer}, the model says {says}"


@pytest.mark.parametrize("family", [starts, reports, persons, returns, ends], ids=lambda family: family.__name__)
async def test_the_models_rows_move_as_the_real_ones(database: Database, family: Callable[[], list[Asked]]) -> None:
    table, wrong, moves = await stand(database), [], 0
    for asked in family():
        for number, (record, answer) in enumerate(await table.asked(asked.sql)):
            expected = asked.model(STOOD[number])
            moves += expected[0] != STOOD[number].row
            if differs := difference(table.digests[number], record, answer, expected):
                wrong.append(f"{asked.name} of {STOOD[number]}: {differs}")
    assert wrong[:5] == []
    assert moves > 0, "no call did anything"
