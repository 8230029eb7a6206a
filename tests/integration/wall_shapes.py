"""Statements over every view and column that a login may read, with constants of another team's rows.

Views and columns are found in the catalog, so that a new one is tested without a change here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.integration.wall_allowed import TOLD
from tests.integration.wall_seats import Statement
from tests.rig.postgres import Connection, Database

COLUMNS: Final = """
SELECT n.nspname AS schema, c.relname AS view, a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE n.nspname IN ('dispatch', 'dispatch_private') AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND a.attnum > 0
  AND NOT a.attisdropped AND has_column_privilege($1, c.oid, a.attnum, 'SELECT') ORDER BY c.oid, a.attnum
"""
VALUES: Final = """
SELECT * FROM dispatch_private.tasks AS t
LEFT JOIN dispatch_private.task_launches AS l ON l.task_id = t.id
LEFT JOIN dispatch_private.task_reasons AS r ON r.task_id = t.id
LEFT JOIN dispatch_private.queues AS q ON q.name = t.queue
LEFT JOIN dispatch_private.queue_reasons AS s ON s.queue = t.queue
WHERE t.submitted_by = 'team_a' AND t.queue NOT IN ('default', 'lowcost', 'jointly') AND t.status = $1
ORDER BY t.id LIMIT 1
"""
FALLBACK: Final = {
    "bigint": "1001", "integer": "1", "smallint": "1", "text": "x", "name": "x", "jsonb": "{}", "text[]": "{a}",
    "boolean": "true", "real": "0.5", "bytea": "\\x00", "timestamp with time zone": "2021-01-01 00:07:00+00",
    "uuid": "0" * 32,
}  # fmt: skip

# {v} the view, {c} a column, {k} and {m} two constants of A's rows, {plain} columns that may not differ.
FOR_EACH_COLUMN: Final = (
    "SELECT {plain} FROM {v} WHERE {c} = {k}",
    "SELECT {plain} FROM {v} WHERE {c} = {m}",
    "SELECT count(*) FROM {v} WHERE {c} < {k}",
    "SELECT {c} FROM {v} WHERE {c} >= {k} AND {c}::text OPERATOR(team_b.<=#=>) {m}::text",
    "SELECT {c} FROM {v} ORDER BY {c} LIMIT 2",
)
IN_TURNS: Final = (
    "SELECT count({c}) FROM {v} WHERE {c} IN ({k}, {m})",
    "SELECT count(*) FROM {v} WHERE {c}::text LIKE left({k}::text, 5) || '%'",
    "SELECT count(*) FROM {v} WHERE {c} IS NULL OR {c} IS DISTINCT FROM {k}",
    "SELECT {c} FROM {v} ORDER BY {c} DESC NULLS LAST OFFSET 1 FETCH FIRST 1 ROW WITH TIES",
    "SELECT count(*) FROM {v} AS a JOIN {v} AS b USING ({c}) WHERE a.{c} = {k}",
    "SELECT {c}, count(*) FROM {v} GROUP BY {c} HAVING {c} <> {k} ORDER BY {c}",
    "SELECT count(*) FROM (VALUES ({k}), ({m})) AS x (y) WHERE NOT EXISTS (SELECT FROM {v} AS t WHERE t.{c} = x.y)",
    "SELECT count(*) FROM (VALUES ({k}), ({m})) AS x (y) WHERE x.y IN (SELECT t.{c} FROM {v} AS t)",
    "SELECT {c} FROM {v} WHERE {c} = {k} UNION SELECT {m} ORDER BY 1",
    "SELECT t.* FROM (VALUES ({k}), ({m})) AS x (y), LATERAL (SELECT {c} FROM {v} WHERE {c} > x.y LIMIT 1) AS t",
    "SELECT count(*) FROM {v} AS t WHERE t::text OPERATOR(team_b.<=#=>) {k}::text OR t.{c}::text = {k}::text",
    "SELECT count(*) FILTER (WHERE {c} = {k}), CASE WHEN count({c}) > 0 THEN max({c}::text) END FROM {v}",
    "WITH t AS NOT MATERIALIZED (SELECT {c} AS y FROM {v}) SELECT y, rank() OVER (ORDER BY y) FROM t WHERE y <= {k}",
    "SELECT count(*) FROM {v} AS a FULL JOIN (SELECT {k} AS y) AS x ON x.y = a.{c}",
    "SELECT {c} FROM {v} WHERE ({c}, {c}) >= ({k}, {m}) EXCEPT SELECT {m} ORDER BY 1",
    "SELECT {c} FROM {v} WHERE {c} = ANY (ARRAY(VALUES ({k}), ({m}))) INTERSECT ALL SELECT {c} FROM {v} ORDER BY 1",
    "WITH RECURSIVE t (y) AS (SELECT {k} UNION ALL (SELECT {c} FROM {v}, t WHERE {c} > y ORDER BY 1 LIMIT 1)) TABLE t",
    "SELECT count(DISTINCT {c}) FROM {v} WHERE NOT {c} < {k}",
)
FOR_EACH_VIEW: Final = (
    "SELECT {plain} FROM {v}",
    "TABLE {v}",
    "SELECT count(*) FROM {v}",
    "SELECT FROM {v} FOR UPDATE",
    "SELECT FROM {v} FOR KEY SHARE SKIP LOCKED",
    "SELECT ctid, xmin, tableoid FROM {v}",
    "SELECT * FROM {v} TABLESAMPLE system (100)",
    "COPY {v} TO STDOUT",
    "COPY (SELECT {plain} FROM {v}) TO STDOUT",
    "UPDATE {v} SET {c} = {c} WHERE {c} = {k}",
    "DELETE FROM {v} WHERE {c} = {k}",
    "TRUNCATE {v}",
    "LOCK TABLE {v} IN ACCESS SHARE MODE NOWAIT",
    "SELECT query_to_xml('SELECT * FROM {v} WHERE {c} = ' || quote_literal({k}::text), true, true, '')",
)


@dataclass(frozen=True)
class Column:
    view: str
    name: str
    type: str


@dataclass(frozen=True)
class Constants:
    """Values of A's rows by the name of a column: one of each database."""

    by_name: dict[str, list[str]]

    def of(self, column: Column) -> list[str]:
        found = self.by_name.get("id" if column.name == "task_id" else column.name, [])
        texts = [*found, *[FALLBACK[column.type]] * 2][:2]
        return ["'" + text.replace("'", "''") + f"'::{column.type}" for text in texts]


