"""Calls of every function that a login may execute, and INSERTs, with ids, queues and keys of another team's rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from tests.integration.wall_seats import Statement
from tests.rig.postgres import Database, Record

FUNCTIONS: Final = """
SELECT n.nspname AS schema, p.proname AS name, has_function_privilege($1, p.oid, 'EXECUTE') AS may,
       ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY AS u (t, o) ORDER BY o) AS types,
       p.proargnames[1:p.pronargs] AS names
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE n.nspname IN ('dispatch', 'dispatch_private') AND p.prorettype <> 'trigger'::regtype AND p.prokind = 'f'
ORDER BY 1, 2
"""
OWN, MISSING = 1, 999999
KEYS: Final = """
SELECT encode(int8send((extract(epoch FROM created_at) * 1000000)::bigint), 'hex') || '0123456789abcdef'
FROM dispatch_private.tasks WHERE id = $1
"""
MOST_CALLS: Final = 40
BY_TYPE: Final[dict[str, Sequence[str | None]]] = {
    "bigint": [str(MISSING), str(OWN), "0", "-1", None, str(2**63 - 1), str(-(2**63))],
    "integer": ["1", "0", "-1", None, str(2**31 - 1), str(-(2**31))],
    "uuid": ["0" * 32, None, "f" * 32],
    "real": ["0.5", None, "NaN"],
    "interval": ["1 s", None],
    "timestamp with time zone": ["2021-01-02 UTC", "-infinity", "infinity", None],
    "jsonb": ["{}", None],
    "text": ["x", None, ""],
}


@dataclass(frozen=True)
class Guesses:
    """What the login guesses of A's rows. Each list has values of every database."""

    ids: Sequence[int]
    queues: Sequence[str]
    batches: Sequence[str]
    words: Sequence[str]
    keys: Sequence[str]

    def of(self, name: str, kind: str) -> list[str | None]:
        """Values for a parameter."""
        known: dict[str, Sequence[str]] = {"queue": self.queues, "batch": self.batches, "reason": self.words[:1]}
        if kind == "bigint":
            return [*map(str, self.ids), *BY_TYPE[kind]]
        if kind == "uuid":
            return [*self.keys, *BY_TYPE[kind]]
        if kind == "jsonb":
            return [one for _, one in self.objects()]
        if name == "outcome":
            return ["succeeded", "retry", "failed", "odd", None]
        return [*known.get(name, ()), *BY_TYPE[kind]]

    def objects(self) -> Iterator[tuple[frozenset[str], str]]:
        """Arrays for submit."""
        yield frozenset(), '[{"queue": "default"}, {"queue": "lowcost"}]'
        for word, batch in zip(self.words, self.batches, strict=False):
            yield frozenset(), f'[{{"dedupe_key": "{word}", "batch": "{batch}"}}]'
        for queue in self.queues:
            told = frozenset() if queue in {"default", "lowcost"} else frozenset({"name of a queue"})
            yield told, f'[{{"queue": "{queue}", "labels": {{"team": "{self.words[0]}"}}}}]'
        yield frozenset(), '[{"id": 1001}]'
        yield frozenset(), '{"queue": "default"}'
        yield frozenset(), "[1]"


async def guesses(*databases: Database) -> Guesses:
    """Ids of rows in several states, and the names that they use."""
    found = []
    for database in databases:
        admin = await database.session("admin")
        query = """
            SELECT DISTINCT ON (queue = 'default', status) id, queue, batch, dedupe_key FROM dispatch_private.tasks
            WHERE submitted_by = 'team_a' AND queue NOT IN ('lowcost', 'jointly') ORDER BY queue = 'default', status, id
        """
        rows = await admin.fetch(query)
        keys = [await admin.fetchval(KEYS, row["id"]) for row in rows[:3]]
        found.append((rows, keys))
    rows = [row for its, _ in found for row in its]
    queues = dict.fromkeys(["default", *(row["queue"] for row in rows), "lowcost"])
    return Guesses(
        list(dict.fromkeys(row["id"] for row in rows)),
        list(queues),
        list(dict.fromkeys(row["batch"] for row in rows))[:6],
        [row["dedupe_key"] for row in rows if row["queue"] == "default"],
        list(dict.fromkeys(key for _, its in found for key in its)),
    )


async def calls(database: Database, login: str, given: Guesses) -> list[Statement]:
    """Calls of all functions. What the login may not execute is called once: its refusal must tell nothing, too."""
    found = await (await database.session("admin")).fetch(FUNCTIONS, login)
    made: list[Statement] = []
    for row in found:
        function, kind = f"{row['schema']}.{row['name']}", f"call {row['name']}"
        may = row["may"] and row["schema"] == "dispatch"
        for values in combined([given.of(*one) for one in parameters(row)]) if may else [[None] * len(row["types"])]:
            written = ", ".join(literal(*both) for both in zip(values, row["types"], strict=True))
            told = {"name of a queue"} if kind == "call submit" and names_queue(values[0], given) else set()
            made.append(Statement(f"SELECT * FROM {function}({written})", kind, frozenset(told)))
            if may and len(made) % 4 == 0:
                made.append(Statement(f"SELECT {function}({written})", kind, frozenset(told)))
    return made


