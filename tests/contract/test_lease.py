"""The leader lease at the real API server, with the rights that are shipped; the clock is moved, never waited for."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from dispatcher.jobs.answers import Meaning, read_create
from dispatcher.kube.job_api import JobApi
from dispatcher.kube.lease import Lease, lease_of
from dispatcher.model.jobs import End
from dispatcher.sweep.remove import Remover, read_delete
from tests.builders import SITE
from tests.contract.own_jobs import Account, dispatcher_account
from tests.contract.scripted_lease import NAME, MovedClock, Turns
from tests.contract.test_job_api import dying_namespace
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES

SECONDS = 15
TRUSTED = 13.5


@pytest_asyncio.fixture(loop_scope="session")
async def ours(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> AsyncIterator[Account]:
    async with dispatcher_account(control_plane, namespace, tmp_path) as account:
        yield account


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


def a_lease(ours: Account, clock: MovedClock, seconds: int = SECONDS, namespace: str = "") -> Lease:
    return Lease(ours.open_client(), lease_of(SITE.installation, namespace or ours.namespace), seconds, clock)


def leases(ours: Account) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{ours.namespace}/leases"


async def spec_of(ours: Account) -> Json:
    spec: Json = (await ours.plane.admin("GET", f"{leases(ours)}/{NAME}"))["spec"]
    return spec


async def test_the_shipped_rights_are_enough(ours: Account, clock: MovedClock) -> None:
    access = ours.access()
    await access.check()
    assert access.fault == ""
    lease = a_lease(ours, clock)
    await lease.run_once()
    assert (lease.is_trusted(), lease.vacancy()) == (True, "")


async def test_missing_rights_are_named_and_end_the_term_by_time(ours: Account, clock: MovedClock) -> None:
    lease = a_lease(ours, clock)
    await lease.run_once()
    await ours.allow(leases=["get", "create"])

    async def is_refused() -> bool:
        clock.move(1)
        return await lease.run_once() == 1

    await ours.plane.wait_for(is_refused, "the renewal is refused")
    clock.move(SECONDS)
    assert not lease.is_trusted()
    assert "403 Forbidden" in lease.vacancy()
    assert "cannot update resource" in lease.vacancy()


async def test_a_renewal_keeps_whose_it_is_and_since_when(ours: Account, clock: MovedClock) -> None:
    lease = a_lease(ours, clock)
    await lease.run_once()
    won = await spec_of(ours)
    assert (won["holderIdentity"], won["leaseDurationSeconds"], won["leaseTransitions"]) == (lease.me, 15, 0)
    clock.move(3)
    await lease.run_once()
    renewed = await spec_of(ours)
    assert renewed["renewTime"] > won["renewTime"]
    assert renewed | {"renewTime": ""} == won | {"renewTime": ""}
    clock.move(TRUSTED - 0.01)
    assert lease.is_trusted()
    clock.move(0.01)
    assert not lease.is_trusted()


async def test_a_rival_takes_over_in_time_and_the_first_finds_out(ours: Account, clock: MovedClock) -> None:
    first, second = a_lease(ours, clock), a_lease(ours, clock)
    await first.run_once()
    turns, start = Turns(clock, first, second), clock.at
    await turns.until(start + 20)
    assert (first.is_trusted(), second.is_trusted()) == (True, False)
    turns.kill(first)  # stopped, say, and woken up later
    await turns.until(start + 20 + SECONDS + 2, second.is_trusted)
    assert (first.is_trusted(), second.is_trusted()) == (False, True)
    taken = await spec_of(ours)
    assert (taken["holderIdentity"], taken["leaseTransitions"]) == (second.me, 1)
    for _ in range(2):
        await first.run_once()
        assert not first.is_trusted()
    assert await spec_of(ours) == taken


async def test_what_is_given_up_is_taken_at_the_next_look(ours: Account, clock: MovedClock) -> None:
    first, second = a_lease(ours, clock), a_lease(ours, clock)
    await first.run_once()
    assert await second.run_once() <= 1
    await first.release()
    assert (await spec_of(ours)).get("holderIdentity", "") == ""
    await second.run_once()
    assert (first.is_trusted(), second.is_trusted()) == (False, True)
    await first.release()
    assert (await spec_of(ours))["holderIdentity"] == second.me


@pytest.mark.parametrize("state", ["none", "given up", "over"])
async def test_of_many_that_reach_for_it_at_once_one_leads(ours: Account, clock: MovedClock, state: str) -> None:
    replicas = [a_lease(ours, clock) for _ in range(6)]
    if state != "none":
        before = a_lease(ours, clock)
        await before.run_once()
        if state == "given up":
            await before.release()
        else:
            await asyncio.gather(*(one.run_once() for one in replicas))
            clock.move(SECONDS)
    await asyncio.gather(*(one.run_once() for one in replicas))
    (leader,) = [one for one in replicas if one.is_trusted()]
    assert (await spec_of(ours))["holderIdentity"] == leader.me
    await Turns(clock, *replicas).until(clock.at + 30)
    assert [one.is_trusted() for one in replicas] == [one is leader for one in replicas]


async def test_a_lease_that_is_deleted_is_made_anew(ours: Account, clock: MovedClock) -> None:
    lease = a_lease(ours, clock)
    await lease.run_once()
    await ours.plane.admin("DELETE", f"{leases(ours)}/{NAME}")
    await Turns(clock, lease).until(clock.at + 10)
    assert lease.is_trusted()
    assert (await spec_of(ours))["holderIdentity"] == lease.me


@pytest.mark.parametrize(
    "spec",
    [
        None,
        {"holderIdentity": None},
        {"holderIdentity": ""},
        {"leaseDurationSeconds": None},
        {"leaseDurationSeconds": 2**31 - 1},
        {"leaseTransitions": None},
        {"renewTime": None},
        {"acquireTime": None},
    ],
)
async def test_whatever_the_server_lets_a_hand_write_a_leader_goes_on(
    ours: Account, clock: MovedClock, spec: dict[str, Any] | None
) -> None:
    lease = a_lease(ours, clock)
    await lease.run_once()
    await ours.plane.admin("PATCH", f"{leases(ours)}/{NAME}", {"spec": spec})
    await Turns(clock, lease).until(clock.at + 10)
    assert lease.is_trusted()
    written = await spec_of(ours)
    assert (written["holderIdentity"], written["leaseDurationSeconds"]) == (lease.me, SECONDS)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"holderIdentity": "dead"},
        {"leaseDurationSeconds": 15},
        {"holderIdentity": "x", "leaseTransitions": 2**31 - 1},
    ],
    ids=["nothing", "a holder", "a length", "the largest count"],
)
async def test_a_lease_that_a_hand_made_is_taken_and_kept(
    ours: Account, clock: MovedClock, spec: dict[str, Any]
) -> None:
    await ours.plane.admin("POST", leases(ours), {"metadata": {"name": NAME}, "spec": spec})
    lease = a_lease(ours, clock)
    await Turns(clock, lease).until(clock.at + SECONDS + 2, lease.is_trusted)
    assert lease.is_trusted()
    await Turns(clock, lease).until(clock.at + SECONDS)
    assert (lease.term(), (await spec_of(ours))["holderIdentity"]) == (1, lease.me)


async def test_a_lease_without_the_time_of_its_winning_is_taken_from_another(ours: Account, clock: MovedClock) -> None:
    lease = a_lease(ours, clock)
    await lease.run_once()
    spec = {"acquireTime": None, "holderIdentity": "x"}
    await ours.plane.admin("PATCH", f"{leases(ours)}/{NAME}", {"spec": spec})
    turns, start = Turns(clock, lease), clock.at
    await turns.until(start + 10)
    assert not lease.is_trusted()
    await turns.until(start + 40)
    assert lease.is_trusted(), lease.vacancy()
    assert (await spec_of(ours))["acquireTime"]


async def test_a_namespace_that_ends_has_no_leader_and_says_why(ours: Account, clock: MovedClock) -> None:
    async with dying_namespace(ours) as namespace:
        lease = a_lease(ours, clock, namespace=namespace)

        async def is_told() -> bool:
            await lease.run_once()
            return "being terminated" in lease.vacancy()

        await ours.plane.wait_for(is_told, "the namespace refuses the lease")
        assert not lease.is_trusted()


async def test_nothing_is_sent_after_the_term_and_what_is_refused_is_no_fault(ours: Account, clock: MovedClock) -> None:
    lease, made = a_lease(ours, clock), await ours.created()
    api = JobApi(ours.client, ours.namespace, SITE.installation, lease.is_trusted)
    refused: list[bool] = []
    remover, end = Remover(api, lambda: refused.append(True)), End("jobs", made.name, made.uid, "test")
    for is_over in (False, True):
        clock.move(60 * is_over)
        assert read_create(await api.create(ours.manifest())) is Meaning.NOT_SENT
        assert read_delete(await api.delete(end)) == "not-sent"
        assert await remover.remove([end]) == (not is_over)  # the second time it waits, as after any other
        assert (await api.get(made.name)).status == 200
        assert len(await api.list_task(made.task_id)) == 1
        await lease.run_once()
        assert (await api.create(ours.manifest())).status == 201
    assert refused == []
    assert read_delete(await api.delete(end)) == "deleted"


class TestOutage:
    async def test_a_silent_server_is_given_up_and_the_term_ends(self, ours: Account, clock: MovedClock) -> None:
        lease = a_lease(ours, clock, 2)
        await lease.run_once()
        began = time.monotonic()
        ours.plane.pause()
        try:
            assert await lease.run_once() == 0.2
            assert time.monotonic() - began < 5
            assert lease.is_trusted()
            clock.move(1.5)
            assert not lease.is_trusted()
            await lease.release()
        finally:
            ours.plane.resume()
        assert lease.vacancy() == ""
        clock.move(0.5)
        assert "lease dispatcher-leader: " in lease.vacancy()

        async def leads() -> bool:
            await lease.run_once()
            return lease.is_trusted()

        await ours.plane.wait_for(leads, "the lease is kept again")

    async def test_a_server_that_is_gone_is_told_at_once(self, ours: Account, clock: MovedClock) -> None:
        lease = a_lease(ours, clock)
        await lease.run_once()
        await ours.plane.stop_api_server()
        try:
            assert await lease.run_once() == 1
            clock.move(SECONDS)
            assert not lease.is_trusted()
            assert "Cannot connect" in lease.vacancy()
        finally:
            await ours.plane.start_api_server()
        await lease.run_once()
        assert lease.is_trusted()
