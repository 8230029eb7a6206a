"""Reads what a Pod needs of a node, and how it failed, from its spec and its status. Pure.

`end_of`, `waiting_message`: in the words of kubelet and kube-scheduler. A container writes its termination message
itself. So the message is cut, and has no control characters.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dispatcher.kube import wire
from dispatcher.kube.wire import Condition, Container, ContainerState, ContainerStatus, PodSpec, PodStatus, WirePod
from dispatcher.model.cluster import DEADLINE, ENDED, FORGOTTEN, LATEST, LONG_AGO, START_FAULTS, PodEnd
from dispatcher.model.needs import PodNeeds, Requirement, SelectorTerm, Toleration
from dispatcher.model.resources import LARGEST, Amounts, Written, asked_by, is_quantity, milli_of, without
from dispatcher.model.tasks import printable

ONE_POD: Final = {"pods": 1000}
MOST_NAMES: Final = 1_000
"""Resources that are read of one container, at most. No node has as many. Further extended resources are ignored."""
ALL_THERE_IS: Final = str(LARGEST)


def asked_of(spec: PodSpec, requests_of: Callable[[Container], Written]) -> Amounts:
    """The requests of a Pod, as kube-scheduler counts them."""
    first = tuple((requests_of(one), one.restart_policy == "Always") for one in spec.init_containers or ())
    containers = tuple(requests_of(one) for one in spec.containers)
    named = {name for written in (*containers, *(one for one, _ in first)) for name, _ in written}
    return asked_by((containers, first, requests(spec.overhead), requests_of_whole(spec.resources, named)))


def requests_of_whole(resources: wire.Resources | None, named: Collection[str]) -> Written:
    """The requests of the Pod as a whole. A limit counts as request if no container names the resource."""
    if resources is None:
        return ()
    of_limits = {name: amount for name, amount in (resources.limits or {}).items() if name not in named}
    return requests({**of_limits, **(resources.requests or {})})


def limits_of(spec: PodSpec) -> Amounts:
    """The limits of a Pod, as ResourceQuotas count them. The overhead of a RuntimeClass is left out."""
    first = tuple(
        (requests(one.resources.limits), one.restart_policy == "Always") for one in spec.init_containers or ()
    )
    containers = tuple(requests(one.resources.limits) for one in spec.containers)
    whole = requests(spec.resources.limits if spec.resources else None)
    return without(asked_by((containers, first, (), whole)), ONE_POD)


def taken(container: Container, status: ContainerStatus | None, *, is_refused: bool = False) -> Written:
    """The larger of request and given amount of each resource, as kube-scheduler counts a resized Pod (KEP-1287).

    A text that we cannot read takes all there is: the API server has accepted it as a quantity, and zero would be
    wrong.

    is_refused: the node has refused the request, so only the amount that it gave counts.
    """
    asked = requests(container.resources.requests)
    largest = {name: text if is_quantity(text) else ALL_THERE_IS for name, text in asked}
    if status is None:
        return tuple(largest.items())
    if is_refused and status.allocated_resources:
        largest = {}
    for given in (status.allocated_resources, status.resources.requests if status.resources else None):
        for name, text in requests(given):
            amount = text if is_quantity(text) else ALL_THERE_IS
            if name not in largest or (amount != largest[name] and milli_of(amount) > milli_of(largest[name])):
                largest[name] = amount
    return tuple(largest.items())


def requests(written: dict[str, str] | None) -> Written:
    """The written requests. Of very many names, those of Kubernetes itself come first."""
    items = (written or {}).items()
    if len(items) > MOST_NAMES:
        items = sorted(items, key=lambda one: "/" in one[0])[:MOST_NAMES]  # type: ignore[assignment]  # pairs as well
    return tuple(items)


NEVER = "Never"
LARGEST_JUDGED: Final = 8 * 1024
"""Bytes of a Pod's placement that are judged, at most. Each node is compared with all of it."""
MOST_REQUIREMENTS: Final = 50
"""Node selectors, tolerations and expressions of the node affinity of a judged Pod, at most."""


