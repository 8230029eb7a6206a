"""The leader lease at the real API server, with the shipped rights. Tests move the clock and never wait for it."""

import asyncio
import time
from typing import Any

import pytest

from dispatcher.jobs.refusals import CreateOutcome, read_create
from dispatcher.kube.job_api import JobApi
from dispatcher.kube.lease import Lease, LeaseName
from dispatcher.model.jobs import ObjectWrite
from dispatcher.sweep.sweep import Remover, read_end
from tests.contract.own_jobs import Account
from tests.contract.scripted_lease import NAME, MovedClock, Turns
from tests.contract.submitting import dying_namespace
from tests.controlplane.api import Json
from tests.controlplane.sides import BOTH_SIDES
from tests.rig.builders import SITE

pytestmark = BOTH_SIDES

SECONDS = 15
TRUSTED = 13.5


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


def a_lease(account: Account, clock: MovedClock, seconds: int = SECONDS, namespace: str = "") -> Lease:
    return Lease(account.open_client(), LeaseName(namespace or account.namespace, SITE.installation), seconds, clock)


def leases(account: Account) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{account.namespace}/leases"


async def spec_of(account: Account) -> Json:
    spec: Json = (await account.plane.admin("GET", f"{leases(account)}/{NAME}"))["spec"]
    return spec


async def test_shipped_rights_are_enough_for_a_lease(account: Account, clock: MovedClock) -> None:
    access = account.access()
    await access.check()
    assert access.fault == ""
    lease = a_lease(account, clock)
    await lease.run_once()
    assert (lease.is_trusted(), lease.vacancy()) == (True, "")


async def test_missing_rights_are_named_and_end_the_term_by_time(account: Account, clock: MovedClock) -> None:
    lease = a_lease(account, clock)
    await lease.run_once()
    await account.allow(leases=["get", "create"])

    async def is_refused() -> bool:
        clock.move(1)
        return await lease.run_once() == 1

    await account.plane.wait_for(is_refused, "the renewal is refused")
    clock.move(SECONDS)
    assert not lease.is_trusted()
    assert "403 Forbidden" in lease.vacancy()
    assert "cannot update resource" in lease.vacancy()


async def test_renewal_keeps_holder_and_start_of_the_term(account: Account, clock: MovedClock) -> None:
    lease = a_lease(account, clock)
    await lease.run_once()
    won = await spec_of(account)
    assert (won["holderIdentity"], won["leaseDurationSeconds"], won["leaseTransitions"]) == (lease.me, 15, 0)
    clock.move(3)
    await lease.run_once()
    renewed = await spec_of(account)
    assert renewed["renewTime"] > won["renewTime"]
    assert renewed | {"renewTime": ""} == won | {"renewTime": ""}
    clock.move(TRUSTED - 0.01)
    assert lease.is_trusted()
    clock.move(0.01)
    assert not lease.is_trusted()


@pytest.mark.parametrize("state", ["none", "given up", "over"])
async def test_one_of_many_simultaneous_replicas_leads(account: Account, clock: MovedClock, state: str) -> None:
    replicas = [a_lease(account, clock) for _ in range(6)]
    if state != "none":
        before = a_lease(account, clock)
        await before.run_once()
        if state == "given up":
            await before.release()
        else:
            await asyncio.gather(*(one.run_once() for one in replicas))
            clock.move(SECONDS)
    await asyncio.gather(*(one.run_once() for one in replicas))
    (leader,) = [one for one in replicas if one.is_trusted()]
    assert (await spec_of(account))["holderIdentity"] == leader.me
    await Turns(clock, *replicas).until(clock.at + 30)
    assert [one.is_trusted() for one in replicas] == [one is leader for one in replicas]


