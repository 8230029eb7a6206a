"""Pools: which nodes a row is bound to. The first that is named counts, and no other (docs/settings.md, Placement)."""

from collections.abc import Mapping
from typing import Any

from dispatcher.model.placement import Pool
from dispatcher.settings.definition import PlacementSettings


def choose_pool(spec: Mapping[str, Any], settings: PlacementSettings) -> Pool | None:
    """`spec` of the row; whether its template lets it name a machine was judged by its kind."""
    if name := spec.get("private_machine"):
        return Pool(settings.private_machine_label, name, is_private=True)
    if name := spec.get("special_machine"):
        return Pool(settings.special_machine_label, name)
    label, _, value = settings.node_selector.partition("=")
    return Pool(label, value) if label else None