def needs_of(spec: wire.PlacedPodSpec) -> PodNeeds:
    """The needs of a Pod with this spec. Equal specs give one object. Those of a huge one are not judged."""
    if number_of_requirements(spec) > MOST_REQUIREMENTS:
        return PodNeeds(is_gated=True)
    encoded = msgspec.json.encode(spec)
    return needs_of_encoded(encoded) if len(encoded) <= LARGEST_JUDGED else PodNeeds(is_gated=True)


def number_of_requirements(spec: wire.PlacedPodSpec) -> int:
    required = spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None
    terms = (required.node_selector_terms if required else None) or ()
    of_terms = sum(1 + len(term.match_expressions or ()) + len(term.match_fields or ()) for term in terms)
    return len(spec.node_selector or ()) + len(spec.tolerations or ()) + of_terms


@lru_cache(maxsize=2048)
def needs_of_encoded(encoded: bytes) -> PodNeeds:
    """The needs by the encoding of a spec. Jobs of one kind have equal specs, and every event repeats the spec."""
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


@lru_cache(maxsize=2048)
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


def toleration_of(one: wire.WireToleration) -> Toleration:
    return Toleration(one.key, one.operator or "Equal", one.value, one.effect)


def term_of(term: wire.NodeTerm) -> SelectorTerm:
    return SelectorTerm(requirements(term.match_expressions or ()), requirements(term.match_fields or ()))


def requirements(written: Iterable[wire.WireRequirement]) -> tuple[Requirement, ...]:
    return tuple(Requirement(one.key, one.operator, tuple(one.values or ())) for one in written)


TASK: Final = "task"
MOST_OUTPUT: Final = 2048
"""Bytes of an output that are kept, at most. kubelet keeps as much of a log."""
LONGEST_WORDS: Final = 300
"""Characters of a message that are kept, at most."""


def end_of(wire: WirePod, task: str) -> PodEnd | None:
    """How the Pod failed; None: it has not failed. `task`: name of the template's container."""
    if wire.status.phase != "Failed":
        return None
    status, ended = failed_container(wire, task)
    end = PodEnd() if status is None or ended is None else container_end(wire, status, ended, task)
    said = words(reason_of(wire.status)), disruption(wire), words(wire.status.message)
    return replace(end, reason=said[0], disruption=said[1], message=said[2])


def failed_untold(wire: WirePod) -> bool:
    """Whether the containers of a failed Pod have run, although its kubelet tells of none, as some virtual kubelets do.

    A kubelet that rejects or stops a Pod says why.
    """
    status = wire.status
    is_stopped = wire.metadata.deletion_timestamp is not None or any(map(is_disruption, status.conditions))
    is_told = is_stopped or reason_of(status) or status.container_statuses or status.init_container_statuses
    return status.phase == "Failed" and bool(wire.spec.node_name) and not is_told


def exit_of(wire: WirePod, task: str) -> PodEnd | None:
    """How the task's container ended, whatever the other containers do; None: it has not, or nobody knows.

    kubelet stops a Pod over its own storage limit. A container that ends with 0 then has not done its work.

    Some virtual kubelets tell of no container. All containers of a Pod that has succeeded have ended with 0.
    """
    for status in wire.status.container_statuses or ():
        if status.name == task and (ended := status.state.terminated) is not None:
            is_cut = is_over_own_limit(wire) and not ended.exit_code
            return None if is_cut else container_end(wire, status, ended, task)
    if wire.status.phase == "Succeeded":
        return container_end(wire, ContainerStatus(name=task), ContainerState(), task)
    return None


def is_over_own_limit(wire: WirePod) -> bool:
    """Whether kubelet evicted the Pod for what it did itself, and not because its node needed room."""
    return wire.status.reason == EVICTED and not any(map(is_disruption, wire.status.conditions))