async def test_deleted_lease_is_made_anew(account: Account, clock: MovedClock) -> None:
    lease = a_lease(account, clock)
    await lease.run_once()
    await account.plane.admin("DELETE", f"{leases(account)}/{NAME}")
    await Turns(clock, lease).until(clock.at + 10)
    assert lease.is_trusted()
    assert (await spec_of(account))["holderIdentity"] == lease.me


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
async def test_leader_goes_on_after_any_edit_of_its_lease(
    account: Account, clock: MovedClock, spec: dict[str, Any] | None
) -> None:
    lease = a_lease(account, clock)
    await lease.run_once()
    await account.plane.admin("PATCH", f"{leases(account)}/{NAME}", {"spec": spec})
    await Turns(clock, lease).until(clock.at + 10)
    assert lease.is_trusted()
    written = await spec_of(account)
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
async def test_lease_made_by_hand_is_taken_and_kept(account: Account, clock: MovedClock, spec: dict[str, Any]) -> None:
    await account.plane.admin("POST", leases(account), {"metadata": {"name": NAME}, "spec": spec})
    lease = a_lease(account, clock)
    await Turns(clock, lease).until(clock.at + SECONDS + 2, lease.is_trusted)
    assert lease.is_trusted()
    await Turns(clock, lease).until(clock.at + SECONDS)
    assert (lease.term(), (await spec_of(account))["holderIdentity"]) == (1, lease.me)


async def test_lease_without_acquire_time_is_taken_from_another_holder(account: Account, clock: MovedClock) -> None:
    lease = a_lease(account, clock)
    await lease.run_once()
    spec = {"acquireTime": None, "holderIdentity": "x"}
    await account.plane.admin("PATCH", f"{leases(account)}/{NAME}", {"spec": spec})
    turns, start = Turns(clock, lease), clock.at
    await turns.until(start + 10)
    assert not lease.is_trusted()
    await turns.until(start + 40)
    assert lease.is_trusted(), lease.vacancy()
    assert (await spec_of(account))["acquireTime"]


async def test_terminating_namespace_has_no_leader_and_says_why(account: Account, clock: MovedClock) -> None:
    async with dying_namespace(account) as namespace:
        lease = a_lease(account, clock, namespace=namespace)

        async def is_told() -> bool:
            await lease.run_once()
            return "being terminated" in lease.vacancy()

        await account.plane.wait_for(is_told, "the namespace refuses the lease")
        assert not lease.is_trusted()


async def test_writes_outside_the_term_are_not_sent_and_no_fault(account: Account, clock: MovedClock) -> None:
    lease, made = a_lease(account, clock), await account.created()
    api = JobApi(account.client, account.namespace, SITE.installation, lease.is_trusted)
    refused: list[bool] = []
    remover, end = Remover(api, lambda: refused.append(True)), ObjectWrite("jobs", made.name, made.uid, "test")
    for is_over in (False, True):
        clock.move(60 * is_over)
        assert read_create(await api.create(account.manifest())) is CreateOutcome.NOT_SENT
        assert read_end(await api.end(end)) == "not-sent"
        assert await remover.remove([end], 1) == (not is_over)  # it waits the second time, as after any delete
        assert (await api.get(made.name)).status == 200
        assert len(await api.list_task(made.task_id)) == 1
        await lease.run_once()
        assert (await api.create(account.manifest())).status == 201
    assert refused == []
    assert read_end(await api.end(end)) == "deleted"


class TestOutage:
    async def test_silent_server_is_given_up_and_the_term_ends(self, account: Account, clock: MovedClock) -> None:
        lease = a_lease(account, clock, 2)

        async def leads() -> bool:
            await lease.run_once()
            return lease.is_trusted()

        await account.plane.wait_for(leads, "the lease is taken")
        began = time.monotonic()
        account.plane.pause()
        try:
            assert await lease.run_once() == 0.2
            assert time.monotonic() - began < 5
            assert lease.is_trusted()
            clock.move(1.5)
            assert not lease.is_trusted()
            await lease.release()
        finally:
            account.plane.resume()
        assert lease.vacancy() == ""
        clock.move(0.5)
        assert "lease dispatcher-leader: " in lease.vacancy()
        await account.plane.wait_for(leads, "the lease is kept again")

    async def test_absent_server_is_a_fault_at_once(self, account: Account, clock: MovedClock) -> None:
        lease = a_lease(account, clock)
        await lease.run_once()
        await account.plane.stop_api_server()
        try:
            assert await lease.run_once() == 1
            clock.move(SECONDS)
            assert not lease.is_trusted()
            assert "Cannot connect" in lease.vacancy()
        finally:
            await account.plane.start_api_server()
        await lease.run_once()
        assert lease.is_trusted()
