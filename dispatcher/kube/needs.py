"""Reads what a Pod needs of a node, from the spec of a Pod template or of a Job."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from dispatcher.kube import wire
from dispatcher.kube.pod_requests import asked_of, limits_of, requests
from dispatcher.model.amounts import Amounts
from dispatcher.model.needs import PodNeeds, Requirement, Term, Toleration

NEVER = "Never"


def needs_of(spec: wire.PlacedPodSpec) -> PodNeeds:
    """The needs of a Pod with this spec. Equal specs give one object."""
    return needs_of_encoded(msgspec.json.encode(spec))


@lru_cache(maxsize=4096)
def needs_of_encoded(encoded: bytes) -> PodNeeds:
    """Jobs of one kind have equal specs, and every event of a Job brings its spec again. The encoding is the key."""
    spec = msgspec.json.decode(encoded, type=wire.PlacedPodSpec)
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required if affinity else None
    return same(
        PodNeeds(
            asks=above_zero(asked_of(spec, requests_with_defaults)),
            tolerations=tuple(toleration_of(one) for one in spec.tolerations or ()),
            selector=tuple(sorted((spec.node_selector or {}).items())),
            terms=tuple(term_of(one) for one in required.node_selector_terms or ()) if required else None,
            priority_class=spec.priority_class_name,
            never_preempts=spec.preemption_policy == NEVER,
            scheduler=spec.scheduler_name,
            is_gated=bool(spec.node_name or spec.scheduling_gates),
            limits=above_zero(limits_of(spec)),
        )
    )


@lru_cache(maxsize=4096)
def same(needs: PodNeeds) -> PodNeeds:
    return needs


def needs_of_manifest(pod: Mapping[str, Any]) -> PodNeeds | None:
    """The needs of a Pod's spec as written by hand. None: the API server would not accept it either."""
    try:
        return needs_of(msgspec.convert({**pod, **with_quantities(pod)}, wire.PlacedPodSpec))
    except (msgspec.ValidationError, AttributeError, TypeError):
        return None


def with_quantities(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with amounts. YAML may have numbers there, and the API server reads them as quantities."""
    lists = {
        field: [with_texts(one) for one in pod[field]] for field in ("containers", "initContainers") if pod.get(field)
    }
    whole = {"resources": as_texts(pod["resources"])} if pod.get("resources") else {}
    overhead = {"overhead": texts(pod["overhead"])} if pod.get("overhead") else {}
    return {**lists, **whole, **overhead}


def with_texts(container: Mapping[str, Any]) -> dict[str, Any]:
    return {**container, "resources": as_texts(container.get("resources") or {})}


def as_texts(resources: Mapping[str, Any]) -> dict[str, Any]:
    return {side: texts(resources[side]) for side in ("requests", "limits") if resources.get(side)}


def texts(amounts: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def requests_with_defaults(container: wire.Container) -> tuple[tuple[str, str], ...]:
    """The requests. A resource that has only a limit is requested by the same amount."""
    return requests({**(container.resources.limits or {}), **(container.resources.requests or {})})


def above_zero(found: Amounts) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, amount) for name, amount in found.items() if amount > 0))


def toleration_of(one: wire.Toleration) -> Toleration:
    return Toleration(one.key, one.operator or "Equal", one.value, one.effect)


def term_of(term: wire.NodeTerm) -> Term:
    return Term(requirements(term.match_expressions or ()), requirements(term.match_fields or ()))


def requirements(written: Iterable[wire.Requirement]) -> tuple[Requirement, ...]:
    return tuple(Requirement(one.key, one.operator, tuple(one.values or ())) for one in written)
