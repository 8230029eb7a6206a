"""How our own Pods are confined: by their specification, and by what the kernel says of their processes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.controlplane.api import Json
from tests.node.cgroups import hierarchies
from tests.node.install import OURS
from tests.node.installation import Installation

USER: Final = 65532
OF_CONTAINER: Final = {
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
NOTHING: Final = "0" * 16
STRICT: Final = {
    "Uid": "\t".join([str(USER)] * 4),
    "CapInh": NOTHING,
    "CapPrm": NOTHING,
    "CapEff": NOTHING,
    "CapBnd": NOTHING,
    "CapAmb": NOTHING,
    "NoNewPrivs": "1",
    "Seccomp": "2",  # a filter
}
"""Lines of `/proc/PID/status` of a process that has no right of root's."""


async def pods_of_ours(there: Installation, component: str = "") -> list[Json]:
    """Pods of all programs of ours, or of one. Those that end, for example of before an upgrade, do not count."""
    labels = {"app.kubernetes.io/component": component} if component else {}
    return [pod for pod in await there.pods(OURS, **labels) if "deletionTimestamp" not in pod["metadata"]]


def wrong_in_specification(pod: Json) -> list[object]:
    """What the Pod and its containers ask for, where it is not confined."""
    asked = pod["spec"]["securityContext"]
    parts = {"seccompProfile": {"type": "RuntimeDefault"}, "runAsUser": USER, "runAsNonRoot": True}
    of_pod = [(name, asked.get(name)) for name, wanted in parts.items() if asked.get(name) != wanted]
    containers = pod["spec"]["containers"]
    return of_pod + [one["securityContext"] for one in containers if one["securityContext"] != OF_CONTAINER]


def status_of_each_process(pod: Json) -> dict[str, list[dict[str, str]]]:
    """The lines that STRICT has, of each process, by the name of its container. Ended containers have no process."""
    running = [one for one in pod["status"]["containerStatuses"] if "running" in one["state"]]
    found = {one["name"]: [status_of(pid) for pid in pids_of(pod, one["containerID"])] for one in running}
    assert all(found.values()), f"no process of a container was found: {found}"
    return found


def pids_of(pod: Json, container: str = "") -> set[str]:
    """Pids of one container's processes, or of all of the Pod. `container`: with its scheme, as kubelet reports it."""
    _, _, name = container.partition("://")
    return {pid for file in cgroups_of(pod, name) for pid in file.read_text().split()}


def cgroups_of(pod: Json, container: str) -> Iterator[Path]:
    for top in hierarchies():
        for folder in top.glob(f"**/pod{pod['metadata']['uid']}"):
            yield from folder.glob(f"{container}/**/cgroup.procs" if container else "**/cgroup.procs")


def status_of(pid: str) -> dict[str, str]:
    """Without the lines that STRICT does not have."""
    lines = [line.partition(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
    return {name: text for name, _, text in lines if name in STRICT}
