"""The functions of `row.py` change rows as the SQL functions do. Both get every small row with every call.

The table holds all rows at once. One statement makes a call for each row. The test compares all rows and answers, and
rolls back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple
from uuid import UUID

import pytest
import pytest_asyncio

from tests.model import row as rows
from tests.model.row import (
    CANCELLED,
    FAILED,
    NONE,
    PROCESSING,
    STATUSES,
    SUCCEEDED,
    WAITING,
    Call,
    End,
    Return,
    Row,
    StartAnswer,
)
from tests.rig.postgres import Connection, Database, Record

OTHER_TOKEN = 1999
TOKEN = {True: "s.token", False: "s.other"}
"""The token of a call in SQL, by whether it is the row's own."""


class StoredRow(NamedTuple):
    """A row before the call, with the columns that the model takes as arguments."""

    row: Row
    max_failures: int
    is_stale: bool = False


@dataclass(frozen=True)
class SqlCall:
    """One call.

    sql: may use s.id, s.start_key, s.token (the row's run token) and s.other (a token of no row).
    model: the expected row and answer.
    """

    name: str
    sql: str
    model: Callable[[StoredRow], tuple[Row, object]]


def all_rows() -> list[StoredRow]:
    waiting = [Row(WAITING, 2, 0, failures) for failures in range(3)]
    over = [Row(status, 2, 1, 1, 1) for status in (SUCCEEDED, FAILED, CANCELLED)]
    still = [StoredRow(row, most) for row, most in product(waiting + over, (1, 2, 3))]
    running = [
        StoredRow(Row(PROCESSING, 2, launch, failures, uid, pod, uid * 2 + pod + 1, cancel, *second), most, is_stale)
        for launch, failures, uid, (pod, *second), cancel, most, is_stale in product(
            (1, 2), range(3), (1, 2), ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 1, 1)), (0, 1), (1, 2, 3), (False, True)
        )
    ]
    return still + running


def starts() -> list[SqlCall]:
    return [
        start_of(Call(attempt, launch, uid, pod, key, process))
        for attempt, launch, uid, (pod, process), key in product(
            (1, 2, 3), range(4), (1, 2), ((0, 0), (1, 0), (0, 1), (0, 2)), (True, False)
        )
    ]


def start_of(call: Call) -> SqlCall:
    key = "s.start_key" if call.has_key else "gen_random_uuid()"
    sql = f"""(SELECT run_token::text FROM dispatch.task_start(s.id, {key}, {call.attempt}, {call.launch},
               'job-{call.uid}', 'node', 'pod-{call.pod}', {f"'run-{call.process}'" if call.process else "NULL"}))"""
    return SqlCall(f"start {tuple(call)}", sql, lambda stored: rows.start(stored.row, call, stored.max_failures))


def reports() -> list[SqlCall]:
    finishes = [
        SqlCall(f"finish {word} {own}", f"dispatch.task_finish({TOKEN[own]}, '{word}')", finish_model(word, own))
        for word, own in product(("succeeded", "retry", "failed"), (True, False))
    ]
    return finishes + [
        SqlCall(f"heartbeat {own}", f"dispatch.task_heartbeat({token})", heartbeat_model(own))
        for own, token in TOKEN.items()
    ]


def finish_model(outcome: str, own: bool) -> Callable[[StoredRow], tuple[Row, object]]:
    def model(stored: StoredRow) -> tuple[Row, object]:
        token = (stored.row.token if own else OTHER_TOKEN) or OTHER_TOKEN
        row, answer = rows.finish(stored.row, token, outcome, stored.max_failures)
        return row, None if answer is None else STATUSES[answer]

    return model


def heartbeat_model(own: bool) -> Callable[[StoredRow], tuple[Row, object]]:
    return lambda stored: (stored.row, rows.heartbeat(stored.row, (stored.row.token if own else 0) or OTHER_TOKEN))


def submitters() -> list[SqlCall]:
    def cancelled(stored: StoredRow) -> tuple[Row, object]:
        row = rows.cancel(stored.row, is_stale=stored.is_stale)
        return row, STATUSES[row.status]

    def retried(attempt: int | None) -> Callable[[StoredRow], tuple[Row, object]]:
        def model(stored: StoredRow) -> tuple[Row, object]:
            row = rows.retry(stored.row, attempt)
            return row, STATUSES[row.status]

        return model

    retries = [
        SqlCall(f"retry {attempt}", f"dispatch.task_retry(s.id, {attempt or 'NULL'})", retried(attempt))
        for attempt in (None, 1, 2, 3)
    ]
    return [SqlCall("cancel", "dispatch.task_cancel(s.id)", cancelled), *retries]


