"""What the extender writes about reservations, and claims as NodeReservations, at the real API server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from msgspec.structs import replace
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from dispatcher.admission.claims import Claim
from dispatcher.extender.book import ReservationBook
from dispatcher.extender.program import REFUSED_SECONDS, ExtenderWrites
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import from_kubeconfig
from dispatcher.kube.events import Events
from dispatcher.kube.reflector import Reflectors
from dispatcher.kube.reservations import PATH, RESERVATIONS, ClaimObjects, Reports, read_reservation
from dispatcher.model.cluster import NodeCapacities
from dispatcher.model.errors import ClusterAway
from dispatcher.model.jobs import Notice
from dispatcher.model.reservations import Reservation
from tests.contract.own_jobs import Account
from tests.controlplane.cluster import ControlPlane
from tests.faults.http_proxy import KubeProxy, asks
from tests.faults.http_verbs import status
from tests.faults.rules import nth
from tests.rig.deployed import rendered
from tests.rig.unreserved import certain_facts
from tests.unit.rooms import needs

pytest_plugins = ["tests.scheduling.fixtures"]
pytestmark = pytest.mark.usefixtures("reservations")


@pytest.mark.slow
async def test_refused_write_is_logged_and_a_missing_object_is_no_fault(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    path = PATH.replace("/nodereservations", f"/namespaces/{namespace}/nodereservations")
    spec = {"nodeName": "a", "resources": {"cpu": "1"}, "target": {"taskId": 7}, "ttlSeconds": 60}
    body = {"apiVersion": "dispatcher.internal/v1alpha1", "kind": "NodeReservation", "metadata": {"name": "r"}}
    one = read_reservation(msgspec.json.encode(await control_plane.admin("POST", path, {**body, "spec": spec})))
    assert one is not None
    config = control_plane.kubeconfig(tmp_path / "k", token=control_plane.admin_token, namespace=namespace)
    client = KubeClient(await from_kubeconfig(str(config), None))
    reports = Reports(client)
    try:
        with capture_logs() as told:
            await reports.tell(one, "Active", "x" * 1025)
        assert [line["event"] for line in told] == ["not written"]
        with capture_logs() as told:
            await reports.wake(f"{namespace}/gone")
            await reports.tell(msgspec.structs.replace(one, uid="another"), "Active", "")
        assert told == []
        await written_once(control_plane, path, "held", reports.tell(one, "Active", "held"))
        control_plane.pause()
        with pytest.raises(ClusterAway):
            await reports.wake(f"{namespace}/gone")
    finally:
        control_plane.resume()
        await client.close()


async def written_once(plane: ControlPlane, path: str, message: str, write: Awaitable[None]) -> None:
    """Awaits `write`, and fails if no status at `path` has had this message.

    It looks at every change, because an extender of another test may write its own message right after this one.
    """
    async with asyncio.timeout(10), aclosing(plane.api.follow(path)) as changes:
        await anext(changes)
        await write
        async for change in changes:
            if any(one.get("status", {}).get("message") == message for one in change.objects):
                return


@pytest_asyncio.fixture(loop_scope="session")
async def through(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> AsyncIterator[tuple[KubeProxy, KubeClient]]:
    """A client, and the proxy between the client and the server."""
    config = control_plane.kubeconfig(tmp_path / "k", token=control_plane.admin_token, namespace=namespace)
    async with KubeProxy(control_plane.url, control_plane.ca_file) as proxy:
        client = KubeClient(await from_kubeconfig(str(proxy.kubeconfig(config)), None))
        yield proxy, client
        await client.close()


@pytest.mark.slow
async def test_refused_event_is_counted_and_given_up(
    control_plane: ControlPlane, namespace: str, through: tuple[KubeProxy, KubeClient]
) -> None:
    proxy, client = through
    events = Events(client, "dispatcher-extender")
    proxy.add(status(403), asks("create", "events"), nth(1))
    for number in (1, 2):
        with capture_logs() as told:
            await events.tell(Notice("Pod", f"{namespace}/p{number}", f"u{number}", "OfThisTest", "words"))
        assert [line["event"] for line in told] == ["event not written"] * (number == 1)
    found = await control_plane.admin("GET", f"/api/v1/namespaces/{namespace}/events")
    assert [one["involvedObject"]["name"] for one in found["items"]] == ["p2"]
    assert [counted(outcome) for outcome in ("refused", "written", "dropped")] == [1, 1, None]


def counted(outcome: str) -> float | None:
    return REGISTRY.get_sample_value("dispatcher_events_total", {"reason": "OfThisTest", "outcome": outcome})


async def test_refused_status_delays_no_other_status(namespace: str, through: tuple[KubeProxy, KubeClient]) -> None:
    proxy, client = through
    holds, names = ReservationBook(NodeCapacities()), [f"{namespace}/r{number}" for number in (1, 2, 3)]
    for name in names:
        holds.hear_reservation(None, Reservation(name, name, "nowhere", {"cpu": 1}, name, float("inf")))
    rule = proxy.add(status(403), lambda asked: asks("patch", "nodereservations/status")(asked) and asked.name == "r1")
    rounds = ExtenderWrites(client, certain_facts(), holds).rounds()
    with capture_logs() as told:
        await rounds["statuses"]()
    assert [(line["event"], line["number"]) for line in told] == [("not written, tried again", 1)]
    assert list(holds.reports.due(0)) == [], "after a while"
    assert await rounds["statuses again"]() == REFUSED_SECONDS
    rule.end()
    with capture_logs() as told:
        await rounds["statuses"]()
    assert (told, rule.hits) == ([], 1)


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
