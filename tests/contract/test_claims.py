"""Claims as NodeReservations at the real API server: made, replaced in time, deleted, left alone without the right."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from dispatcher.admission.claims import Claim
from dispatcher.kube.reflector import Reflectors
from dispatcher.kube.reservations import RESERVATIONS, ClaimObjects
from tests.contract.own_jobs import Account
from tests.rig.deployed import rendered
from tests.unit.rooms import needs

pytest_plugins = ["tests.scheduling.fixtures"]
pytestmark = pytest.mark.usefixtures("reservations")
CLAIM = Claim(42, "default", needs("4", "2Gi"), "worker-1")


@asynccontextmanager
async def keeper(
    account: Account, kind: type[ClaimObjects] = ClaimObjects, *, may_write: bool = True
) -> AsyncIterator[ClaimObjects]:
    reflectors = Reflectors(account.client)
    store = reflectors.of(RESERVATIONS)
    following = asyncio.create_task(reflectors.run())
    try:
        await account.plane.wait_for(lambda: store.is_following, "reservations are followed", 20)
        yield kind(account.client, store, account.namespace, "dispatcher", lambda: may_write)
    finally:
        following.cancel()


async def permitted(account: Account) -> Account:
    await account.plane.apply(rendered("everything", only="claims"), namespace=account.namespace)
    return account


async def shows(account: Account, keeper: ClaimObjects, expected: dict[int, str]) -> None:
    await account.plane.wait_for(lambda: keeper.known() == expected, f"the claims are {expected}", 20)


async def test_claim_is_made_once_and_deleted_when_it_ends(account: Account) -> None:
    async with keeper(await permitted(account)) as kept:
        assert await kept.keep([CLAIM]) == 1
        await shows(account, kept, {42: "worker-1"})
        assert await kept.keep([CLAIM]) == 0
        assert await kept.keep([replace(CLAIM, node="worker-2")]) == 1
        await shows(account, kept, {})
        assert await kept.keep([replace(CLAIM, node="worker-2")]) == 1
        await shows(account, kept, {42: "worker-2"})
        assert await kept.keep([]) == 1
        await shows(account, kept, {})


async def test_pod_without_requests_claims_a_place_for_a_pod(account: Account) -> None:
    async with keeper(await permitted(account)) as kept:
        await kept.keep([replace(CLAIM, needs=needs("0", "0"))])
        await shows(account, kept, {42: "worker-1"})


class Impatient(ClaimObjects):
    """Every claim is old to it."""

    replaced_after = -60


async def test_old_claim_is_replaced_before_it_ends(account: Account) -> None:
    async with keeper(await permitted(account)) as kept, keeper(account, Impatient) as impatient:
        await kept.keep([CLAIM])
        await shows(account, kept, {42: "worker-1"})
        await shows(account, impatient, {42: "worker-1"})
        assert await impatient.keep([CLAIM]) == 1
        await shows(account, kept, {})
        assert await kept.keep([CLAIM]) == 1
        await shows(account, kept, {42: "worker-1"})


async def test_claims_of_others_stay(account: Account) -> None:
    """Another installation, a person, and another namespace."""
    async with keeper(await permitted(account)) as kept:
        others = ClaimObjects(
            account.client, kept._reservations, account.namespace, "other", lambda: True
        )  # shares the watch
        await others.keep([CLAIM])
        await shows(account, others, {42: "worker-1"})
        assert kept.known() == {}
        assert await kept.keep([]) == 0
        assert await others.keep([]) == 1
        await shows(account, others, {})


async def test_replica_that_lost_its_term_writes_nothing(account: Account) -> None:
    async with keeper(await permitted(account), may_write=False) as kept:
        await kept.keep([CLAIM])
        await shows(account, kept, {})


async def test_missing_right_pauses_the_writes_and_nothing_else(account: Account) -> None:
    plane, role = account.plane, "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles/dispatcher-claims"
    await permitted(account)
    await plane.admin("DELETE", role.format(account.namespace))

    async with keeper(account) as kept:

        async def is_refused() -> bool:
            return await kept.keep([CLAIM]) == 0 and kept.known() == {}

        await plane.wait_for(is_refused, "the writes pause", 20)
