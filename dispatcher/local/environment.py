"""The environment of a container, built as kubelet builds it (`makeEnvironmentVariables`).

Order: the `envFrom` sources, then the list `env`. Later entries replace earlier ones. `$(NAME)` in a value is replaced
if NAME comes *earlier* in this order. Unknown names stay as written. `$$` is one `$`. Only `value` is expanded, never
the value of a reference. Not supported: `resourceFieldRef`, and the variables of Services.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]
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
