"""A cluster that grows: nodes come because Pods wait, and no team's Pods that wait stand in the way of another's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from tests.controlplane.api import Json
from tests.controlplane.autoscaler import Autoscaler, Group
from tests.controlplane.waiting import wait_for
from tests.integration.queues import declare
from tests.rig.dispatching import TASK, Dispatcher, Place, QuickDispatcher
from tests.rig.pools import CORE, POOL, a_pool
from tests.rig.steps import core_path, insert, reaches, succeeded, waits_for

QUICK: dict[str, Any] = {"scan": 0.5, "comes": 1.5, "starts": 0.5}
SHORT: dict[str, object] = {"template": "open", "spec": {"cpu": "1"}}


@asynccontextmanager
async def growing(place: Place, **group: Any) -> AsyncIterator[Autoscaler]:
    """An autoscaler for a group of nodes of four cores, which begins at zero."""
    place.template("open", row_may_set="env,cpu", max_cpu="1000")
    labels = {POOL: place.namespace}
    async with Autoscaler(place.control_plane, Group(labels, **{**QUICK, **group})) as grown:
        yield grown


def in_group(place: Place, **settings: object) -> Dispatcher:
    return QuickDispatcher(place, NODE_SELECTOR=f"{POOL}={place.namespace}", **settings)


async def waiting_pods(place: Place) -> list[Json]:
    found = await place.control_plane.admin("GET", core_path(place, "pods"))
    return [pod for pod in found["items"] if not pod["spec"].get("nodeName")]


@pytest.mark.slow
@pytest.mark.parametrize("says", [True, False], ids=["with announcements", "without"])
async def test_group_grows_for_the_whole_need_after_the_first_answer(place: Place, says: bool) -> None:
    async with growing(place, says=says) as grown, place.playing(), in_group(place) as dispatcher:
        await insert(place, 40, **SHORT, env={"PLAY": "hang"})
        grew = 0.0

        async def all_run() -> bool:
            nonlocal grew
            grew = max(grew, await dispatcher.metric("dispatcher_demand_pods", of="grown"))
            return len(await place.rows("status = 'processing'")) == 40

        await wait_for(all_run, "all rows run", 60, check=dispatcher.check)
        assert grew > 20, "a metric tells how many Pods wait"
        assert 1 in grown.seen, "one Pod asked"
        assert max(grown.seen) > 20, "and then all that were needed"
        assert len(grown.nodes) == 10


@pytest.mark.slow
async def test_need_goes_out_at_once_if_the_operator_says_so(place: Place) -> None:
    async with growing(place) as grown, place.playing(), in_group(place, DEMAND="all") as dispatcher:
        await insert(place, 20, **SHORT)
        await succeeded(place, dispatcher, 20, 60)
        assert len(grown.nodes) == 5


@pytest.mark.slow
async def test_nodes_of_several_sizes_come_for_all_pods_of_one_look(place: Place) -> None:
    """Karpenter's way. It nominates a node to come, and the whole need goes out."""
    async with growing(place, cpus=(2, 8)) as grown, place.playing(), in_group(place) as dispatcher:
        await insert(place, 20, **SHORT, env={"PLAY": "hang"})

        async def all_run() -> bool:
            return len(await place.rows("status = 'processing'")) == 20

        await wait_for(all_run, "all rows run", 60, check=dispatcher.check)
        assert set(grown.nodes.values()) == {2, 8}, "a small one for the Pod that asked, large ones for the others"


@pytest.mark.slow
async def test_shapes_take_turns_and_say_what_the_autoscaler_said(place: Place) -> None:
    async with growing(place), place.playing(), in_group(place, MAX_JOBS=1) as dispatcher:
        rows = [(await insert(place, 1, **CORE | {"spec": {"cpu": str(100 + number)}}))[0] for number in range(2)]
        seen = set[str]()

        async def both_asked() -> bool:
            seen.update(pod["metadata"]["labels"]["dispatcher.internal/task-id"] for pod in await waiting_pods(place))
            return seen == {str(row) for row in rows}

        async def is_measured() -> bool:
            asking = await dispatcher.metric("dispatcher_demand_pods", of="asking")
            return asking == 1 and await dispatcher.metric("dispatcher_demand_unanswered_seconds") > 1

        await wait_for(is_measured, "a metric tells that a shape asks, and since when", 30, check=dispatcher.check)
        await wait_for(both_asked, "a Pod of each shape has asked", 60, check=dispatcher.check)

        async def is_told() -> bool:
            told = [(await dispatcher.explain(row))[1]["message"] for row in rows]
            return any(
                "the autoscaler says: pod didn't trigger scale-up" in words and "in vain" in words for words in told
            )

        await wait_for(is_told, "the row tells what the autoscaler said", 30, check=dispatcher.check)


@pytest.mark.slow
async def test_row_that_fits_nowhere_gives_its_place_to_a_row_that_could_run(place: Place) -> None:
    """Each cap is one. The row that fits nowhere has the place until another row could use it, and loses nothing."""
    await declare(place.database, "narrow", max_jobs=1)
    async with a_pool(place, 1), place.playing(), in_group(place, MAX_JOBS=1) as dispatcher:
        (large,) = await insert(place, 1, **CORE | {"spec": {"cpu": "100"}, "queue": "narrow"})

        async def waits() -> bool:
            return len(await waiting_pods(place)) == 1

        await wait_for(waits, "the Pod of the large row waits", 30, check=dispatcher.check)
        for queue in ("narrow", "default"):
            small = await place.database.insert_task("team_b", **SHORT, queue=queue)
            await reaches(place, dispatcher, small, "succeeded", 30)
        row = await place.database.task(large)
        assert (row["status"], row["failures"]) == ("waiting", 0)
        assert await dispatcher.metric("dispatcher_taken_back_total") >= 1


