"""Judges the kube-scheduler that our Pods name, and the extender that it calls."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from dispatcher.doctor.cluster import Unread
from dispatcher.doctor.finding import Finding, fault, good, or_good, unchecked
from dispatcher.extender import configuration_check

LEASE_SECONDS: Final = 60
"""kube-scheduler renews its lease every two seconds; a new leader takes it over after fifteen."""
RECENT_SECONDS: Final = 600
CALLS: Final = re.compile(r'^dispatcher_extender_config_faults\{fault="([\w-]+)"\} ([0-9.]+)', re.MULTILINE)
Json = Mapping[str, Any]


class SchedulerPod(Struct, frozen=True):  # house: kube-scheduler's own Pod
    """A Pod with kube-scheduler and the extender.

    is_answering: whether kubelet finds the extender ready; None: no status yet.
    configurations: the documents of the ConfigMaps that the Pod mounts.
    metrics: what the extender counts.
    """

    name: str
    is_ready: bool
    is_answering: bool | None
    configurations: Sequence[Json] | Unread
    metrics: str | Unread


class Facts(Struct, frozen=True):
    """Signs that a scheduler of that name works.

    lease_age: seconds since its lease was renewed.
    bound_age: seconds since it bound a Pod; None: it did not lately.
    untried: Pods that name it and that no scheduler has looked at for a while.
    """

    name: str
    namespace: str
    pods: Sequence[SchedulerPod] | Unread
    lease_age: float | Unread
    bound_age: float | Unread | None
    untried: int = 0


def judge_scheduling(facts: Facts) -> Iterator[Finding]:
    yield judge_presence(facts)
    if isinstance(facts.pods, Unread) or not facts.pods:
        why = facts.pods.why if isinstance(facts.pods, Unread) else f"namespace {facts.namespace} has no Pod of it"
        for what in ("ExtenderNotConfigured", "ExtenderNotAnswering", "ExtenderMisused"):
            yield unchecked(what, f"scheduler {facts.name}", why)
        return
    for pod in facts.pods:
        yield from judge_extender(pod, facts)


def judge_presence(facts: Facts) -> Finding:
    where = f"scheduler {facts.name}"
    signs = (facts.lease_age, facts.bound_age, facts.pods)
    is_alive = (
        is_within(facts.lease_age, LEASE_SECONDS)
        or is_within(facts.bound_age, RECENT_SECONDS)
        or (not isinstance(facts.pods, Unread) and any(pod.is_ready for pod in facts.pods))
    )
    names = {"namespace": facts.namespace, "scheduler": facts.name}
    if facts.untried and not is_within(facts.bound_age, RECENT_SECONDS):
        return fault("SchedulerAbsent", where, f"{facts.untried} Pods name it, and no scheduler looks at them", **names)
    if is_alive:
        return good("SchedulerAbsent", where)
    unread = next((sign for sign in signs if isinstance(sign, Unread) and not sign.is_absent), None)
    if unread is not None:
        return unchecked("SchedulerAbsent", where, unread.why)
    said = f"no Pod of it is ready in namespace {facts.namespace}, its lease is not renewed, and it bound no Pod lately"
    return fault("SchedulerAbsent", where, said, **names)


def is_within(age: float | Unread | None, seconds: float) -> bool:
    return isinstance(age, float) and age <= seconds


def judge_extender(pod: SchedulerPod, facts: Facts) -> Iterator[Finding]:
    where = f"Pod {pod.name} in namespace {facts.namespace}"
    if isinstance(pod.configurations, Unread):
        yield unchecked("ExtenderNotConfigured", where, pod.configurations.why)
    else:
        found = [fault("ExtenderNotConfigured", where, why) for why in misconfigured(pod.configurations, facts.name)]
        yield from or_good(found, "ExtenderNotConfigured", where)
    if pod.is_answering is None:
        yield unchecked("ExtenderNotAnswering", where, "it has no container `extender` with a status")
    elif pod.is_answering:
        yield good("ExtenderNotAnswering", where)
    else:
        said = "its container `extender` is not ready"
        yield fault("ExtenderNotAnswering", where, said, namespace=facts.namespace, pod=pod.name)
    if isinstance(pod.metrics, Unread):
        yield unchecked("ExtenderMisused", where, pod.metrics.why)
    else:
        yield from or_good(misuses(pod.metrics, where), "ExtenderMisused", where)


def misconfigured(documents: Sequence[Json], name: str) -> Iterator[str]:
    """Faults of the KubeSchedulerConfiguration."""
    found = [one for one in documents if one.get("kind") == "KubeSchedulerConfiguration"]
    if not found:
        yield "no ConfigMap of the Pod has a KubeSchedulerConfiguration"
        return
    if name not in {profile.get("schedulerName") for one in found for profile in one.get("profiles") or ()}:
        yield f"no profile has the schedulerName {name}"
    extenders = [extender for one in found for extender in one.get("extenders") or ()]
    ours = [one for one in extenders if one.get("filterVerb") == "filter" and one.get("prioritizeVerb") == "prioritize"]
    if not ours:
        yield "no extender has filterVerb: filter and prioritizeVerb: prioritize"
    elif not any(one.get("nodeCacheCapable") for one in ours):
        yield "the extender has no nodeCacheCapable: true"


def misuses(metrics: str, where: str) -> Iterator[Finding]:
    """The faults that the extender has found by its calls."""
    for name, value in CALLS.findall(metrics):
        if float(value) and name in configuration_check.FAULTS:
            yield fault("ExtenderMisused", where, f"{name}: {configuration_check.FAULTS[name]}")
