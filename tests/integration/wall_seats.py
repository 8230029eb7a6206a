"""What a login learns by one statement: its answer, every message, the plan, the server's counters and its own locks.

A `Seat` is one session of a login. It runs each statement in a transaction that is rolled back, and asks the server
afterwards what the statement has touched. The counters are found in the catalog: all functions pg_stat_get_xact_… that
take the OID of a relation, for every table and index of both schemas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from psycopg import pq

Parts: TypeAlias = dict[str, object]
"""What was seen.

answer: rows, or all fields of the error.
messages: all fields of each message that reached the client.
planned, touched: growth of the counters in the first and in the second run.
locks: what the session holds afterwards.
plan: EXPLAIN of the second run.
"""

RELATIONS = """
SELECT string_agg(oid::text, ',' ORDER BY oid) FROM pg_class WHERE relkind IN ('r', 'i', 't') AND (
    relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname IN ('dispatch', 'dispatch_private'))
    OR relnamespace = 'pg_toast'::regnamespace AND EXISTS (
        SELECT FROM pg_class AS t JOIN pg_namespace AS n ON n.oid = t.relnamespace WHERE n.nspname = 'dispatch_private'
        AND t.reltoastrelid IN (pg_class.oid, (SELECT indrelid FROM pg_index WHERE indexrelid = pg_class.oid))))
"""
COUNTERS = r"""
SELECT string_agg(proname, ',' ORDER BY proname) FROM pg_proc
WHERE proname LIKE 'pg\_stat\_get\_xact\_%' AND proname NOT LIKE '%function%' AND proargtypes = '26'
"""
TOUCHED = """
SELECT string_agg(concat_ws(' ', r.oid::regclass, {counters}), ';') FROM unnest('{{{relations}}}'::oid[]) AS r (oid)
WHERE pg_stat_get_xact_blocks_fetched(r.oid) + pg_stat_get_xact_numscans(r.oid) > 0
   OR pg_stat_get_xact_tuples_returned(r.oid) > 0
"""
# Without page and tuple: those of SERIALIZABLE tell which page would hold a value, which depends on all values.
LOCKS = """
SELECT string_agg(DISTINCT concat_ws(' ', relation::regclass, mode), ';') FROM pg_locks
WHERE pid = pg_backend_pid() AND (locktype = 'transactionid' OR relation = ANY ('{{{relations}}}'))
"""
LONG = 4000
FIELDS = [field for field in pq.DiagnosticField if field.name not in ("SEVERITY", "SOURCE_LINE")]
NOISE = re.compile(
    r"(?P<time>\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?\+00)|(?P<xid>xid/subid/cid: [\d/]+)|(?P<cpu>CPU: user.*)"
    r"|(?P<database>dispatch_wall_[0-9a-f]+)|(?P<pid>\b(PID|pid|process) \d+)|(?P<block>\(-?\d+\) name: unnamed)"
)
"""What differs from one moment to the next: times of today, numbers of transactions and processes."""


@dataclass(frozen=True)
class Statement:
    """One statement of a login.

    kind: what it asks, such as `dispatch.tasks.batch` or `call task_cancel`.
    tells: names of the allowed differences (wall_allowed.py) that it may show.
    rows: what is sent after a COPY FROM.
    is_explained: its plan is compared, too.
    """

    sql: str
    kind: str
    tells: frozenset[str] = frozenset()
    rows: bytes = b""
    is_explained: bool = True


class Seat:
    """One session of a login."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._settings: list[str] = []
        self._beginning, self._end = "ROLLBACK; BEGIN", "ROLLBACK"
        self._connect()
        self.version = self._connection.server_version
        relations, counters = self.value(RELATIONS), self.value(COUNTERS).split(",")
        self.counters = counters
        self._touched = TOUCHED.format(counters=", ".join(f"{name}(r.oid)" for name in counters), relations=relations)
        self._locks = LOCKS.format(relations=relations)

    def _connect(self) -> None:
        self._connection = pq.PGconn.connect(self._url.encode())
        assert self._connection.status == pq.ConnStatus.OK, self._connection.get_error_message()
        self._messages: list[object] = []
        self._connection.notice_handler = lambda notice: self._messages.append(fields(notice))

    def begin_again(self) -> None:
        """Goes on in a new session with the same settings: no plan is left, and no function has been called."""
        if self._end == "ROLLBACK":
            self._connection.finish()
            self._connect()
            for setting in self._settings:
                self.value(setting)

    def value(self, statement: str) -> str:
        """The single value of a statement that has to succeed."""
        answer = self._connection.exec_(statement.encode())
        assert answer.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK), answer.error_message.decode()
        return (answer.get_value(0, 0) or b"").decode() if answer.ntuples else ""

    def rows(self, statement: str) -> list[list[str]]:
        answer = self._connection.exec_(statement.encode())
        width = range(answer.nfields)
        return [[(answer.get_value(row, column) or b"").decode() for column in width] for row in range(answer.ntuples)]

    def do(self, statement: str) -> bool:
        """Runs a SET or RESET. True: the login may."""
        is_done = self._connection.exec_(statement.encode()).status == pq.ExecStatus.COMMAND_OK
        if is_done and statement.startswith(("SET", "RESET")):
            self._settings.append(statement)
        return is_done

    @contextmanager
    def in_transaction(self, begin: str) -> Iterator[None]:
        """Statements run in one open transaction, each in a savepoint: they have its snapshot."""
        self.value(begin)
        self.value("SELECT 1")
        self._beginning, self._end = "SAVEPOINT outer_one", "ROLLBACK TO outer_one"
        try:
            yield
        finally:
            self._beginning, self._end = "ROLLBACK; BEGIN", "ROLLBACK"
            self.value("ROLLBACK")

    def look(self, statement: Statement) -> Parts:
        """The first run fills the caches of the catalog and gives the answer, the second one gives plan and counters.

        The counters of the first run tell what the planner touches. Pages are left out: caches differ there.
        """
        parts = self._run(statement.sql, statement.rows)
        parts["planned"] = without_pages(parts["touched"], self.counters)
        if statement.is_explained and statement.sql.startswith(
            ("SELECT", "INSERT", "WITH", "TABLE", "UPDATE", "DELETE")
        ):
            explained = self._run(f"{self._explain} {statement.sql}")
            parts["plan"] = explained["answer"]
        else:
            explained = self._run(statement.sql, statement.rows)
        return parts | {part: explained[part] for part in ("touched", "locks")}

    @property
    def _explain(self) -> str:
        more = ", MEMORY, SERIALIZE TEXT" if self.version >= 170000 else ""
        return f"EXPLAIN (ANALYZE, VERBOSE, BUFFERS, WAL, TIMING off, SUMMARY off{more})"

    def _run(self, statement: str, rows: bytes = b"") -> Parts:
        self._connection.exec_(f"{self._beginning}; SAVEPOINT mark; {self._touched}".encode())
        before = self._counted(self._connection.exec_(self._touched.encode()))
        self._messages = []
        answer = answered(self._connection, statement, rows)
        messages, self._messages = self._messages, []
        if answer[0] == "error":
            self._connection.exec_(b"ROLLBACK TO mark")
        after = self._counted(self._connection.exec_(self._touched.encode()))
        locks = self._connection.exec_(self._locks.encode()).get_value(0, 0) or b""
        self._connection.exec_(self._end.encode())
        return {"answer": answer, "messages": messages, "touched": grown(before, after), "locks": locks.decode()}

    def _counted(self, answer: pq.abc.PGresult) -> dict[str, list[int]]:
        lines = (answer.get_value(0, 0) or b"").decode().replace('"', "").split(";")
        split = [line.rsplit(" ", len(self.counters)) for line in lines if line]
        return {name: [int(number) for number in numbers] for name, *numbers in split}

    def close(self) -> None:
        self._connection.finish()