def container_end(wire: WirePod, status: ContainerStatus, ended: ContainerState, task: str) -> PodEnd:
    return PodEnd(
        container=TASK if status.name == task else status.name,
        exit_code=ended.exit_code,
        was_told=was_told(wire, ended),
        cause=words(ended.reason),
        output=tail(ended.message),
        memory_limit=memory_limit(wire.spec, status.name),
        started_at=since_long_ago(ended.started_at),
        ended_at=since_long_ago(ended.finished_at),
    )


REPEATS: Final = re.compile(r"Running|Succeeded|Failed|Completed|Error|Container")
"""Beginnings of reasons by which virtual kubelets repeat the phase, or how the containers ended. kubelet has none."""


def reason_of(status: PodStatus) -> str:
    """Why the kubelet ended the Pod, or rejected it; empty: it did not."""
    return "" if REPEATS.match(status.reason) else status.reason


EVICTED: Final = "Evicted"
BY_KUBELET: Final = "TerminationByKubelet"
"""Reason of the condition of a Pod that its kubelet ends. kubelet sets it only after the end of all containers."""
EVICTION_SECONDS: Final = 15
"""Seconds that kubelet may take beyond the grace period of a Pod until it has written its end."""
USUAL_GRACE_SECONDS: Final = 30
"""The default of terminationGracePeriodSeconds."""
LONGEST: Final = timedelta(days=3650)
"""The longest duration: no time overflows by it."""


APART: Final = timedelta(seconds=2)
"""A container that was told to stop may seem to end so much earlier: the API has whole seconds, and the clock of its
node may be a little behind.
"""


def was_told(wire: WirePod, ended: ContainerState) -> bool:
    """Whether the Pod had been told to stop when the container ended: by a deletion, an eviction, or its deadline.

    A container that its node has forgotten ended with its node, whatever its status says. kubelet evicts a Pod over its
    own storage limit without the condition of a disruption: then the container itself is the cause.
    """
    meta, status, ended_at = wire.metadata, wire.status, since_long_ago(ended.finished_at)
    if ended.reason in FORGOTTEN:
        return True
    told = [disrupted_at(wire, one) for one in status.conditions if is_disruption(one)]
    if meta.deletion_timestamp is not None and meta.deletion_timestamp > LONG_AGO:
        told.append(meta.deletion_timestamp - seconds(meta.deletion_grace_period_seconds or 0))
    by_kubelet, reason = list[datetime](), reason_of(status)
    if reason not in {"", EVICTED}:
        by_kubelet.append(limit_of(wire) if reason == DEADLINE else LONG_AGO)
    if ended_at is None:
        return bool(told or by_kubelet)
    end = ended_at + lag_of_node(status)
    return any(end + APART >= at for at in told) or any(end >= at for at in by_kubelet)


def disrupted_at(wire: WirePod, condition: Condition) -> datetime:
    """The earliest time at which a Pod with the condition DisruptionTarget was told to stop."""
    at = condition.last_transition_time or LONG_AGO
    if condition.reason != BY_KUBELET or at <= LONG_AGO:
        return at
    grace = wire.spec.termination_grace_period_seconds
    return at - seconds(USUAL_GRACE_SECONDS if grace is None else grace) - seconds(EVICTION_SECONDS)


def limit_of(wire: WirePod) -> datetime:
    """When a Pod reached its run limit, by the clock of the API server; long ago: not known."""
    began, limit = wire.status.start_time, wire.spec.active_deadline_seconds
    if began is None or limit is None:
        return LONG_AGO
    return min(began, LATEST) + seconds(limit) + lag_of_node(wire.status)


def seconds(number: int) -> timedelta:
    """A duration that somebody has written, cut so that a time can be moved by it."""
    return timedelta(seconds=min(max(number, 0), LONGEST.total_seconds()))


def lag_of_node(status: PodStatus) -> timedelta:
    """The least lag of the node's clock behind the API server's: a node takes a Pod after its binding."""
    bound = next((one.last_transition_time for one in status.conditions if one.type == "PodScheduled"), None)
    if bound is None or status.start_time is None:
        return timedelta(0)
    return min(max(bound - status.start_time, timedelta(0)), LONGEST)


