"""Turns a container of a Pod into a process: arguments, environment, folders. Says which Pods cannot be processes.

`resolve`: the environment, built as kubelet builds it (`makeEnvironmentVariables`). Order: the `envFrom` sources, then
the list `env`. Later entries replace earlier ones. `$(NAME)` in a value is replaced if NAME comes *earlier* in this
order. Unknown names stay as written. `$$` is one `$`. Only `value` is expanded, never the value of a reference. Not
supported: `resourceFieldRef`, and the variables of Services.

`make_volumes`: the folders for the volumes of a Pod. A hostPath is on the node's disk; any other volume ends with the
Pod.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Final

from dispatcher.model.resources import parse_quantity
from dispatcher.model.stored_json import Json
from dispatcher_demo.node.statuses import ProcessOrder

Source = tuple[str, str]  # kind (`ConfigMap` or `Secret`) and name
Sources = Mapping[Source, Mapping[str, str]]  # absent objects are left out

_MARK = re.compile(r"\$(?:(\$)|\(([^)]*)\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
_FIELDS = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
    "metadata.uid": ("metadata", "uid"),
    "spec.nodeName": ("spec", "nodeName"),
    "spec.serviceAccountName": ("spec", "serviceAccountName"),
    "status.hostIP": ("status", "hostIP"),
    "status.podIP": ("status", "podIP"),
}


class CreateContainerConfigFault(Exception):
    """kubelet cannot start the container at present (reason CreateContainerConfigError)."""


def resolve(container: Json, pod: Json, sources: Sources) -> dict[str, str]:
    """All variables of the container. `sources`: the ConfigMaps and Secrets that it names, decoded."""
    env: dict[str, str] = {}
    for entry in container.get("envFrom", ()):
        source, optional = _reference(entry, "Ref")
        found = sources.get(source)
        if found is None and not optional:
            raise CreateContainerConfigFault(f'{source[0].lower()} "{source[1]}" not found')
        env.update({entry.get("prefix", "") + name: value for name, value in (found or {}).items()})
    for entry in container.get("env", ()):
        value = _value(entry, pod, sources, env)
        if value is not None:
            env[entry["name"]] = value
    return env


def expand(text: str, known: Mapping[str, str]) -> str:
    """The text with known `$(NAME)` replaced by their values and `$$` by `$`, in one pass from the left."""
    return _MARK.sub(lambda mark: "$" if mark[1] else known.get(mark[2], mark[0]), text)


def field(pod: Json, path: str) -> str:
    """The value that a `fieldRef` to `path` gives. An absent label or annotation gives the empty string."""
    if subscript := _SUBSCRIPT.fullmatch(path):
        return str(pod["metadata"].get(subscript[1], {}).get(subscript[2], ""))
    if path not in _FIELDS:
        raise CreateContainerConfigFault(f"fieldPath {path} cannot be given here")
    part, name = _FIELDS[path]
    return str(pod[part].get(name, ""))


def references(container: Json) -> set[Source]:
    """The ConfigMaps and Secrets that `resolve` needs."""
    return {_reference(entry, "Ref")[0] for entry in container.get("envFrom", ())} | {
        _reference(entry["valueFrom"], "KeyRef")[0] for entry in container.get("env", ()) if _has_key_reference(entry)
    }


def _value(entry: Json, pod: Json, sources: Sources, known: Mapping[str, str]) -> str | None:
    """The value of one entry. None if its optional reference leads nowhere: then the variable does not exist."""
    if entry.get("value"):
        return expand(entry["value"], known)
    if "valueFrom" not in entry:
        return ""
    if "fieldRef" in entry["valueFrom"]:
        return field(pod, entry["valueFrom"]["fieldRef"]["fieldPath"])
    if not _has_key_reference(entry):
        raise CreateContainerConfigFault(f"{entry['name']}: {next(iter(entry['valueFrom']))} cannot be given here")
    (kind, name), optional = _reference(entry["valueFrom"], "KeyRef")
    key = next(_named(entry["valueFrom"], "KeyRef"))[1]["key"]
    found = sources.get((kind, name), {}).get(key)
    if found is None and not optional:
        raise CreateContainerConfigFault(f"couldn't find key {key} in {kind} {name}")
    return found


def _has_key_reference(entry: Json) -> bool:
    return any(True for _ in _named(entry.get("valueFrom", {}), "KeyRef"))


def _reference(entry: Json, suffix: str) -> tuple[Source, bool]:
    kind, named = next(_named(entry, suffix))
    return (kind, named["name"]), named.get("optional", False)


def _named(entry: Json, suffix: str) -> Iterator[tuple[str, Json]]:
    for kind in ("ConfigMap", "Secret"):
        key = kind[0].lower() + kind[1:] + suffix
        if key in entry:
            yield kind, entry[key]


PROBES_AND_HOOKS: Final = ("livenessProbe", "startupProbe", "readinessProbe", "lifecycle")
VOLUME_KINDS: Final = frozenset({"name", "emptyDir", "hostPath", "configMap", "secret", "projected"})
"""The supported kinds. `projected` is an empty folder: no process gets the token of a service account."""
PATH: Final = f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""It begins with the folder of `dispatcher`, because images of tasks have `dispatcher exec`."""


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
    unused = [part for part in (*PROBES_AND_HOOKS, "restartPolicyRules") if container.get(part)]
    faults = [f"container {name} has a {part}, and nothing here asks it" for part in unused]
    if not container.get("command"):
        faults.append(f"there are no images here, so container {name} needs a command")
    return faults