def returns() -> list[SqlCall]:
    found = []
    for attempt, launch, own, failures in product((1, 2, 3), (0, 1, 2), (True, False), (1, 2)):
        run = f"{attempt}, {launch}, dispatch_private.token_digest({TOKEN[own]}), {failures}"
        model = return_model(attempt, launch, own, failures)
        found.append(SqlCall(f"return {run}", f"dispatch_private.janitor_return(s.id, {run}, 'gone')", model))
    return found


def return_model(attempt: int, launch: int, own: bool, failures: int) -> Callable[[StoredRow], tuple[Row, object]]:
    def model(stored: StoredRow) -> tuple[Row, object]:
        row, is_stale = stored.row, stored.is_stale
        asked = Return(attempt, launch, row.token if own else OTHER_TOKEN, failures)
        return hit(row, rows.janitor_return(row, asked, stored.max_failures, is_stale=is_stale, without=NONE))

    return model


def ends() -> list[SqlCall]:
    found = []
    for attempt, launch, uid, status in product((1, 2, 3), (0, 1, 2), (-1, 1, 2), (SUCCEEDED, FAILED, WAITING)):
        asked = End(attempt, launch, uid, status)
        job = "NULL" if uid < 0 else f"'job-{uid}'"
        outcome = "retry" if status == WAITING else STATUSES[status]
        sql = f"dispatch_private.janitor_end(s.id, {attempt}, {launch}, {job}, '{outcome}', 'parked')"
        found.append(SqlCall(f"end {tuple(asked)}", sql, end_model(asked)))
    for attempt, own in product((1, 2, 3), (True, False)):
        run = f"{attempt}, dispatch_private.token_digest({TOKEN[own]})"
        found.append(
            SqlCall(f"end cancelled {run}", f"dispatch_private.janitor_cancel(s.id, {run})", cancel_model(attempt, own))
        )
    return found


def end_model(asked: End) -> Callable[[StoredRow], tuple[Row, object]]:
    return lambda stored: hit(stored.row, rows.janitor_end(stored.row, asked, stored.max_failures))


def cancel_model(attempt: int, own: bool) -> Callable[[StoredRow], tuple[Row, object]]:
    def model(stored: StoredRow) -> tuple[Row, object]:
        token = stored.row.token if own else OTHER_TOKEN
        return hit(stored.row, rows.janitor_cancel(stored.row, attempt, token))

    return model


def hit(before: Row, after: Row) -> tuple[Row, object]:
    """The janitor's functions answer with the new status, or with NULL if they match no row."""
    return after, None if after == before else STATUSES[after.status]


STORED = all_rows()
INSERT = """
INSERT INTO dispatch.tasks (max_failures) SELECT most FROM unnest($1::int[]) AS most
RETURNING id
"""
STORE = """
UPDATE dispatch_private.tasks AS t SET
    status = s.status, attempt = 2, launch = s.launch, failures = s.failures, job_uid = s.uid, pod_name = s.pod,
    run_id = s.run, second_process = s.second,
    run_digest = CASE s.status WHEN 'processing' THEN dispatch_private.token_digest(
        (SELECT k FROM dispatch_private.run_tokens(t.id, 2, s.launch, s.uid, s.pod) AS k LIMIT 1)) END,
    started_at = now(), heartbeat_at = now() - s.age * interval '1 s',
    cancel_requested_at = CASE WHEN s.cancel THEN now() END,
    finished_at = CASE WHEN s.status NOT IN ('waiting', 'processing') THEN now() END
FROM unnest($1::bigint[], $2::text[], $3::int[], $4::int[], $5::text[], $6::text[], $7::text[], $8::int[], $9::bool[],
            $10::bool[]) AS s(id, status, launch, failures, uid, pod, run, age, cancel, second)
WHERE t.id = s.id
"""
CALL = """
SELECT s.id, {call} AS answer
FROM (SELECT t.id, (SELECT k FROM dispatch_private.start_keys(t.id, t.created_at) AS k LIMIT 1) AS start_key, s.other,
             CASE t.status WHEN 'processing' THEN
                  (SELECT k FROM dispatch_private.run_tokens(t.id, 2, t.launch, t.job_uid, t.pod_name) AS k LIMIT 1)
             ELSE s.other END AS token
      FROM dispatch.tasks AS t
      JOIN unnest($1::bigint[], $2::uuid[]) AS s(id, other) ON s.id = t.id ORDER BY t.id OFFSET 0) AS s
"""
READ = "SELECT * FROM dispatch_private.tasks ORDER BY id"