def since_long_ago(time: datetime | None) -> datetime | None:
    """The time, cut so that it can be reckoned with; None if it is not known."""
    return min(time, LATEST) if time is not None and time > LONG_AGO else None


def failed_container(wire: WirePod, task: str) -> tuple[ContainerStatus | None, ContainerState | None]:
    """The task's container if it failed, otherwise the first one that failed; init containers come first."""
    found = list(failed(wire.status.every_container))
    return next((one for one in found if one[0].name == task), found[0] if found else (None, None))


def failed(statuses: Iterable[ContainerStatus]) -> Iterator[tuple[ContainerStatus, ContainerState]]:
    for status in statuses:
        ended = status.state.terminated or status.last_state.terminated
        if ended is not None and ended.exit_code:
            yield status, ended


def disruption(wire: WirePod) -> str:
    """The reason of the condition DisruptionTarget, such as PreemptionByScheduler; empty: the Pod was not disrupted."""
    return next((words(one.reason) for one in wire.status.conditions if is_disruption(one)), "")


def is_disruption(condition: Condition) -> bool:
    return condition.type == "DisruptionTarget" and condition.status == "True"


def memory_limit(spec: PodSpec, name: str) -> str:
    """The limit of the container, which may be an init container; else that of the Pod as a whole."""
    every = (*(spec.init_containers or ()), *spec.containers)
    limits = [one.resources.limits for one in every if one.name == name]
    limits += [spec.resources.limits] if spec.resources else []
    return next((one["memory"] for one in limits if one and "memory" in one), "")


GATED: Final = "SchedulingGated"


def scheduled_at(conditions: Sequence[Condition]) -> datetime | None:
    placed = (c.last_transition_time for c in conditions if c.type == "PodScheduled" and c.status == "True")
    return since_long_ago(next(placed, None))


def unschedulable_since(conditions: Sequence[Condition]) -> datetime | None:
    """Since when kube-scheduler finds no node: none fits (Unschedulable), or a plugin or extender fails
    (SchedulerError).

    kube-scheduler does not try a gated Pod.
    """
    unplaced = (c for c in conditions if c.type == "PodScheduled" and c.status == "False" and c.reason != GATED)
    return since_long_ago(next((c.last_transition_time for c in unplaced), None))


def start_fault(wire: WirePod, task: str) -> ContainerState | None:
    """The end of the task's container if its node could not start it, and other containers keep the Pod."""
    ended = (one.state.terminated for one in wire.status.container_statuses or () if one.name == task)
    found = next((one for one in ended if one is not None and one.reason in START_FAULTS), None)
    return None if wire.status.phase in ENDED else found


def waiting_reason(wire: WirePod, task: str) -> str:
    """Why a container cannot start. Empty: all start normally."""
    if (fault := start_fault(wire, task)) is not None:
        return fault.reason
    reasons = [one.state.waiting.reason for one in wire.status.every_container if one.state.waiting is not None]
    return next((reason for reason in reasons if reason not in {"", "ContainerCreating", "PodInitializing"}), "")


def waiting_message(wire: WirePod, task: str) -> str:
    """The message of the first container that cannot start, or why kube-scheduler finds no node."""
    if (fault := start_fault(wire, task)) is not None:
        return words(fault.message)
    if wire.status.phase != "Pending":
        return ""
    said = [one.state.waiting.message for one in wire.status.every_container if one.state.waiting is not None]
    unplaced = [one.message for one in wire.status.conditions if one.type == "PodScheduled" and one.status == "False"]
    return next((words(message) for message in (*said, *unplaced) if message), "")


def words(text: str) -> str:
    """The beginning of a message, without control characters."""
    return printable(text[:LONGEST_WORDS])


def tail(output: str) -> str:
    """The end of an output, without control characters."""
    return printable(output).encode()[-MOST_OUTPUT:].decode(errors="ignore")
