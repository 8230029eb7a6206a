"""Folders for the volumes of a Pod. A hostPath is on the node's disk; any other volume ends with the Pod."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dispatcher.local.environment import CreateContainerConfigFault, Source, Sources

Json = dict[str, Any]


def sources_of(volume: Json) -> list[tuple[Source, bool]]:
    """ConfigMaps and Secrets that the volume shows, each with whether it may be absent."""
    found = []
    for kind, field, name in (("ConfigMap", "configMap", "name"), ("Secret", "secret", "secretName")):
        if field in volume:
            found.append(((kind, volume[field][name]), bool(volume[field].get("optional"))))
    return found


def make_volumes(pod: Json, disk: Path, own: Path, sources: Sources) -> dict[str, Path]:
    """Makes the folders, by volume name, below `disk` of the node or `own` of the Pod.

    CreateContainerConfigFault: a source is absent.
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
