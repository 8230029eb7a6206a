"""A server is killed in a burst of rows and comes back; a new version takes over while rows run: nothing is lost."""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faults.history import violations
from tests.faults.history_reading import read_history, watched
from tests.faults.history_records import Bounds
from tests.rig.dispatching import ROOT, Dispatcher, Place
from tests.rig.postgres import PostgresServer
from tests.rig.steps import all_done, has_jobs, succeeded

ROWS = 120
CAP = 40
WRITES_AT_ONCE = 16
SETTINGS = {"MAX_JOBS": CAP, "TOMBSTONE_SECONDS": 1}
INSERT = "INSERT INTO dispatch.tasks (max_failures) SELECT 1 + n % 3 FROM generate_series(1, $1::int) AS n"


async def insert(place: Place, count: int = ROWS) -> None:
    await (await place.database.session("team_a")).execute(INSERT, count)


async def all_gone(place: Place, dispatcher: Dispatcher) -> None:
    try:
        await all_done(place, 120, dispatcher.check)
    except TimeoutError as late:
        late.add_note(f"left: {await left(place)}"[:8000])
        late.add_note(f"the dispatcher said: {dispatcher.log[-8000:]}")
        raise


async def left(place: Place) -> list[object]:
    """Rows that have not succeeded, and all Jobs and Pods; for the message of a timeout."""
    pods = (await place.control_plane.admin("GET", f"/api/v1/namespaces/{place.namespace}/pods"))["items"]
    rows: list[object] = [*await place.rows("status <> 'succeeded'")]
    objects: list[Any] = [*await place.jobs(), *pods]
    return rows + [(one["metadata"]["name"], one["spec"].get("nodeName"), one["status"]) for one in objects]


async def made_durable(place: Place) -> None:
    """Switches `synchronous_commit` on: by default the tests' Postgres may lose answered commits in a crash."""
    admin = await place.database.session("admin")
    await admin.execute(f'ALTER DATABASE "{place.database.name}" SET synchronous_commit = on')


def unseen(rows: int, deeds: dict[str, int]) -> int:
    """Maximum of successful writes that the audit log may not show as successful.

    A killed API server loses lines of its log. A killed etcd fails writes that it has stored.
    """
    return rows // 2 if "kube-apiserver" in deeds else WRITES_AT_ONCE if "etcd" in deeds else 0


@asynccontextmanager
async def judged(place: Place, rows: int, deeds: dict[str, int]) -> AsyncIterator[None]:
    """A run whose history is checked at the end: one Job and one start per row, and never more Jobs than the cap."""
    async with watched(place.control_plane, place.namespace) as sights, place.playing() as player:
        yield
    assert player.faults == []
    history = await read_history(place.control_plane, place.namespace, place.database, player, sights)
    least = {"rows": rows, "starts": rows, "creates": rows - unseen(rows, deeds), "deletes": rows - unseen(rows, deeds)}
    assert violations(history, Bounds(least, deeds, cap=CAP)) == []
    assert {(row.status, row.attempt, row.launch) for row in history.rows} == {("succeeded", 1, 1)}


async def killed(place: Place, postgres: PostgresServer, victim: str) -> Callable[[], Awaitable[None]]:
    """Kills a server, and returns the function that starts it again."""
    if victim == "postgres":
        await postgres.stop(immediately=True)
        return postgres.start
    await place.control_plane.kill(victim)

    async def revive() -> None:
        await place.control_plane.revive(victim)

    return revive


@pytest.mark.promise
@pytest.mark.fault(1, 5, 20, 23)
@pytest.mark.parametrize("victim", ["kube-apiserver", "etcd", "postgres"])
async def test_server_killed_in_a_burst_of_rows_costs_only_time(
    place: Place, postgres: PostgresServer, victim: str
) -> None:
    await made_durable(place)
    async with judged(place, ROWS, {victim: 1}), Dispatcher(place, **SETTINGS) as dispatcher:
        await dispatcher.ready()
        await insert(place)
        await has_jobs(place, dispatcher, 10)
        revive = await killed(place, postgres, victim)
        await dispatcher.unready("database" if victim == "postgres" else "leader")
        await revive()
        await all_gone(place, dispatcher)


def another_version(place: Place, folder: Path) -> Dispatcher:
    """A dispatcher from a copy of the code with another version, as an earlier release."""
    if not folder.exists():
        shutil.copytree(ROOT / "dispatcher", folder / "dispatcher", ignore=shutil.ignore_patterns("__pycache__"))
        init = folder / "dispatcher" / "__init__.py"
        text = init.read_text()
        assert '__version__ = "' in text
        init.write_text(text.replace('__version__ = "', '__version__ = "0.0.0+earlier.'))
    made = Dispatcher(place, **SETTINGS)
    made.folder = folder
    return made


async def hand_over(place: Place, old: Dispatcher, new: Dispatcher) -> float:
    """Starts the new dispatcher, waits until it is ready, and stops the old one, as a rolling Deployment does.

    Returns the number of Jobs that the old one created.
    """
    await new.start()
    await new.ready()
    made = await old.metric("dispatcher_job_creates_total")
    assert await old.stop() == 0
    return made


@pytest.mark.slow
@pytest.mark.fault(34)
async def test_rollout_and_rollback_during_runs_make_nothing_twice(place: Place, tmp_path: Path) -> None:
    folder, rows = tmp_path / "earlier", 3 * ROWS
    old, new, back = another_version(place, folder), Dispatcher(place, **SETTINGS), another_version(place, folder)
    async with judged(place, rows, {"handovers": 2}):
        await old.start()
        await old.ready()
        await insert(place)
        await has_jobs(place, old, 10)
        place.template("default", row_may_set="env")  # a changed template does not affect running Jobs
        assert await hand_over(place, old, new) >= 10
        await insert(place)
        await succeeded(place, new, ROWS + 10, 60)
        assert await hand_over(place, new, back) >= 10
        await insert(place)
        await all_gone(place, back)
        assert await back.metric("dispatcher_job_creates_total") >= 10
        assert await back.stop() == 0
