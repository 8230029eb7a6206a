"""Every twentieth answer is lost after the work was done, and a few creates before. Nothing happens twice.

150 rows in the gate, 600 with HYPOTHESIS_PROFILE=whole, 2,000 with nightly.
"""

import random

import pytest

from tests.controlplane.player import Player
from tests.faults import http_verbs, postgres_verbs
from tests.faults.history import violations
from tests.faults.history_reading import read_history, watched
from tests.faults.history_records import Bounds
from tests.faults.http_proxy import KubeProxy, asks
from tests.faults.postgres_proxy import PostgresProxy, runs
from tests.faults.rules import Turns, chance, nth
from tests.property.profiles import amount
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.steps import all_done

ROWS = amount(gate=150, whole=150, nightly=2000)
LOSS = 0.05
CAP = 200
UNDONE = (ROWS // 12, ROWS // 6, ROWS // 4)
SEED = 11
INSERT = "INSERT INTO dispatch.tasks (max_failures) SELECT 1 + n % 2 FROM generate_series(1, $1::int) AS n"


def lose_answers(kube_proxy: KubeProxy, postgres_proxy: PostgresProxy) -> None:
    """Each rule draws for itself, so the number of its first lost answers is the same in each run."""
    kube_proxy.add(http_verbs.drop_before, asks("create", "jobs"), nth(*UNDONE), "undone creates")
    for verb in ("create", "delete"):
        name = f"lost answers to {verb}"
        kube_proxy.add(http_verbs.drop_after, asks(verb, "jobs"), lost(name), name)
    for function in ("task_start", "task_finish"):
        name = f"lost answers of {function}"
        postgres_proxy.add(postgres_verbs.drop_after, runs(function), lost(name), name)


def lost(name: str) -> Turns:
    return chance(LOSS, random.Random(f"{SEED} {name}"))


@pytest.mark.promise
@pytest.mark.timeout(900)
@pytest.mark.fault(11, 12)
async def test_lost_answers_make_no_second_job_or_run(
    place: Place, kube_proxy: KubeProxy, postgres_proxy: PostgresProxy
) -> None:
    lose_answers(kube_proxy, postgres_proxy)
    await (await place.database.session("team_a")).execute(INSERT, ROWS)
    url = postgres_proxy.url(place.database.url("reader"))
    dispatcher = Dispatcher(
        place, KUBECONFIG=kube_proxy.kubeconfig(place.folder / "kubeconfig"), DATABASE_URL=url,
        MAX_JOBS=CAP, TOMBSTONE_SECONDS=1,
    )  # fmt: skip
    player = Player(place.control_plane, place.namespace, postgres_proxy.url(place.database.url("task")))
    async with watched(place.control_plane, place.namespace) as sights, player, dispatcher:
        await all_done(place, 800, dispatcher.check)
    assert player.faults == []
    faults = kube_proxy.rules.hits() | postgres_proxy.rules.hits()
    history = await read_history(place.control_plane, place.namespace, place.database, player, sights)
    least = {"rows": ROWS, "starts": ROWS, "creates": ROWS, "deletes": ROWS}
    assert violations(history, Bounds(least, faults, cap=CAP)) == []
    assert {(row.status, row.attempt, row.launch) for row in history.rows} == {("succeeded", 1, 1)}
    assert history.traffic() | {"deletes": ROWS} == least
    assert faults.pop("undone creates") == len(UNDONE)
    assert all(hits >= ROWS * LOSS / 2 for hits in faults.values()), faults