def parameters(row: Record) -> Iterator[tuple[str, str]]:
    """Names and types."""
    yield from zip(row["names"] or [""] * len(row["types"]), row["types"], strict=True)


def reading(statements: Sequence[Statement]) -> list[Statement]:
    """Those calls that write nothing: they are not about a row of one's own."""
    return [one for one in statements if one.kind != "call submit" and f"'{OWN}'::bigint" not in one.sql]


def names_queue(objects: str | None, given: Guesses) -> bool:
    return any(told and one == objects for told, one in given.objects())


def combined(choices: list[list[str | None]]) -> Iterator[tuple[str | None, ...]]:
    """All values of the first two parameters with each other, then each value of the others."""
    first = [one[:1] for one in choices[2:]]
    several = list(product(*choices[:2], *first))
    yield from several[:: max(1, len(several) // MOST_CALLS)]
    for place, values in enumerate(choices[2:], 2):
        for value in values[1:]:
            yield tuple(value if number == place else one[0] for number, one in enumerate(choices))


def literal(value: str | None, kind: str) -> str:
    return f"NULL::{kind}" if value is None else "'" + value.replace("'", "''") + f"'::{kind}"


INSERTS: Final = (
    "DEFAULT VALUES RETURNING *",
    "(queue) VALUES ('lowcost') RETURNING *",
    '(priority, payload, labels) VALUES (5, \'{{"a": 1}}\', \'{{"team": "{word}"}}\') RETURNING id, status, queue',
    "(batch, cache_key) SELECT '{batch}', '{word}' FROM generate_series(1, 3) RETURNING id, batch",
    "(dedupe_key) VALUES ('{word}') RETURNING *",
    "(dedupe_key) VALUES ('{word}'), ('{word}') RETURNING id",
    "(queue, dedupe_key) VALUES ('lowcost', '{word}') ON CONFLICT DO NOTHING RETURNING *",
    "(dedupe_key) VALUES ('{word}') ON CONFLICT (queue, dedupe_key) DO NOTHING",
    "(dedupe_key) VALUES ('{word}') ON CONFLICT (dedupe_key) DO UPDATE SET note = 'x'",
    "(id) VALUES ({id})",
    "(id, queue) OVERRIDING SYSTEM VALUE VALUES ({id}, 'default')",
    "(submitted_by) VALUES ('team_a')",
    "(status, attempt) VALUES ('succeeded', 2)",
    "(id, queue, priority) VALUES (DEFAULT, DEFAULT, DEFAULT) RETURNING id",
    "(run_at, timeout_seconds) VALUES ('2099-01-01', 5) RETURNING run_at",
    "(template) VALUES ('odd')",
    '(env) VALUES (\'{{"TASK_ID": "{id}"}}\')',
    "SELECT * FROM dispatch.tasks WHERE id = {id}",
)
REFUSED_QUEUES: Final = (
    "(queue) VALUES ('{queue}')",
    "(queue) VALUES ('{queue}x')",
    "(queue, dedupe_key) VALUES ('{queue}', '{word}')",
)


def kind_of_insert(shape: str) -> str:
    """`lowcost` has a bound of waiting rows."""
    kinds = {"lowcost": "insert into a queue with a bound", "dedupe_key": "insert with a key", "RETURNING": "insert"}
    return next((kind for word, kind in kinds.items() if word in shape), "insert refused")


def inserts(given: Guesses) -> Iterator[Statement]:
    """INSERTs of all forms."""
    batch = given.batches[0]
    for word, one in zip(given.words[::2], given.ids, strict=False):
        for shape in INSERTS:
            text = shape.format(word=word, id=one, batch=batch)
            yield Statement(f"INSERT INTO dispatch.tasks {text}", kind_of_insert(shape))
    for queue in given.queues:
        for shape in REFUSED_QUEUES:
            exact = "x')" not in shape and queue not in {"default", "lowcost"}
            text = f"INSERT INTO dispatch.tasks {shape.format(queue=queue, word=given.words[0])}"
            yield Statement(text, "insert", frozenset({"name of a queue"} if exact else ()))
    copied = f"default\t{given.words[0]}\nlowcost\t\\N\n".encode()
    yield Statement("COPY dispatch.tasks (queue, dedupe_key) FROM STDIN", "copy", rows=copied)
    yield Statement("COPY dispatch.tasks (id) FROM STDIN", "copy", rows=f"{given.ids[0]}\n".encode())
    yield Statement(
        f"WITH new AS (INSERT INTO dispatch.tasks (dedupe_key) VALUES ('{given.words[0]}') RETURNING id) "
        "SELECT n.id - max(t.id) FROM new AS n, dispatch.tasks AS t GROUP BY n.id",
        "insert",
    )
