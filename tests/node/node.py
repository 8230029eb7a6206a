"""A real node: Debian's containerd and a kubelet, on a machine of namespaces."""

import json
from pathlib import Path
from typing import Final

from tests.controlplane.binaries import KUBELET, programs
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.objects import is_ready
from tests.controlplane.waiting import wait_for
from tests.node.cgroups import Cgroups
from tests.node.images import on_overlay
from tests.node.machine import Machine, Program
from tests.node.place import EVERYBODY, REGISTRY, gateway

LABEL: Final = "tests.dispatcher.internal/real"
PAUSE: Final = f"{REGISTRY}/pause:1"
CONTAINERD: Final = """
version = 2
root = "{folder}/disk/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
"""
SECONDS: Final = 60
TOO_EARLY: Final = "server is not initialized yet"
"""A kubelet ends with these words if containerd listens already and cannot answer yet."""


class Node:
    """Node number N, N from 1 on. `kubelet` and `containerd` can be killed and started again, as can the whole node.

    disk: holds all that grows, which is images, containers and logs of Pods. It may be a small file system.
    """

    def __init__(self, plane: ControlPlane, folder: Path, number: int, cgroups: Cgroups) -> None:
        self.name = f"real-{number}"
        self.bridge = f"pods{number}"
        self.plane = plane
        self._number = number
        self._folder = folder / self.name
        self._folder.mkdir()
        self.disk = self._folder / "disk"
        self.disk.mkdir()
        self.machine = Machine(self._folder)
        self.programs: list[Program] = []
        self._cgroups = cgroups

    async def start(self) -> None:
        """Boots the node, also after `stop`, and returns once Pods can be placed on it."""
        self._cgroups.remove(self.name)  # a kubelet waits seconds for each one that is left of a Pod
        self._cgroup = self._cgroups.make(self.name)
        self._write_files()
        self.machine.start()
        await wait_for(self.machine.is_ready, f"namespaces of {self.name}", SECONDS)
        self.containerd = self._run("containerd", "--config", self._path("containerd.toml"))
        await wait_for(self._containerd_answers, f"containerd of {self.name}", SECONDS, check=self.containerd.check)
        self.start_kubelet(programs(KUBELET)["kubelet"])
        await self.is_up()

    def start_kubelet(self, program: Path) -> None:
        self.kubelet = self._run(str(program), *self._kubelet_flags())

    def replace_kubelet(self, program: Path) -> None:
        """Ends the kubelet, and starts this program in its place. The containers go on."""
        self.kubelet.kill()
        self.programs.remove(self.kubelet)
        self.start_kubelet(program)

    def _run(self, *command: str) -> Program:
        program = self.machine.program(Path(command[0]).name, command)
        self.programs.append(program)
        program.start()
        return program

    async def is_up(self) -> None:
        """Returns once the node is Ready."""
        await self.plane.wait_for(self._is_ready, f"{self.name} is Ready", SECONDS)

    def check(self) -> None:
        """Raises ServerDied if one of its programs ended by itself."""
        for program in self.programs:
            program.check()

    def stop(self) -> None:
        """Ends everything on the node at once, as when its power is cut. Its disk stays."""
        self.machine.kill()
        for program in self.programs:
            program.kill()
        self.programs.clear()

    def restart(self, program: Program) -> None:
        program.kill()
        program.start()

    async def _is_ready(self) -> bool:
        if self.kubelet.has_ended and TOO_EARLY in self.kubelet.last_words()[-500:]:
            self.restart(self.kubelet)  # as systemd does
        self.check()
        found = await self.plane.admin("GET", "/api/v1/nodes")
        return any(one["metadata"]["name"] == self.name and is_ready(one) for one in found["items"])

    def _containerd_answers(self) -> bool:
        socket = Path(f"/proc/{self.machine.first}/root/run/containerd/containerd.sock")
        return socket.exists()

    def _path(self, name: str) -> str:
        return str(self._folder / name)

    def _write_files(self) -> None:
        (self._folder / "cni").mkdir(exist_ok=True)
        self.plane.kubeconfig(self._folder / "kubeconfig", token=self.plane.admin_token, namespace="default")
        snapshotter = "native" if on_overlay(self.disk) else "overlayfs"
        text = CONTAINERD.format(folder=self._folder, pause=PAUSE, snapshotter=snapshotter)
        (self._folder / "containerd.toml").write_text(text)
        (self._folder / "cni" / "10-bridge.conflist").write_text(json.dumps(self._network()))
        (self._folder / "kubelet.json").write_text(json.dumps(self._kubelet_configuration()))

    def _network(self) -> dict[str, object]:
        addresses = {
            "type": "host-local",
            "dataDir": self._path("addresses"),
            "ranges": [[{"subnet": f"10.244.{self._number}.0/24", "gateway": gateway(self._number)}]],
            "routes": [{"dst": EVERYBODY}],
        }
        bridge = {"type": "bridge", "bridge": self.bridge, "isGateway": False, "ipMasq": False, "ipam": addresses}
        return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}

    def _kubelet_flags(self) -> list[str]:
        return [
            f"--config={self._path('kubelet.json')}",
            f"--kubeconfig={self._path('kubeconfig')}",
            f"--root-dir={self.disk / 'kubelet'}",
            f"--cert-dir={self._path('certificates')}",
            f"--hostname-override={self.name}",
            f"--node-ip={gateway(self._number)}",
            f"--node-labels={LABEL}=true",
        ]

    def _kubelet_configuration(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "address": gateway(self._number),
            "healthzPort": 10_300 + self._number,
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self._cgroup,
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "resolvConf": "",
            "imagePullCredentialsVerificationPolicy": "NeverVerify",
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "registryPullQPS": 0,
            "eventRecordQPS": 0,
            "evictionPressureTransitionPeriod": "5s",  # so soon after its disk has room again, a node is usable
            "podLogsDir": str(self.disk / "pods"),
            "nodeStatusUpdateFrequency": "1s",
            "nodeLeaseDurationSeconds": 40,
            "syncFrequency": "10s",  # a changed Secret reaches its Pods; a minute by default
        }
