"""The second check of a placement, part of `policy`: a Pod may have only these additions to its template.

* a pool that the row may name,
* preferred nodes,
* a cache below the root.

The check reads only the finished Pod. It does not use the code that builds the Pod.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from dispatcher.jobs.templates import Template
from dispatcher.model.launches import Order
from dispatcher.settings.definition import PlacementSettings

Json = dict[str, Any]
DIGEST: Final = re.compile(r"[0-9a-f]{40}")
NODE: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
NOTES: Final = {f"dispatcher.internal/{name}" for name in ("history-nodes", "cold-nodes", "real-resources")}
CACHE_MOUNT: Final = {"name": "dispatcher-cache", "mountPath": "/cache"}


def placement_violations(pod: Json, order: Order, template: Template, settings: PlacementSettings) -> Iterator[str]:
    base = template.pod_spec
    if order.placement.notes.keys() - NOTES:
        yield "the Pod is told what is no advice"
    ours, theirs = ((spec.get("affinity") or {}) for spec in (pod, base))
    if without_node_affinity(ours) != without_node_affinity(theirs):
        yield "the affinity to other Pods differs from its template"
    demand = demand_of(order.request.spec, template, settings)
    here, there = ((affinity.get("nodeAffinity") or {}) for affinity in (ours, theirs))
    if required(here) != [[*term, *demand] for term in required(there) or [[]] if term or demand]:
        yield "the nodes that it demands are not those of its template and pool"
    if not all(is_preference_by_name(one) for one in entries_added(preferred(here), preferred(there))):
        yield "it prefers something else than nodes by name"
    added = entries_added(pod.get("tolerations"), base.get("tolerations"))
    is_private = bool(order.request.spec.get("private_machine"))
    if added != [{**taint_of(one), "operator": "Equal", "effect": "NoSchedule"} for one in demand if is_private]:
        yield "it tolerates more than its template and pool"


def demand_of(spec: Mapping[str, Any], template: Template, settings: PlacementSettings) -> list[tuple[str, ...]]:
    """The pool's additions to every term of the template: a machine that the row may name, or the default selector."""
    for field, label in (
        ("private_machine", settings.private_machine_label), ("special_machine", settings.special_machine_label)
    ):  # fmt: skip
        if field in spec:
            is_allowed = field in template.opened and any(
                fnmatchcase(str(spec[field]), glob) for glob in template.machines
            )
            return [(label, "In", spec[field])] if is_allowed else []
    label, _, value = settings.node_selector.partition("=")
    return [(label, "In", value)] if label else []


def required(affinity: Json) -> list[list[tuple[str, ...]]]:
    """Required node terms, each as a list of its conditions."""
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or []
    both = ("matchFields", "matchExpressions")
    return [[condition_of(one) for field in both for one in term.get(field) or []] for term in terms]


def condition_of(expression: Json) -> tuple[str, ...]:
    return (expression["key"], expression["operator"], *(expression.get("values") or []))


def taint_of(demand: tuple[str, ...]) -> Json:
    return {"key": demand[0], "value": demand[2]}


def preferred(affinity: Json) -> Sequence[Json]:
    found: Sequence[Json] = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or []
    return found


def without_node_affinity(affinity: Json) -> Json:
    return {key: value for key, value in affinity.items() if key != "nodeAffinity"}


def is_preference_by_name(one: Json) -> bool:
    preference = one.get("preference") or {}
    fields = preference.get("matchFields") or []
    return preference.keys() == {"matchFields"} and len(fields) == 1 and all(
        field["key"] == "metadata.name"
        and field["operator"] in {"In", "NotIn"}
        and all(map(NODE.fullmatch, field["values"]))
        for field in fields
    )  # fmt: skip


def entries_added(ours: Sequence[Json] | None, theirs: Sequence[Json] | None) -> list[Json]:
    """The entries after the template's own. If those are not first and unchanged, `[{}]`, which no check accepts."""
    mine, base = list(ours or []), list(theirs or [])
    return mine[len(base) :] if mine[: len(base)] == base else [{}]


def cache_violations(pod: Json, base: Mapping[str, Any], folder: str) -> Iterator[str]:
    """`folder`: of this installation's caches; empty: there are none."""
    for volume in entries_added(pod.get("volumes"), base.get("volumes")):
        parent, _, name = (volume.get("hostPath") or {}).get("path", "").rpartition("/")
        is_ours = volume == {
            "name": "dispatcher-cache",
            "hostPath": {"path": f"{parent}/{name}", "type": "DirectoryOrCreate"},
        }
        if not (is_ours and folder and parent == folder and DIGEST.fullmatch(name)):
            yield "it has a volume that is neither its template's nor a cache of this installation"


def without_cache(container: Mapping[str, Any]) -> Json:
    """The container without the mount of the cache."""
    mounts = [mount for mount in container.get("volumeMounts") or [] if mount != CACHE_MOUNT]
    rest = {key: value for key, value in container.items() if key != "volumeMounts"}
    return rest | ({"volumeMounts": mounts} if mounts else {})
