"""One INSERT of 60,000 rows before another team's row: one look finds the other row, whatever holds the 60,000."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
import pytest_asyncio

from dispatcher.admission.heads import WIDEST_WINDOW, KnownRows
from dispatcher.admission.scan import Scan, ScanResult
from dispatcher.admission.snapshot import Load
from dispatcher.model.launches import Offer
from dispatcher.model.tasks import IndexedRow, Kind
from dispatcher.model.verdicts import Hold, HoldReason
from tests.integration.looking import looking
from tests.integration.queues import declare
from tests.rig.builders import a_queue, a_snapshot
from tests.rig.postgres import Database, PostgresServer

ROWS = 60_000
WANTED = 100
BAD = Hold(HoldReason.POLICY_DENIED, "too much")
FLOODS = {
    "capped": """
INSERT INTO dispatch.tasks (queue, priority) SELECT 'capped', 0 FROM generate_series(1, 60000)
""",
    "capped-due": """
INSERT INTO dispatch.tasks (queue, priority, run_at)
SELECT 'capped-due', 0, '2000-01-01 UTC' FROM generate_series(1, 60000)
""",
    "denied": """
INSERT INTO dispatch.tasks (queue, priority, template) SELECT 'denied', 0, 'denied' FROM generate_series(1, 60000)
""",
    "denied-kinds": """
INSERT INTO dispatch.tasks (queue, priority, template, timeout_seconds)
SELECT 'denied-kinds', 0, 'denied', n FROM generate_series(1, 60000) AS n
""",
}
UNJUDGED = "INSERT INTO dispatch_private.templates (name) VALUES ('default'), ('denied')"
"""Known templates that refuse no row: most rows are judged at a glance, which takes a third of the time."""


@dataclass
class Templates:
    """Every template accepts every row, except `denied`."""

    known: dict[bytes, Offer | Hold] = field(default_factory=dict)

    def offer(self, kind: Kind) -> Offer | Hold:
        return self.known.setdefault(kind.digest, BAD if kind.template == "denied" else Offer("app:1", "s", "default"))

    def known_offer(self, digest: bytes) -> Offer | Hold | None:
        return self.known.get(digest)

    def refused(self, _row: IndexedRow) -> Hold | None:
        return None


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def flooded(postgres: PostgresServer) -> AsyncIterator[Database]:
    """Each queue has 60,000 rows of one team, and behind them one row of the other team."""
    assert ROWS > WIDEST_WINDOW
    database = await postgres.create_database()
    attacker = await database.session("team_a")
    await (await database.session("admin")).execute(UNJUDGED)
    for name, flood in FLOODS.items():
        await declare(database, name, max_jobs_per_submitter=1)
        assert await attacker.execute(flood, timeout=120) == f"INSERT 0 {ROWS}"
        due = {"run_at": datetime(2000, 1, 2, tzinfo=UTC)} if "due" in name else {}
        await database.insert_task("team_b", queue=name, priority=1000, **due)
    yield database
    await database.drop()


async def one_look(database: Database, queue: str) -> tuple[ScanResult, float]:
    """The finds of a fresh dispatcher's first look, and its seconds; team_a is at its cap."""
    load = Load(total=1, by_queue={queue: 1}, by_submitter={(queue, "team_a"): 1} if "capped" in queue else {})
    snapshot = a_snapshot(a_queue(queue, max_jobs_per_submitter=1), load=load)
    async with looking(database) as rows:
        began = time.monotonic()
        found = await Scan(WANTED).run(rows, Templates(), snapshot, KnownRows())
        return found, time.monotonic() - began


@pytest.mark.slow
@pytest.mark.parametrize("queue", FLOODS)
async def test_one_look_finds_the_row_behind_a_flood(flooded: Database, queue: str) -> None:
    admin = await flooded.session("admin")
    query = "SELECT id FROM dispatch.tasks WHERE queue = $1 AND submitted_by = 'team_b'"
    (other,) = [row["id"] for row in await admin.fetch(query, queue)]
    found, seconds = await one_look(flooded, queue)
    assert list(found.ids) == [other]
    assert seconds < 5, "a statement may last no longer"
