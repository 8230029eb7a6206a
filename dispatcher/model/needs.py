"""What a Pod needs of a node, and which nodes the Pod may have whatever their free room. Pure.

The rules are those of kube-scheduler's filters NodeUnschedulable, TaintToleration and NodeAffinity. An operator that is
not known here counts as met: the dispatcher holds a row only if kube-scheduler would find no node for it.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

CORDON_KEY: Final = "node.kubernetes.io/unschedulable"
OF_THE_MOMENT: Final = "node.kubernetes.io/"
"""Prefix of the taints that the control plane sets and removes by itself, such as `not-ready`."""
REFUSING: Final = frozenset({"NoSchedule", "NoExecute"})
"""Effects of taints that keep a Pod from a node. `PreferNoSchedule` only makes it less likely."""
OF_EACH_NODE: Final = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})
"""Resources that every node has."""
KUBE_SCHEDULERS: Final = frozenset(
    {"", "default-scheduler", "gke.io/default-scheduler", "gke.io/optimize-utilization-scheduler"}
)
"""Names by which a Pod goes to the cluster's own kube-scheduler. GKE writes names of its profiles into Pods."""
WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")


class Taint(Struct, frozen=True):
    key: str
    value: str = ""
    effect: str = "NoSchedule"


CORDON: Final = Taint(CORDON_KEY)
OF_THE_START: Final = (
    "startup-taint",
    "ignore-taint",
    "not-ready",
    "uninitialized",
    "unregistered",
    "readiness.k8s.io",
)
"""Words in the keys of taints that a new node has until its agents run. Cluster-autoscaler, Karpenter, cloud providers
and agents set such taints; Cilium's is `node.cilium.io/agent-not-ready`.
"""


class Toleration(Struct, frozen=True):
    """A toleration of a Pod. An empty key or effect means: every one."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(Struct, frozen=True):
    """A requirement on one label of a node, or on its name."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class SelectorTerm(Struct, frozen=True):
    """Requirements that must all be met: on labels, and on fields. Without any it matches no node."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


class PodNeeds(Struct, frozen=True, cache_hash=True):
    """What a Pod needs of a node. Pods with equal needs fit the same nodes.

    asks: requested amounts above 0, in thousandths, by resource.
    tolerations: taints that do not keep it from a node.
    selector: labels that the node must have.
    terms: required node affinity, of which one term must match; None: no affinity.
    priority_class: name of its PriorityClass; empty: the cluster's default.
    never_preempts: its own `preemptionPolicy` is Never.
    scheduler: name of the scheduler that places it; empty: kube-scheduler.
    is_gated: it has a fixed node or scheduling gates, so no free room decides when it is placed.
    limits: its limits above 0, in thousandths, by resource. Only ResourceQuotas count them.
    """

    asks: tuple[tuple[str, int], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[SelectorTerm, ...] | None = None
    priority_class: str = ""
    never_preempts: bool = False
    scheduler: str = ""
    is_gated: bool = False
    limits: tuple[tuple[str, int], ...] = ()


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> Taint | None:
    """The first taint that keeps the Pod away; None: there is none."""
    refusing = (taint for taint in taints if taint.effect in REFUSING)
    return next((taint for taint in refusing if not any(tolerates(one, taint) for one in tolerations)), None)


def keeps_away_for_good(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    """Whether a taint keeps the Pod away that stays after the node has started, such as the taint of its pool."""
    return untolerated((taint for taint in taints if not is_of_the_start(taint)), tolerations) is not None


def is_of_the_start(taint: Taint) -> bool:
    """Whether the taint goes when the node has started. A cordon does not."""
    return taint != CORDON and (taint.key.startswith(OF_THE_MOMENT) or any(word in taint.key for word in OF_THE_START))


def tolerates(one: Toleration, taint: Taint) -> bool:
    if one.effect not in {"", taint.effect} or one.key not in {"", taint.key}:
        return False
    if one.operator in {"", "Equal"}:
        return one.value == taint.value
    return one.operator not in {"Gt", "Lt"} or is_met(one.operator, taint.value, (one.value,))


def is_selected(needs: PodNeeds, name: str, labels: Mapping[str, str]) -> bool:
    """Whether the Pod's node selector and required node affinity match the node."""
    if any(labels.get(key) != value for key, value in needs.selector):
        return False
    return needs.terms is None or any(matches(term, name, labels) for term in needs.terms)


def fits_wherever(one: PodNeeds, other: PodNeeds) -> bool:
    """Whether the first Pod may have every node that the other Pod may have, if both are small enough."""
    schedulers = {one.scheduler, other.scheduler}
    if (len(schedulers) > 1 and not schedulers <= KUBE_SCHEDULERS) or one.is_gated or other.is_gated:
        return False
    if (one.terms is not None and one.terms != other.terms) or not all(pair in other.selector for pair in one.selector):
        return False
    asked = dict(other.asks)
    return all(each in one.tolerations or each.key.startswith(OF_THE_MOMENT) for each in other.tolerations) and all(
        name in OF_EACH_NODE or name in asked for name, _ in one.asks
    )


def matches(term: SelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    if not (term.labels or term.fields):
        return False
    for one in term.labels:  # plain loops: a search of nodes spends most of its time here
        if not is_met(one.operator, labels.get(one.key), one.values):
            return False
    return all(is_met(one.operator, name if one.key == "metadata.name" else None, one.values) for one in term.fields)


def is_met(operator: str, value: str | None, values: tuple[str, ...]) -> bool:
    """Whether the value of a label meets the requirement. `value` None: the node has no such label."""
    test = OPERATORS.get(operator)
    return test is None or test(value, values)


def exceeds(greater: str | None, smaller: str | None) -> bool:
    """Whether both texts are whole numbers, and the first one is greater."""
    larger, lesser = whole_number(greater), whole_number(smaller)
    return larger is not None and lesser is not None and larger > lesser


@lru_cache(maxsize=4096)
def whole_number(text: str | None) -> int | None:
    return int(text) if text is not None and WHOLE_NUMBER.fullmatch(text) else None


OPERATORS: Final[Mapping[str, Callable[[str | None, tuple[str, ...]], bool]]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: exceeds(value, next(iter(values), None)),
    "Lt": lambda value, values: exceeds(next(iter(values), None), value),
}