@pytest.mark.slow
async def test_need_goes_out_at_once_and_autoscalers_are_heard_without_nodes(place: Place) -> None:
    """The variant `namespaced`. The row whose Pod waits is told what the autoscaler said, and so is the operator."""
    async with growing(place) as grown, place.playing(), in_group(place, CHECK_ROOM="false") as dispatcher:
        (large,) = await insert(place, 1, **CORE | {"spec": {"cpu": "100"}})
        await insert(place, 20, **SHORT)
        await succeeded(place, dispatcher, 20, 60)
        assert max(grown.seen) >= 20, "all Pods were there at one look of the autoscaler"
        refused = "the autoscaler says: pod didn't trigger scale-up"

        async def is_told() -> bool:
            (one,) = (await dispatcher.api("status"))[1]["demand"]
            return refused in one["answer"] and refused in (await dispatcher.explain(large))[1]["message"]

        await wait_for(is_told, "the words of the autoscaler are told", 30, check=dispatcher.check)


async def starts_soon(place: Place, dispatcher: Dispatcher, row: dict[str, Any]) -> None:
    """Four rows of another team run, one after another. The quickest has started within five seconds."""
    ids = list[int]()
    for _ in range(4):
        ids.append(await place.database.insert_task("team_b", **row))
        await reaches(place, dispatcher, ids[-1], "succeeded", 30)
    launches = await (await place.database.session("admin")).fetch(
        "SELECT t.created_at, l.started_at FROM dispatch.tasks AS t"
        " JOIN dispatch.task_launches AS l ON l.task_id = t.id WHERE t.id = ANY ($1)", ids,
    )  # fmt: skip
    assert min(one["started_at"] - one["created_at"] for one in launches) < timedelta(seconds=5)


@pytest.mark.slow
async def test_shape_is_judged_by_what_the_api_server_made_of_its_first_pods(place: Place) -> None:
    """A LimitRange gives 3 cores to Pods that ask for nothing. Six nodes of four cores have room for one each."""
    given = {"type": "Container", "defaultRequest": {"cpu": "3"}, "default": {"cpu": "4"}}
    limits = {"metadata": {"name": "limits"}, "spec": {"limits": [given]}}
    await place.control_plane.admin("POST", core_path(place, "limitranges"), limits)
    place.template("open", row_may_set="env,cpu", max_cpu="1000")
    place.template("bare", row_may_set="env")
    bare = place.templates / "bare.yaml"
    bare.write_text(bare.read_text().partition("          resources:")[0])
    async with a_pool(place, 6), place.playing(), in_group(place, MAX_JOBS=40, DEMAND="one") as dispatcher:
        await insert(place, 60, template="bare", env={"PLAY": "hang"})
        await declare(place.database, "other")
        most = 0

        async def six_run() -> bool:
            nonlocal most
            most = max(most, len(await waiting_pods(place)))
            return len(await place.rows("status <> 'waiting'")) >= 6

        await wait_for(six_run, "rows run", 60, check=dispatcher.check)
        tiny = SHORT | {"spec": {"cpu": "100m"}, "queue": "other"}
        await starts_soon(place, dispatcher, tiny)
        assert most <= 10


@pytest.mark.slow
async def test_suspended_jobs_of_one_team_take_no_place_of_another(place: Place) -> None:
    """Somebody, such as Kueue, suspends each Job of a team. The other team's rows are in the same queue."""
    await declare(place.database, "held")
    plane = place.control_plane
    async with a_pool(place, 1), place.playing(), in_group(place, MAX_JOBS=3) as dispatcher:
        await dispatcher.ready()
        await insert(place, 6, **CORE | {"queue": "held"})

        async def are_suspended() -> bool:
            """Suspends each Job, as an admission webhook would. Then no further one is created."""
            for job in await place.jobs():
                facts: Any = job
                path = f"/apis/batch/v1/namespaces/{place.namespace}/jobs/{facts['metadata']['name']}"
                if not facts["spec"].get("suspend"):
                    await plane.admin("PATCH", path, {"spec": {"suspend": True}})
            return await dispatcher.metric("dispatcher_waiting_tasks", reason="PendingPods", queue="held") > 0

        await wait_for(are_suspended, "the Jobs are suspended", 30, check=dispatcher.check)
        await starts_soon(place, dispatcher, SHORT | {"queue": "held"})


@pytest.mark.slow
async def test_gated_pods_of_one_team_take_no_place_and_no_room_of_another(place: Place) -> None:
    """A quota of OpenShift puts gates on Pods: kube-scheduler does not look at them."""
    async with a_pool(place, 1), place.playing(), in_group(place, MAX_JOBS=3) as dispatcher:
        gate = "      schedulingGates: [{name: quota.example/wait}]\n      containers:"
        gated = TASK.format(annotations="{}", steer="{}").replace("      containers:", gate)
        (place.templates / "gated.yaml").write_text(gated)
        rows = await insert(place, 6, template="gated")
        await waits_for(dispatcher, rows[-1], "PendingPods")
        assert "scheduling gates of its Pod" in (await dispatcher.explain(rows[0]))[1]["message"]
        await starts_soon(place, dispatcher, SHORT)
        assert len(await waiting_pods(place)) <= 3, "no more than before the first Pod was seen"
