"""Many INSERTs of a submitter in one call: each is a subtransaction, so a refused row stops no other.

The function belongs to the tests and runs with the rights of its caller. It only inserts, and notes the outcome. A
statement for each row would spend four fifths of the time on round trips.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.contract.hostile_rows import NOT_OF_TYPE, PLAIN, Hostile
from tests.rig.postgres import Connection, Database

COLUMNS = tuple(PLAIN)
INSERT_ROWS = """
CREATE SCHEMA attack;
GRANT USAGE ON SCHEMA attack TO PUBLIC;
CREATE FUNCTION attack.insert_rows(
    text[], text[], text[], text[], text[], text[], text[], text[], text[], text[], text[])
RETURNS TABLE (id bigint, state text, refused text, said text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    given record;
    hint  text;
    more  text;
BEGIN
    FOR given IN SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
        AS one (queue, priority, run_at, timeout, failures, template, env, spec, payload, cache_key, dedupe_key) LOOP
        id := NULL; state := NULL; refused := NULL; said := NULL;
        BEGIN
            INSERT INTO dispatch.tasks (queue, priority, run_at, timeout_seconds, max_failures, template, env, spec,
                                        payload, cache_key, dedupe_key)
            VALUES (given.queue, given.priority::smallint, given.run_at::timestamptz, given.timeout::integer,
                    given.failures::smallint, given.template, given.env::jsonb, given.spec::jsonb, given.payload::jsonb,
                    given.cache_key, given.dedupe_key)
            RETURNING tasks.id INTO id;
        EXCEPTION WHEN OTHERS OR ASSERT_FAILURE THEN
            GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, refused = COLUMN_NAME, said = MESSAGE_TEXT,
                                    hint = PG_EXCEPTION_HINT, more = PG_EXCEPTION_DETAIL;
            said := said || E'\\n' || hint || E'\\n' || more;
        END;
        RETURN NEXT;
    END LOOP;
END
$$;
"""
CALL = "SELECT * FROM attack.insert_rows($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one INSERT.

    * id: the row; None: refused.
    * state: the SQLSTATE; None: accepted.
    * column: the column that the refusal names.
    * said: message, hint and detail of the refusal, one per line.
    """

    id: int | None
    state: str | None
    column: str | None
    said: str | None

    @property
    def is_ours(self) -> bool:
        return self.state is not None and self.state.startswith("DI")


async def prepare(database: Database) -> None:
    """Makes the function, two queues besides `default`, and one that no team may insert into."""
    admin = await database.session("admin")
    await admin.execute(INSERT_ROWS)
    await admin.execute("INSERT INTO dispatch.queues (name) VALUES ('other'), ('team-x')")
    await admin.execute("INSERT INTO dispatch.queues (name, submit_role) VALUES ('locked', 'dispatch_operator')")


async def insert_all(submitter: Connection, rows: Sequence[Hostile]) -> list[Answer]:
    """The answers, in the order of the rows."""
    columns = [[row.columns[name] for row in rows] for name in COLUMNS]
    return [Answer(*record) for record in await submitter.fetch(CALL, *columns)]


def wrong_answers(rows: Iterable[Hostile], answers: Iterable[Answer], mark: str) -> list[tuple[Hostile, Answer]]:
    """Rows that were accepted or refused wrongly, or refused with an error that is not the project's own."""
    return [(row, answer) for row, answer in zip(rows, answers, strict=True) if not is_right(row, answer, mark)]


def is_right(row: Hostile, answer: Answer, mark: str) -> bool:
    if answer.state is None or not row.faults:
        return (answer.state is None) == (not row.faults)
    if not answer.is_ours:
        return any(
            (code == NOT_OF_TYPE and answer.state.startswith(code)) or code == answer.state for code, _ in row.faults
        )
    message, hint, detail = (answer.said or "").split("\n", 2)
    is_told = bool(message and hint) and not detail and mark not in f"{message}{hint}"
    return is_told and (answer.state, answer.column) in row.faults
