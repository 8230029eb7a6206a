"""The summary of `dispatcher demo`, compared with its database."""

import json
import re
from collections import Counter
from collections.abc import Mapping

import asyncpg

COLUMNS = "SELECT id, queue, status, attempt, node_name, error, result FROM dispatch.tasks ORDER BY id"
"""Columns by name, because a submitter may not read all of them."""
SUMMARY = ("task", "queue", "status", "runs", "on", "what it shows")


async def rows_of(url: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url)
    try:
        found: list[asyncpg.Record] = await connection.fetch(COLUMNS)
        return found
    finally:
        await connection.close()


def table(said: str) -> list[Mapping[str, str]]:
    """The lines of the summary. It has one line per task if the terminal is wide enough."""
    lines = said.splitlines()
    (head,) = [number for number, line in enumerate(lines) if line.split()[:3] == ["task", "queue", "status"]]
    starts = [lines[head].index(name) for name in SUMMARY]
    ends = [*starts[1:], None]
    body = lines[head + 1 : lines.index("", head)]
    return [{n: line[a:b].strip() for n, a, b in zip(SUMMARY, starts, ends, strict=True)} for line in body]


def check_end(said: str, rows: list[asyncpg.Record]) -> None:
    """Compares the printed table with the database. Only a container that reports itself names its node."""
    told = table(said)
    assert [int(line["task"]) for line in told] == [row["id"] for row in rows]
    for line, row in zip(told, rows, strict=True):
        assert (line["queue"], line["status"], line["on"]) == (row["queue"], row["status"], row["node_name"] or "")
        has_run = row["node_name"] or row["status"] == "succeeded"
        assert int(line["runs"]) == (row["attempt"] if has_run else 0)
        result = json.loads(row["result"] or "{}")
        assert all(f"{key} {value}" in line["what it shows"] for key, value in result.items())
        assert (row["error"] or "") in line["what it shows"]
    states = Counter(row["status"] for row in rows)
    (counts,) = re.findall(rf"^{len(rows)} tasks in \d+ s: (.*)$", said, re.MULTILINE)
    assert {state: int(count) for count, state in re.findall(r"(\d+) (\w+)", counts)} == states
