"""What a container of a Pod is as a process: its words, its environment, its folders; and what cannot be one."""

import sys
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from dispatcher.local.environment import Sources, expand, resolve
from dispatcher.local.facts import Order
from dispatcher.model.quantity import parse_quantity

Json = dict[str, Any]
ASKED: Final = ("livenessProbe", "startupProbe", "readinessProbe", "lifecycle")
KINDS: Final = frozenset({"name", "emptyDir", "hostPath", "configMap", "secret", "projected"})
"""A projected volume holds the token of a service account, which a process here is not given: its folder is empty."""
PATH: Final = f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""With what an image of ours would have: `dispatcher exec`."""


def why_refused(pod: Json) -> str:
    """What of this Pod needs more than a process; empty: nothing."""
    spec = pod["spec"]
    if spec.get("restartPolicy") != "Never":
        return "containers run once here: restartPolicy must be Never"
    faults = [f"there are no {part} here" for part in ("initContainers", "ephemeralContainers") if spec.get(part)]
    faults += [fault for container in spec["containers"] for fault in faults_of(container)]
    faults += [
        f"volume {volume['name']} is of a kind that is no folder: {', '.join(sorted(set(volume) - KINDS))}"
        for volume in spec.get("volumes", ())
        if set(volume) - KINDS
    ]
    return next(iter(faults), "")


def faults_of(container: Json) -> list[str]:
    name = container["name"]
    faults = [f"container {name} has a {part}, and nothing here asks it" for part in ASKED if container.get(part)]
    if not container.get("command"):
        faults.append(f"there are no images here, so container {name} needs a command")
    return faults


def build_order(container: Json, pod: Json, sources: Sources, places: Mapping[str, Path]) -> Order:
    """`places`: the folder of each volume, by name. CreateContainerConfigFault: something it names is not there."""
    mounts = {
        mount["mountPath"].rstrip("/"): places[mount["name"]] / mount.get("subPath", "")
        for mount in container.get("volumeMounts", ())
    }
    env = resolve(container, pod, sources)
    words = [expand(word, env) for word in [*container["command"], *container.get("args", ())]]
    return Order(
        argv=[moved(word, mounts) for word in words],
        env={"PATH": PATH, **{name: moved(value, mounts) for name, value in env.items()}},
        cwd=moved(container.get("workingDir", "/"), mounts),
    )


def moved(text: str, mounts: Mapping[str, Path]) -> str:
    """A path below a mount as the folder it stands for: a process has no mounts of its own."""
    for path, folder in sorted(mounts.items(), reverse=True):
        if text == path or text.startswith(f"{path}/"):
            return f"{folder}{text[len(path) :]}"
    return text


def why_too_big(pod: Json, others: Iterable[Json], size: Mapping[str, str]) -> tuple[str, str]:
    """Reason and message where the node has not got what a Pod requests; the scheduler may have been passed by."""
    pods = list(others)
    for resource in ("cpu", "memory"):
        unit = 1000 if resource == "cpu" else 1
        wanted, used, there = total([pod], resource), total(pods, resource), parse_quantity(size[resource])
        if used + wanted > there:
            told = f"requested: {wanted * unit}, used: {used * unit}, capacity: {there * unit}"
            return f"OutOf{resource}", f"Pod was rejected: Node didn't have enough resource: {resource}, {told}"
    return "", ""


def total(pods: Iterable[Json], resource: str) -> Fraction:
    """What Pods request of a resource."""
    containers = [container for pod in pods for container in pod["spec"]["containers"]]
    requests = [container.get("resources", {}).get("requests", {}) for container in containers]
    return sum((parse_quantity(request.get(resource, "0")) for request in requests), Fraction(0))
