"""The plan by which Postgres runs a query, and the pages that it touches."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.rig.postgres import Connection
from tests.rig.statements import of_reader


@dataclass(frozen=True)
class Plan:
    """The output of EXPLAIN (ANALYZE, BUFFERS) for one run."""

    root: dict[str, Any]

    def nodes(self, node: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        node = node or self.root
        yield node
        for child in node.get("Plans", ()):
            yield from self.nodes(child)

    @property
    def indexes(self) -> set[str]:
        return {node["Index Name"] for node in self.nodes() if "Index Name" in node}

    @property
    def scanned(self) -> set[str]:
        """Tables that are read completely."""
        return {node["Relation Name"] for node in self.nodes() if node["Node Type"] == "Seq Scan"}

    @property
    def kinds_of_scan(self) -> set[str]:
        """The ways in which the table of tasks is read."""
        return {node["Node Type"] for node in self.nodes() if node.get("Relation Name") == "tasks"}

    @property
    def rows(self) -> int:
        return int(self.root["Actual Rows"])

    @property
    def pages(self) -> int:
        return int(self.root["Shared Hit Blocks"] + self.root["Shared Read Blocks"])

    @property
    def dropped(self) -> int:
        """Rows that were read and then dropped by a filter."""
        return int(sum(node.get("Rows Removed by Filter", 0) for node in self.nodes()))


async def explain(reader: Connection, name: str, *parameters: object) -> Plan:
    """The plan that the session keeps for a query of the dispatcher: one plan for all parameters."""
    written = ", ".join(
        [await reader.fetchval("SELECT quote_literal($1::text)", as_text(one)) or "NULL" for one in parameters]
    )
    await reader.execute(f"PREPARE looked_at AS {of_reader(name)}")
    text = await reader.fetchval(
        "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE looked_at" + f"({written})" * bool(written)
    )
    await reader.execute("DEALLOCATE looked_at")
    (told,) = json.loads(text)
    return Plan(told["Plan"])


def as_text(value: object) -> str | None:
    """The value as Postgres reads it."""
    if value is None:
        return None
    return "{" + ",".join(map(str, value)) + "}" if isinstance(value, list) else str(value)