async def columns(database: Database, login: str) -> list[Column]:
    """Every column that the login may read."""
    found = await (await database.session("admin")).fetch(COLUMNS, login)
    return [Column(f"{row['schema']}.{row['view']}", row["name"], row["type"]) for row in found]


async def constants(*databases: Database) -> Constants:
    by_name: dict[str, list[str]] = {}
    for number, database in enumerate(databases):
        admin = await database.session("admin")
        for name, text in (await values(admin, ["failed", "processing"][number % 2])).items():
            by_name.setdefault(name, []).append(text)
    return Constants(by_name)


async def values(admin: Connection, status: str) -> dict[str, str]:
    """Columns of one of A's rows, as texts."""
    names = [attribute.name for attribute in (await admin.prepare(VALUES)).get_attributes()]
    aliases = ", ".join(f"c{number}" for number in range(len(names)))
    texts = ", ".join(f"c{number}::text" for number in range(len(names)))
    row = await admin.fetchrow(f"SELECT {texts} FROM ({VALUES}) AS v ({aliases})", status)
    assert row is not None
    return {name: text for name, text in zip(reversed(names), reversed(row), strict=True) if text is not None}


def over_views(found: Sequence[Column], given: Constants, *, every: bool) -> Iterator[Statement]:
    """Shapes for each view and each column. every: all shapes for all columns; otherwise some of them in turns."""
    views: dict[str, list[Column]] = {}
    for column in found:
        views.setdefault(column.view, []).append(column)
    for number, column in enumerate(found):
        turns = IN_TURNS if every else [IN_TURNS[number % len(IN_TURNS)]]
        for shape in (*FOR_EACH_COLUMN, *turns):
            yield written(shape, column, views[column.view], given)
    for its in views.values():
        for shape in FOR_EACH_VIEW:
            yield written(shape, its[0], its, given)


def written(shape: str, column: Column, its: Sequence[Column], given: Constants) -> Statement:
    view = column.view.partition(".")[2]
    first, second = given.of(column)
    untold = ", ".join(one.name for one in its if (view, one.name) not in TOLD)
    sql = shape.format(v=column.view, c=f'"{column.name}"', k=first, m=second, plain=untold, type=column.type)
    named = {column} if "{c}" in shape else set()
    if shape.startswith(("TABLE", "COPY {v}")) or "* FROM {v}" in shape or "t::text" in shape:
        named = set(its)
    tells = frozenset(TOLD[view, one.name] for one in named if (view, one.name) in TOLD)
    return Statement(sql, f"{column.view}.{column.name}", tells)
