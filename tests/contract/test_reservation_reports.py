"""What the extender writes of reservations: one that the server will not have keeps nobody else from its turn."""

from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from dispatcher.errors import ClusterAway
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import from_kubeconfig
from dispatcher.kube.reservations import PATH, Reports, read_reservation
from tests.controlplane.cluster import ControlPlane

pytest_plugins = ["tests.scheduling.fixtures"]
pytestmark = pytest.mark.usefixtures("reservations")


async def test_a_refusal_is_told_and_what_is_gone_is_done(
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
        await reports.tell(one, "Active", "held")
        assert (await control_plane.admin("GET", f"{path}/r"))["status"]["message"] == "held"
        control_plane.pause()
        with pytest.raises(ClusterAway):
            await reports.wake(f"{namespace}/gone")
    finally:
        control_plane.resume()
        await client.close()
