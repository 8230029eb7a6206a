"""Two replicas: the leader is killed again and again during its writes. They land late, and nothing runs twice."""

import random

import pytest

from tests.controlplane.waiting import wait_for
from tests.faults import http_verbs
from tests.faults.history import violations
from tests.faults.history_reading import read_history, watched
from tests.faults.history_records import Bounds
from tests.faults.http_proxy import KubeProxy, asks
from tests.faults.rules import Gate
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.steps import all_done, behind

ROWS = 250
KILLS = 6
IN_FLIGHT = 5
AT_A_TIME = 16
CAP = 24
INSERT = "INSERT INTO dispatch.tasks (max_failures) SELECT 1 + n % 3 FROM generate_series(1, $1::int) AS n"


class Pair:
    """Two replicas behind a proxy. A killed replica is started again at once, as a Deployment does.

    late: number of creates that landed after the death of their sender.
    """

    def __init__(self, place: Place, proxy: KubeProxy) -> None:
        settings = {"MAX_JOBS": CAP, "TOMBSTONE_SECONDS": 1, "LEASE_SECONDS": 2, "KUBE_WRITES_PER_SECOND": 40}
        self._proxy = proxy
        self._both = [behind(place, proxy, **settings) for _ in range(2)]
        self.late = 0

    async def __aenter__(self) -> "Pair":
        for one in self._both:
            await one.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for one in self._both:
            await one.stop()

    async def leaders(self) -> list[Dispatcher]:
        return [one for one in self._both if await one.leads()]

    async def leader(self) -> Dispatcher | None:
        """The replica that leads. None: a scrape came during a change, so both or neither say that they lead."""
        found = await self.leaders()
        return found[0] if len(found) == 1 else None

    async def kill_amid_writes(self, chance: random.Random) -> None:
        """Holds the leader's creates, kills it, and lets them land: at once, or after the next replica leads."""
        gate = Gate()
        held = self._proxy.add(http_verbs.hold(gate), asks("create", "jobs"), name="held creates")
        await wait_for(lambda: gate.held >= IN_FLIGHT, "creates are on their way", 30)
        dead = await wait_for(self.leader, "one of them leads", 20)
        assert dead is not None
        in_flight = gate.held
        await dead.kill()
        assert in_flight >= IN_FLIGHT
        held.end()
        await dead.start()
        if chance.random() < 0.5:
            await wait_for(self.leaders, "the next one leads", 20)
        gate.open()
        await wait_for(lambda: held.hits >= in_flight, "what was on its way has landed", 20)
        self.late += in_flight


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.fault(13, 29, 30)
async def test_leaders_killed_during_writes_leave_no_second_job_or_run(place: Place, kube_proxy: KubeProxy) -> None:
    await (await place.database.session("team_a")).execute(INSERT, ROWS)
    plane, chance = place.control_plane, random.Random(3)
    async with watched(plane, place.namespace) as sights, place.playing() as player, Pair(place, kube_proxy) as pair:
        for _ in range(KILLS):
            await pair.kill_amid_writes(chance)
        await all_done(place, 200, plane.check)
    assert player.faults == []
    history = await read_history(plane, place.namespace, place.database, player, sights)
    least = {"rows": ROWS, "starts": ROWS, "creates": ROWS, "deletes": ROWS}
    faults = {"kills": KILLS, "late creates": pair.late}
    bounds = Bounds(least, faults, late_posts=pair.late, cap=CAP, over_cap=AT_A_TIME)
    assert violations(history, bounds) == []
    assert {(row.status, row.attempt, row.launch) for row in history.rows} == {("succeeded", 1, 1)}
    assert ROWS <= history.traffic()["creates"] <= ROWS + pair.late
