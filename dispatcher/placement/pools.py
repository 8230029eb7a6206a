"""The pool of a row: the nodes that its Pods may go to. The first pool that is named counts (docs/settings.md)."""

from collections.abc import Mapping
from typing import Any

from dispatcher.model.placement import Pool
from dispatcher.settings.definition import PlacementSettings


def choose_pool(spec: Mapping[str, Any], settings: PlacementSettings) -> Pool | None:
    """`spec`: the row's spec. The bounds of its template, which may forbid to name a machine, are checked before."""
    if name := spec.get("private_machine"):
        return Pool(settings.private_machine_label, name, is_private=True)
    if name := spec.get("special_machine"):
        return Pool(settings.special_machine_label, name)
    label, _, value = settings.node_selector.partition("=")
    return Pool(label, value) if label else None
