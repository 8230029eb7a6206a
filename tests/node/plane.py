"""The control plane as Pods on real nodes reach it."""

from typing import Final

from tests.controlplane.cluster import ControlPlane
from tests.node.place import API_PORT, SERVICES

API_SERVER: Final = (
    "--bind-address=0.0.0.0",
    f"--advertise-address={SERVICES}",
    "--kubelet-preferred-address-types=InternalIP",  # nobody knows the names of the nodes
)
NODES: Final = ("--node-monitor-period=1s", "--node-monitor-grace-period=20s")
"""A node is unreachable after 20 s, not after 50. A kubelet that is only slow reports sooner: it does each second."""


class ReachablePlane(ControlPlane):
    """The API server has the address of the Service `kubernetes`, so no Pod needs kube-proxy."""

    api_port = API_PORT
    flags = {"kube-apiserver": API_SERVER, "kube-controller-manager": NODES}  # noqa: RUF012  # nobody changes it

    @property
    def url(self) -> str:
        return f"https://{SERVICES}:{API_PORT}"