def without_pages(touched: object, counters: Sequence[str]) -> dict[str, list[int]]:
    assert isinstance(touched, dict)
    rows = {
        name: [count for label, count in zip(counters, its, strict=True) if "blocks" not in label]
        for name, its in touched.items()
    }
    return {name: its for name, its in rows.items() if any(its)}


def grown(before: dict[str, list[int]], after: dict[str, list[int]]) -> dict[str, list[int]]:
    """By how much each counter of each relation has grown, where one has."""
    found = {}
    for name, numbers in after.items():
        more = [new - old for new, old in zip(numbers, before.get(name, [0] * len(numbers)), strict=True)]
        if any(more):
            found[name] = more
    return found


def answered(connection: pq.abc.PGconn, statement: str, rows: bytes) -> tuple[object, ...]:
    """The rows of a statement, or all fields of its error."""
    answer = connection.exec_(statement.encode())
    if answer.status == pq.ExecStatus.COPY_IN:
        connection.put_copy_data(rows)
        connection.put_copy_end()
        answer = connection.get_result() or answer
        while connection.get_result():
            pass
    elif answer.status == pq.ExecStatus.COPY_OUT:
        return ("copied", *copied(connection))
    if answer.status == pq.ExecStatus.FATAL_ERROR:
        return ("error", fields(answer))
    width = range(answer.nfields)
    found = [tuple(plain(answer.get_value(row, column)) for column in width) for row in range(answer.ntuples)]
    return (answer.command_status, *found)


def copied(connection: pq.abc.PGconn) -> Iterator[str | None]:
    length, chunk = connection.get_copy_data(0)
    while length > 0:
        yield plain(bytes(chunk))
        length, chunk = connection.get_copy_data(0)
    while connection.get_result():
        pass


def fields(answer: pq.abc.PGresult) -> tuple[tuple[str, str | None], ...]:
    """Every field of an error or a notice: severity, SQLSTATE, message, detail, hint, context and so on."""
    return tuple((field.name, plain(text)) for field in FIELDS if (text := answer.error_field(field)) is not None)


def plain(value: bytes | None) -> str | None:
    """The text without what differs from one moment to the next. Long texts are plans, which hold nothing of that."""
    if value is None:
        return None
    text = value.decode(errors="replace")
    return text if len(text) > LONG else NOISE.sub(instead, text)


def instead(found: re.Match[str]) -> str:
    """Times of A's and B's rows are of 2021 and stay."""
    is_old = found.lastgroup == "time" and found.group() < "2025"
    return found.group() if is_old else f"<{found.lastgroup}>"


def looks(seat: Seat, statements: Sequence[Statement]) -> list[Parts]:
    return [seat.look(one) for one in statements]