def unknown_token(number: int) -> UUID:
    """A token of no run. Each row gets another one, because the functions find a run by its token alone."""
    return UUID(int=number)


def digest(token: object) -> bytes:
    """The digest that a row keeps of its run token. `token`: the UUID as text."""
    return hashlib.sha256(UUID(str(token)).bytes).digest()


@dataclass(frozen=True)
class Table:
    admin: Connection
    ids: list[int]
    digests: list[bytes | None]

    async def rows_after(self, sql: str) -> list[tuple[Record, object]]:
        """Every row after the call, with the answer that it got."""
        others = [unknown_token(number) for number in range(len(STORED))]
        transaction = self.admin.transaction()
        await transaction.start()
        answers = await self.admin.fetch(CALL.format(call=sql), self.ids, others)
        known = {record["id"]: record["answer"] for record in answers}
        after = [(record, known[record["id"]]) for record in await self.admin.fetch(READ)]
        await transaction.rollback()
        return after


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def table(one_database: Database) -> Table:
    """All rows; every call is rolled back."""
    admin = await one_database.session("admin")
    ids = sorted(one["id"] for one in await admin.fetch(INSERT, [stored.max_failures for stored in STORED]))
    await admin.execute(STORE, ids, *zip(*map(values, STORED), strict=True))
    return Table(admin, ids, [record["run_digest"] for record in await admin.fetch(READ)])


def values(stored: StoredRow) -> tuple[object, ...]:
    """The columns of STORE after the id."""
    row = stored.row
    uid, pod = (f"job-{row.uid}", f"pod-{row.pod}") if row.uid else (None, None)
    age = 61 if stored.is_stale else -3600  # on a slow machine a minute passes between the calls
    run = f"run-{row.process}" if row.process else None
    return STATUSES[row.status], row.launch, row.failures, uid, pod, run, age, bool(row.cancel), bool(row.second)


def difference(before: bytes | None, record: Record, answer: object, expected: tuple[Row, object]) -> str:
    """How the SQL row or its answer differs from the model; empty if both agree."""
    row, expected_answer = expected
    uid = int(record["job_uid"][4:]) if record["job_uid"] else 0
    pod = int(record["pod_name"][4:]) if row.status == PROCESSING else row.pod
    is_held, is_cancelled = record["run_digest"] is not None, record["cancel_requested_at"] is not None
    real = (STATUSES.index(record["status"]), record["attempt"], record["launch"], record["failures"], uid, pod)
    if (*real, is_held) != (*row[:6], bool(row.token)):
        return f"row {real} {is_held}, the model says {tuple(row)}"
    if row.status == PROCESSING and is_cancelled != bool(row.cancel):
        return f"cancel asked: {is_cancelled}"
    if row.status == PROCESSING and record["second_process"] != bool(row.second):
        return f"second process: {record['second_process']}"
    if isinstance(expected_answer, StartAnswer):
        is_new = record["run_digest"] not in {None, before}
        given = StartAnswer.NOTHING if answer is None else StartAnswer.NEW if is_new else StartAnswer.SAME
        is_kept = answer is None or digest(answer) == record["run_digest"]
        is_same = given is expected_answer and is_kept
        return "" if is_same else f"the start gave {given}, the model says {expected_answer}"
    return "" if answer == expected_answer else f"the answer is {answer}, the model says {expected_answer}"


@pytest.mark.slow
@pytest.mark.parametrize("family", [starts, reports, submitters, returns, ends], ids=lambda family: family.__name__)
async def test_model_rows_change_as_sql_rows_do(table: Table, family: Callable[[], list[SqlCall]]) -> None:
    wrong, moves = [], 0
    for call in family():
        for number, (record, answer) in enumerate(await table.rows_after(call.sql)):
            expected = call.model(STORED[number])
            moves += expected[0] != STORED[number].row
            if differs := difference(table.digests[number], record, answer, expected):
                wrong.append(f"{call.name} of {STORED[number]}: {differs}")
    assert wrong[:5] == []
    assert moves > 0, "no call changed a row"
