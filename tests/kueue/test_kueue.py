"""With a real Kueue in the cluster, as docs/kueue.md says: what it holds is told, and stops no other team."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from dispatcher.admission.demand import FIRST
from dispatcher.runtime.clock import elapsed
from tests.controlplane.processes import Server
from tests.controlplane.waiting import wait_for
from tests.kueue.beside import GROUP, kueue
from tests.rig.dispatching import Dispatcher, Place, QuickDispatcher
from tests.rig.reasons import explained
from tests.rig.steps import LET_GRACES_PASS, has_jobs, insert, jobs_path, reaches, succeeded

MOST = 20


def held_template(place: Place) -> None:
    """The template `held`, whose Jobs Kueue admits."""
    place.template("held")
    path = place.templates / "held.yaml"
    template = yaml.safe_load(path.read_text(encoding="utf-8"))
    template["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team-a"}
    path.write_text(yaml.safe_dump(template), encoding="utf-8")


@asynccontextmanager
async def beside(place: Place, folder: Path, *, without_label: bool = False) -> AsyncIterator[Server]:
    """Kueue, and a player of the Pods. `without_label`: Kueue holds Jobs of all templates."""
    plane = place.control_plane
    async with place.playing(), kueue(plane, place.namespace, folder / "kueue", without_label=without_label) as server:
        yield server


async def suspended(place: Place) -> int:
    jobs = (await place.control_plane.admin("GET", jobs_path(place)))["items"]
    return sum(bool(job["spec"].get("suspend")) for job in jobs)


async def workloads(place: Place) -> list[dict[str, Any]]:
    path = f"{GROUP}/namespaces/{place.namespace}/workloads"
    found: list[dict[str, Any]] = (await place.control_plane.admin("GET", path))["items"]
    return found


async def seconds_for(place: Place, dispatcher: Dispatcher, count: int) -> float:
    """How long rows of another team take, beside all that is there."""
    began = elapsed()
    done = len(await place.rows("status = 'succeeded'"))
    await insert(place, count, queue="team-b")
    await succeeded(place, dispatcher, done + count, 60)
    return elapsed() - began


async def test_quota_of_kueue_that_is_used_up_stops_no_other_team(place: Place, tmp_path: Path) -> None:
    held_template(place)
    async with beside(place, tmp_path) as server, Dispatcher(place, MAX_JOBS=MOST) as dispatcher:
        await dispatcher.ready()
        admin = await place.database.session("admin")
        await admin.execute("INSERT INTO dispatch.queues (name) VALUES ('team-b')")
        alone = await seconds_for(place, dispatcher, 60)
        ids = await insert(place, 30, template="held", env={"PLAY": "hang"})
        found = await explained(dispatcher, ids[3], "insufficient", 60)
        assert "Suspended: by Kueue, by the Job's label kueue.x-k8s.io/queue-name=team-a" in found["message"]
        assert (found["reason"], found["whose_turn"]) == ("Launched", "operator")
        assert await seconds_for(place, dispatcher, 60) <= 2 * alone
        assert await suspended(place) <= MOST // 10 + FIRST
        _, status = await dispatcher.api("status")
        shares = {queue["queue"]: (queue["share"], queue["in_flight"]) for queue in status["queues"]}
        assert shares["default"][0] <= 0.01
        server.check()


async def test_run_that_kueue_takes_back_is_a_disruption(place: Place, tmp_path: Path) -> None:
    """An admin stops the Workload, and lets it go on later."""
    held_template(place)
    async with beside(place, tmp_path) as server, QuickDispatcher(place) as dispatcher:
        (task_id,) = await insert(place, 1, template="held", env={"PLAY": "hang"}, max_failures=2)
        await has_jobs(place, dispatcher, 1)
        await reaches(place, dispatcher, task_id, "processing")
        (workload,) = await workloads(place)
        path = f"{GROUP}/namespaces/{place.namespace}/workloads/{workload['metadata']['name']}"
        await place.control_plane.admin("PATCH", path, {"spec": {"active": False}})

        async def is_suspended() -> bool:
            return await suspended(place) == 1

        await wait_for(is_suspended, "Kueue suspends the Job", 30, check=server.check)
        admin = await place.database.session("admin")
        await admin.execute("UPDATE dispatch_private.tasks SET heartbeat_at = now() - interval '61 s', env = '{}'")
        await explained(dispatcher, task_id, "Suspended: by Kueue", 60)
        await place.control_plane.admin("PATCH", path, {"spec": {"active": True}})
        await admin.execute(LET_GRACES_PASS)
        await reaches(place, dispatcher, task_id, "succeeded", 120)


async def test_kueue_that_holds_jobs_without_the_label_is_named(place: Place, tmp_path: Path) -> None:
    async with beside(place, tmp_path, without_label=True), Dispatcher(place) as dispatcher:
        await insert(place, 1)
        await has_jobs(place, dispatcher, 1)
        (waiting,) = await insert(place, 1)
        found = await explained(dispatcher, waiting, "spec.suspend")
        assert (found["reason"], found["whose_turn"]) == ("JobChanged", "operator")
