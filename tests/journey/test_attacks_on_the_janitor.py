"""A submitter locks its own rows in an open transaction.

The janitor still ends the rows of others in its first round. It ends the locked rows after the transaction.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dispatcher.janitor.janitor import Janitor
from dispatcher.janitor.rows import CLOSED_AT_ONCE
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import log_in
from dispatcher.settings.loading import load
from tests.controlplane.sides import EMBEDDED_SIDE
from tests.rig.dispatching import Place
from tests.rig.postgres import Connection

pytestmark = EMBEDDED_SIDE
OTHERS = 20
ROUND_SECONDS = 6
"""Half the time of a round that waits a second for each of 100 locks, eight at a time. An idle machine needs one."""
INSERTED = "INSERT INTO dispatch.tasks (max_failures) SELECT 1 FROM generate_series(1, $1)"
DEAD_RUNS = """
UPDATE dispatch_private.tasks SET status = 'processing', launch = 1, job_uid = 'gone-' || id,
       run_digest = sha256(uuid_send(gen_random_uuid())),
       started_at = now() - interval '1 h', heartbeat_at = now() - interval '10 min',
       -- a cancel was asked for every second row: the janitor ends those rows by another call
       cancel_requested_at = CASE WHEN id % 2 = 0 THEN now() - interval '10 min' END
WHERE status = 'waiting'
"""
CANCELS = "SELECT dispatch.task_cancel(id) FROM dispatch.tasks WHERE submitted_by = session_user"
STATUSES = "SELECT status FROM dispatch.tasks WHERE submitted_by = $1"


@asynccontextmanager
async def local_janitor(place: Place) -> AsyncIterator[Janitor]:
    """A janitor in this process. The test calls its rounds one by one."""
    kubeconfig = place.control_plane.kubeconfig(
        place.folder / "janitor", token=place.control_plane.admin_token, namespace=place.namespace
    )
    environment = place.environment(DATABASE_URL=place.database.url("janitor"), KUBECONFIG=kubeconfig, PARK_SECONDS=1)
    settings = load(environment, lambda path: Path(path).read_text(encoding="utf-8")).settings
    client = KubeClient(await log_in(settings.kube))
    janitor = Janitor(settings, client)
    try:
        yield janitor
    finally:
        await janitor.close()
        await client.close()


async def dead_runs(place: Place, login: str, count: int) -> None:
    """Rows whose containers and Jobs are gone."""
    await (await place.database.session(login)).execute(INSERTED, count)
    await (await place.database.session("admin")).execute(DEAD_RUNS)


async def statuses(place: Place, login: str) -> Counter[str]:
    admin = await place.database.session("admin")
    return Counter(row["status"] for row in await admin.fetch(STATUSES, login))


@asynccontextmanager
async def locked_rows(attacker: Connection) -> AsyncIterator[None]:
    """Calls `task_cancel` on all rows of the attacker in an open transaction, and rolls it back at the end."""
    transaction = attacker.transaction()
    await transaction.start()
    await attacker.execute(CANCELS)
    yield
    await transaction.rollback()


async def timed_round(janitor: Janitor) -> float:
    began = time.monotonic()
    await janitor.run_once()
    return time.monotonic() - began


ENDED = Counter({"failed": OTHERS // 2, "cancelled": OTHERS // 2})


@pytest.mark.slow
@pytest.mark.parametrize("count", [100, 250])
async def test_rows_locked_by_a_submitter_delay_no_other_rows(place: Place, count: int) -> None:
    assert 100 < CLOSED_AT_ONCE < 250  # 250 locked rows alone fill a round
    await dead_runs(place, "team_a", count)
    await dead_runs(place, "team_b", OTHERS)
    attacker = await place.database.connect("team_a")
    async with local_janitor(place) as janitor:
        async with locked_rows(attacker):
            seconds = await timed_round(janitor)
            assert await statuses(place, "team_b") == ENDED
            assert await statuses(place, "team_a") == {"processing": count}
            assert seconds < ROUND_SECONDS
        for _ in range(2):
            await janitor.run_once()
    assert await statuses(place, "team_a") == {"failed": count // 2, "cancelled": count // 2}


async def test_rows_found_locked_come_last_in_the_next_round(place: Place) -> None:
    await dead_runs(place, "team_a", 250)
    attacker = await place.database.connect("team_a")
    async with local_janitor(place) as janitor, locked_rows(attacker):
        await janitor.run_once()
        await janitor.run_once()
        await dead_runs(place, "team_b", OTHERS)
        seconds = await timed_round(janitor)
        assert await statuses(place, "team_b") == ENDED
        assert seconds < ROUND_SECONDS


async def test_rows_that_their_submitter_ends_stay_as_they_ended(place: Place) -> None:
    await dead_runs(place, "team_a", 100)
    attacker = await place.database.connect("team_a")
    async with local_janitor(place) as janitor:
        async with attacker.transaction():
            await attacker.execute(CANCELS)
            await janitor.run_once()
        await janitor.run_once()
    assert await statuses(place, "team_a") == {"cancelled": 100}
