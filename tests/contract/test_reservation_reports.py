"""The extender's writes about reservations: a write that the server refuses delays no other one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from dispatcher.extender.book import ReservationBook
from dispatcher.extender.nodes import ClusterFacts
from dispatcher.extender.program import REFUSED_SECONDS, Reporting
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import from_kubeconfig
from dispatcher.kube.events import Events
from dispatcher.kube.reservations import PATH, Reports, read_reservation
from dispatcher.model.cluster import NodeCapacities
from dispatcher.model.errors import ClusterAway
from dispatcher.model.notices import Notice
from dispatcher.model.reservations import Reservation
from tests.controlplane.cluster import ControlPlane
from tests.faults.http_proxy import KubeProxy, asks
from tests.faults.http_verbs import status
from tests.faults.rules import nth

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
    rounds = Reporting(client, ClusterFacts(), holds).rounds()
    with capture_logs() as told:
        await rounds["statuses"]()
    assert [(line["event"], line["number"]) for line in told] == [("not written, tried again", 1)]
    assert list(holds.reports.due(0)) == [], "after a while"
    assert await rounds["statuses again"]() == REFUSED_SECONDS
    rule.end()
    with capture_logs() as told:
        await rounds["statuses"]()
    assert (told, rule.hits) == ([], 1)
