"""kube-scheduler as one of several replicas: only the holder of the lease schedules."""

from pathlib import Path

from tests.controlplane.api import Json
from tests.controlplane.waiting import wait_for
from tests.scheduling.kube_scheduler import KubeScheduler
from tests.scheduling.nodes_and_pods import NodeGroup

SHORT = {"leaseDuration": "10s", "renewDeadline": "8s", "retryPeriod": "500ms"}


class KubeSchedulerReplica(KubeScheduler):
    """All replicas of one test have the same scheduler name; `replica` is the name of one. The first started leads."""

    def __init__(self, node_group: NodeGroup, wanted: Json, replica: str) -> None:
        self._node_group = node_group
        folder = node_group.folder / replica
        folder.mkdir()
        super().__init__(node_group.plane, folder, wanted)
        self.name = self._common

    @property
    def _common(self) -> str:
        return f"electing-{self._node_group.namespace}"

    def _fitted(self, wanted: Json, kubeconfig: Path) -> Json:
        fitted = super()._fitted(wanted, kubeconfig)
        (profile,) = fitted["profiles"]
        lease = {"leaderElect": True, "resourceName": self._common, "resourceNamespace": self._node_group.namespace}
        return fitted | {"profiles": [profile | {"schedulerName": self._common}], "leaderElection": lease | SHORT}

    async def leads(self) -> None:
        await wait_for(lambda: "acquired lease" in self.log, "it leads", 60, check=self.check)