def build_order(container: Json, pod: Json, sources: Sources, places: Mapping[str, Path]) -> ProcessOrder:
    """The process for a container. `places`: folders by volume name. CreateContainerConfigFault: a source is
    missing.
    """
    mounts = {
        mount["mountPath"].rstrip("/"): places[mount["name"]] / mount.get("subPath", "")
        for mount in container.get("volumeMounts", ())
    }
    env = resolve(container, pod, sources)
    words = [expand(word, env) for word in [*container["command"], *container.get("args", ())]]
    return ProcessOrder(
        argv=[moved(word, mounts) for word in words],
        env={"PATH": PATH, **{name: moved(value, mounts) for name, value in env.items()}},
        cwd=moved(container.get("workingDir", "/"), mounts),
    )


def moved(text: str, mounts: Mapping[str, Path]) -> str:
    """The text, in which a path below a mount becomes its real folder, because a process has no mounts of its own."""
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
    """The sum of the Pods' requests of a resource."""
    containers = [container for pod in pods for container in pod["spec"]["containers"]]
    requests = [container.get("resources", {}).get("requests", {}) for container in containers]
    return sum((parse_quantity(request.get(resource, "0")) for request in requests), Fraction(0))


def sources_of(volume: Json) -> list[tuple[Source, bool]]:
    """ConfigMaps and Secrets that the volume shows, each with whether it may be absent."""
    found = []
    for kind, field, name in (("ConfigMap", "configMap", "name"), ("Secret", "secret", "secretName")):
        if field in volume:
            found.append(((kind, volume[field][name]), bool(volume[field].get("optional"))))
    return found


def make_volumes(pod: Json, disk: Path, own: Path, sources: Sources) -> dict[str, Path]:
    """Makes the folders, by volume name, below `disk` of the node or `own` of the Pod.

    Raises CreateContainerConfigFault if a source is missing.
    """
    places: dict[str, Path] = {}
    for volume in pod["spec"].get("volumes", ()):
        path = volume.get("hostPath", {}).get("path")
        places[volume["name"]] = place = disk / path.lstrip("/") if path else own / volume["name"]
        place.mkdir(parents=True, exist_ok=True)
        for source, is_optional in sources_of(volume):
            if source not in sources and not is_optional:
                raise CreateContainerConfigFault(f'{source[0].lower()} "{source[1]}" not found')
            write_files(place, sources.get(source, {}))
    for container in pod["spec"]["containers"]:
        for mount in container.get("volumeMounts", ()):
            (places[mount["name"]] / mount.get("subPath", "")).mkdir(parents=True, exist_ok=True)
    return places


def write_files(place: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (place / name).write_bytes(os.fsencode(text))
