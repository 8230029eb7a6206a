"""`kill -9` at any moment changes no outcome.

The gate kills four times, HYPOTHESIS_PROFILE=whole 12 times, nightly 30 times.
"""

import asyncio
import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import pytest

from tests.controlplane.waiting import moment, wait_for
from tests.faults.history import violations
from tests.faults.history_reading import Sight, read_history, watched
from tests.faults.history_records import Bounds
from tests.property.profiles import amount
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.steps import all_done, insert

KILLS = amount(gate=4, whole=4, nightly=30)
ROWS = 10 * KILLS
CAP = 24
RATE = 5
"""At most ten creates at once, so that the rows last for all kills."""


@pytest.mark.promise
@pytest.mark.fault(29)
async def test_kills_during_writes_change_no_outcome(place: Place) -> None:
    await insert(place, ROWS)
    kills = hits = 0
    async with watched(place.control_plane, place.namespace) as sights, place.playing() as player:
        while hits < KILLS:
            kills += 1
            hits += await kill_amid_writes(place, sights, random.Random(kills))
        async with Dispatcher(place, MAX_JOBS=CAP, TOMBSTONE_SECONDS=1) as dispatcher:
            await all_done(place, 90, dispatcher.check)
    assert not player.faults
    history = await read_history(place.control_plane, place.namespace, place.database, player, sights)
    rows = len(history.rows)
    # A request whose client was killed may be carried out and still be logged as failed.
    least = {"rows": ROWS, "starts": rows, "creates": rows // 2, "deletes": rows // 2}
    assert violations(history, Bounds(least, {"kills amid writes": hits}, cap=CAP)) == []
    assert {(row.status, row.attempt, row.launch) for row in history.rows} == {("succeeded", 1, 1)}
    assert len(made(sights)) == len(history.lives) == rows


def made(sights: Iterable[Sight]) -> set[str]:
    """UIDs of the Jobs that the API server has shown."""
    return {sight.uid for sight in sights if sight.uid}


async def kill_amid_writes(place: Place, sights: Sequence[Sight], chance: random.Random) -> bool:
    """Starts a dispatcher and kills it while the API server is frozen. True if a create was answered after the kill."""
    plane = place.control_plane
    if len(made(sights)) + 2 * RATE > len(await place.rows()):
        await insert(place, 2 * RATE)
    dispatcher = Dispatcher(place, MAX_JOBS=CAP, TOMBSTONE_SECONDS=0, KUBE_WRITES_PER_SECOND=RATE)
    before = len(made(sights))
    await dispatcher.start()
    async with asyncio.timeout(30):
        while len(made(sights)) == before:
            await moment(0.002)
    plane.pause()
    await moment(chance.uniform(0, 0.02))
    await dispatcher.kill()
    killed_at = datetime.now(UTC)
    plane.resume()
    await place.end_term()

    def late() -> bool:
        creates = plane.audit(verb="create", resource="jobs", namespace=place.namespace)
        return any(event.stage_at > killed_at for event in creates)

    try:
        return await wait_for(late, "a create answered after its sender's death", 2)
    except TimeoutError:
        return False
