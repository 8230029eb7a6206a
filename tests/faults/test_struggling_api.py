"""An API server that throttles, stalls or fails: it delays work, and nothing goes wrong."""

import asyncio
import json
import os
import signal
from itertools import pairwise

import pytest

from dispatcher.jobs.submit import AT_A_TIME
from tests.controlplane.player import Player
from tests.controlplane.waiting import wait_for
from tests.faults import http_verbs
from tests.faults.http_proxy import Asked, KubeProxy, asks, pass_on
from tests.faults.rules import Gate
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.steps import (
    Times,
    behind,
    creates,
    fails_again,
    has_jobs,
    insert,
    looks_again,
    made_twice,
    no_jobs,
    succeeded,
)

TOO_MANY = http_verbs.status(429, {"kind": "Status", "code": 429, "reason": "TooManyRequests"}, {"Retry-After": "2"})


@pytest.mark.slow
@pytest.mark.fault(19)
async def test_retry_after_of_the_api_server_is_obeyed_by_each_create(place: Place, kube_proxy: KubeProxy) -> None:
    by_name: dict[str, list[float]] = {}
    is_create = asks("create", "jobs")

    def noted(asked: Asked) -> bool:
        if is_create(asked):
            name = json.loads(asked.body)["metadata"]["name"]
            by_name.setdefault(name, []).append(asyncio.get_running_loop().time())
        return is_create(asked)

    rule = kube_proxy.add(TOO_MANY, noted)
    await insert(place, 20)
    async with place.playing(), behind(place, kube_proxy) as dispatcher:
        await wait_for(
            lambda: max(map(len, by_name.values()), default=0) >= 3,
            "two tries after the first",
            30,
            check=dispatcher.check,
        )
        pauses = [later - before for times in by_name.values() for before, later in pairwise(times)]
        assert min(pauses) >= 1.9
        assert sum(map(len, by_name.values())) <= 3 * AT_A_TIME
        rule.end()
        await succeeded(place, dispatcher, 20, 60)
    assert made_twice(place) == []


@pytest.mark.slow
@pytest.mark.fault(20)
async def test_stalled_etcd_loses_nothing_and_makes_nothing_twice(place: Place) -> None:
    etcd = place.control_plane.pids()["etcd"]
    async with place.playing() as player, Dispatcher(place, KUBE_WRITES_PER_SECOND=20) as dispatcher:
        await insert(place, 40)
        await has_jobs(place, dispatcher, 5)
        os.kill(etcd, signal.SIGSTOP)
        try:
            await fails_again(dispatcher, "lease", 3)
            assert not await dispatcher.leads()
            assert (await dispatcher.get("/healthz"))[0] == 200
        finally:
            os.kill(etcd, signal.SIGCONT)
        await succeeded(place, dispatcher, 40, 60)
        await dispatcher.ready()
    assert made_twice(place) == []
    assert len(player.runs) == 40


@pytest.mark.slow
@pytest.mark.fault(23)
@pytest.mark.museum("unknown count = 0")
async def test_unreadable_api_server_gets_no_creates(place: Place, kube_proxy: KubeProxy) -> None:
    unreadable = kube_proxy.add(http_verbs.status(500), asks("list", "jobs"))
    sent = Times(asks("create", "jobs"))
    kube_proxy.add(pass_on, sent)
    await insert(place, 3)
    async with place.playing(), behind(place, kube_proxy) as dispatcher:
        await dispatcher.unready("cluster: jobs")
        await wait_for(dispatcher.leads, "it leads", check=dispatcher.check)
        await wait_for(lambda: unreadable.hits >= 3, "three lists", 20, check=dispatcher.check)
        await looks_again(dispatcher)
        assert sent.all == []
        unreadable.end()
        await succeeded(place, dispatcher, 3, 60)


@pytest.mark.slow
@pytest.mark.fault(23)
async def test_failing_creates_are_tried_one_at_a_time_with_growing_pauses(place: Place, kube_proxy: KubeProxy) -> None:
    sent = Times(asks("create", "jobs"))
    rule = kube_proxy.add(http_verbs.status(503), sent)
    async with place.playing(), behind(place, kube_proxy) as dispatcher:
        await dispatcher.ready()
        await insert(place, 20)
        await wait_for(lambda: len(sent.pauses(0.4)) == 3, "three tries after the first", 30, check=dispatcher.check)
        assert len(sent.all) <= 16 + 3
        assert max(sent.pauses(0.4)) >= 1.9
        assert "ApiThrottled" in await dispatcher.unready("api: ")
        rule.end()
        await succeeded(place, dispatcher, 20, 60)
    assert made_twice(place) == []


@pytest.mark.slow
@pytest.mark.fault(13)
async def test_create_that_lands_after_its_row_ended_starts_nothing(place: Place, kube_proxy: KubeProxy) -> None:
    gate = Gate()
    late = kube_proxy.add(http_verbs.hold(gate), asks("create", "jobs"))
    (task_id,) = await insert(place, 1)
    first = behind(place, kube_proxy)
    await first.start()
    await wait_for(lambda: gate.held == 1, "the create is on its way", 20, check=first.check)
    await first.kill()
    await place.end_term()
    async with place.playing() as player, Dispatcher(place, TOMBSTONE_SECONDS=0) as dispatcher:
        await succeeded(place, dispatcher, 1)
        await no_jobs(place, dispatcher)
        gate.open()
        await wait_for(lambda: late.told == ["create jobs 201"], "the late create has landed", check=dispatcher.check)
        await wait_for(lambda: over(player), "its container has been refused", 20, check=dispatcher.check)
        await no_jobs(place, dispatcher)
    runs = player.runs_of(task_id)
    assert [run.started is not None for run in runs] == [True, False]
    assert (await place.database.task(task_id))["launch"] == 1
    assert len(await place.database.launches(task_id)) == 1


def over(player: Player) -> bool:
    return len([run for run in player.runs if run.exit_code == 0]) == 2


@pytest.mark.slow
@pytest.mark.fault(36)
@pytest.mark.museum("lease released before the last write")
async def test_lease_is_kept_until_the_last_write_is_answered(place: Place, kube_proxy: KubeProxy) -> None:
    gate, renewals, given_up = Gate(), Times(asks("update", "leases")), list[int]()

    def gives_up(asked: Asked) -> bool:
        if asks("update", "leases")(asked) and b'"holderIdentity":""' in asked.body:
            given_up.append(gate.held)
        return False

    kube_proxy.add(pass_on, gives_up)
    kube_proxy.add(http_verbs.hold(gate), asks("create", "jobs"))
    kube_proxy.add(pass_on, renewals)
    await insert(place, 1)
    async with behind(place, kube_proxy) as dispatcher:
        await wait_for(lambda: gate.held == 1, "the create is on its way", 20, check=dispatcher.check)
        before = len(renewals.all)
        stopping = asyncio.create_task(dispatcher.stop())
        await wait_for(lambda: len(renewals.all) >= before + 4, "it renews its lease while it stops", 20)
        gate.open()
        assert await stopping == 0
    assert given_up == [0]
    assert len(creates(place)) == 1
