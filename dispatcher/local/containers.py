"""Turns a container of a Pod into a process: arguments, environment, folders. Says which Pods cannot be processes."""

import sys
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from dispatcher.local.environment import Sources, expand, resolve
from dispatcher.local.facts import Order
from dispatcher.model.quantity import parse_quantity

Json = dict[str, Any]
PROBES_AND_HOOKS: Final = ("livenessProbe", "startupProbe", "readinessProbe", "lifecycle")
VOLUME_KINDS: Final = frozenset({"name", "emptyDir", "hostPath", "configMap", "secret", "projected"})
"""`projected` is an empty folder: it would hold the token of a service account, which a process here does not get."""
PATH: Final = f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Begins with the folder of `dispatcher`, because images of tasks have `dispatcher exec`."""


def why_refused(pod: Json) -> str:
    """Why the Pod cannot run as processes, or empty."""
    spec = pod["spec"]
    if spec.get("restartPolicy") != "Never":
        return "containers run once here: restartPolicy must be Never"
    faults = [f"there are no {part} here" for part in ("initContainers", "ephemeralContainers") if spec.get(part)]
    faults += [fault for container in spec["containers"] for fault in faults_of(container)]
    faults += [
        f"volume {volume['name']} is of a kind that is no folder: {', '.join(sorted(set(volume) - VOLUME_KINDS))}"
        for volume in spec.get("volumes", ())
        if set(volume) - VOLUME_KINDS
    ]
    return next(iter(faults), "")


def faults_of(container: Json) -> list[str]:
    name = container["name"]
    unused = [part for part in PROBES_AND_HOOKS if container.get(part)]
    faults = [f"container {name} has a {part}, and nothing here asks it" for part in unused]
    if not container.get("command"):
        faults.append(f"there are no images here, so container {name} needs a command")
    return faults


def build_order(container: Json, pod: Json, sources: Sources, places: Mapping[str, Path]) -> Order:
    """The process for a container. `places`: folders by volume name. CreateContainerConfigFault: a source is absent."""
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
    """The text; a path below a mount becomes its real folder, because a process has no mounts of its own."""
    for path, folder in sorted(mounts.items(), reverse=True):
        if text == path or text.startswith(f"{path}/"):
            return f"{folder}{text[len(path) :]}"
    return text


def why_too_big(pod: Json, others: Iterable[Json], size: Mapping[str, str]) -> tuple[str, str]:
    """Reason and message if the node lacks what the Pod requests, else empty. The scheduler may have been bypassed."""
    pods = list(others)
    for resource in ("cpu", "memory"):
        unit = 1000 if resource == "cpu" else 1
        wanted, used, capacity = total([pod], resource), total(pods, resource), parse_quantity(size[resource])
        if used + wanted > capacity:
            told = f"requested: {wanted * unit}, used: {used * unit}, capacity: {capacity * unit}"
            return f"OutOf{resource}", f"Pod was rejected: Node didn't have enough resource: {resource}, {told}"
    return "", ""


def total(pods: Iterable[Json], resource: str) -> Fraction:
    """The sum that the Pods request of a resource."""
    containers = [container for pod in pods for container in pod["spec"]["containers"]]
    requests = [container.get("resources", {}).get("requests", {}) for container in containers]
    return sum((parse_quantity(request.get(resource, "0")) for request in requests), Fraction(0))
