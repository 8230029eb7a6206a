"""Judges the cluster and what runs in it. Pure.

`judge_cluster`: API server, rights, namespaces, admission policy, and how fast Jobs get their Pods.

`judge_running`: whether the programs of an installation run, and whether one replica of the dispatcher leads.

`judge_caches`: whether each node has a cache keeper at work, and whether a disk stays full.

`judge_prometheus`: whether Prometheus answers, and has the metrics that real use is computed from.

`judge_scheduling`: the kube-scheduler that our Pods name, and the extender that it calls.
"""

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from dispatcher.doctor.finding import Finding, Installation, fault, fault_if, good, or_good, unchecked, warning
from dispatcher.extender import configuration
from dispatcher.model.jobs import Json
from dispatcher.model.rights import InstallationSite, Verb, account_of

OLDEST_MINOR: Final = 31
"""The oldest minor version of Kubernetes that is supported."""
ENOUGH_JOBS: Final = 5
"""Recent Jobs that are needed to judge their delay."""
SLOWEST_SECONDS: Final = 5
"""Seconds from a Job to its Pod that are slow. With default flags it takes as long after about 25 other Jobs."""


class UnreadObject(Struct, frozen=True):
    """An object that could not be read. `is_absent`: the API server says that it does not exist."""

    why: str
    is_absent: bool = False


class Permission(Struct, frozen=True):
    """Whether a program may do something; None: the question had no answer, for the reason `why`."""

    program: str
    verb: Verb
    is_allowed: bool | None
    why: str = ""


class Policies(Struct, frozen=True):
    """All ValidatingAdmissionPolicies of the cluster, and their bindings."""

    policies: Sequence[Json]
    bindings: Sequence[Json]


class ClusterState(Struct, frozen=True):
    """The cluster, as it was read.

    version: major and minor version, as the API server writes them.
    namespaces: each namespace of the installation.
    allowed: the answer for each verb.
    delays: seconds from the creation of a Job to that of its Pod, for recent Jobs.
    """

    site: InstallationSite
    version: tuple[str, str] | UnreadObject
    namespaces: Mapping[str, Json | UnreadObject]
    allowed: Sequence[Permission]
    policies: Policies | UnreadObject
    delays: Sequence[float] | UnreadObject
    installation: Installation = Installation()


def judge_cluster(facts: ClusterState) -> Iterator[Finding]:
    yield good("ApiServerAway", "API server")
    yield from judge_version(facts.version)
    for name, found in facts.namespaces.items():
        yield from judge_namespace(name, found)
    yield from judge_rights(facts)
    yield from judge_policy(facts)
    yield from judge_delays(facts)


def judge_version(version: tuple[str, str] | UnreadObject) -> Iterator[Finding]:
    if isinstance(version, UnreadObject):
        yield unchecked("ApiServerTooOld", "API server", version.why)
        return
    major, minor = map(number, version)
    is_old = (major, minor) < (1, OLDEST_MINOR)
    yield fault_if(is_old, "ApiServerTooOld", "API server", f"it is Kubernetes {major}.{minor}")


def number(text: str) -> int:
    """A part of a version as a number. Some clusters write `33+`."""
    return int(re.sub(r"\D.*", "", text) or "0")


def judge_namespace(name: str, found: Json | UnreadObject) -> Iterator[Finding]:
    where = f"namespace {name}"
    if isinstance(found, UnreadObject) and not found.is_absent:
        yield unchecked("NamespaceMissing", where, found.why)
    elif isinstance(found, UnreadObject):
        yield fault("NamespaceMissing", where, "it does not exist", namespace=name)
    elif is_terminating(found):
        yield fault("NamespaceTerminating", where, "it is being deleted", namespace=name)
    else:
        yield good("NamespaceMissing", where)


def is_terminating(namespace: Json) -> bool:
    return bool(namespace.get("status", {}).get("phase") == "Terminating")


def is_usable(namespace: Json | UnreadObject) -> bool:
    """Whether nothing is known against making Jobs in the namespace."""
    return not namespace.is_absent if isinstance(namespace, UnreadObject) else not is_terminating(namespace)


def judge_rights(facts: ClusterState) -> Iterator[Finding]:
    """One finding for each program, and one fault for each place where it lacks verbs."""
    for program, answers in groupby(facts.allowed, lambda one: one.program):
        found = list(answers)
        account = f"account {account_of(program, facts.site)}"
        if unasked := next((one for one in found if one.is_allowed is None), None):
            yield unchecked("MissingVerb", account, unasked.why)
            continue
        # A namespace takes its Roles with it.
        there = {name for name, one in facts.namespaces.items() if is_usable(one)} | {""}
        missing = [one.verb for one in found if not one.is_allowed and one.verb.namespace in there]
        for namespace, verbs in groupby(sorted(missing, key=where_of), where_of):
            said = f"not allowed: {', '.join(map(str, verbs))}"
            where = f"{account} in namespace {namespace}" if namespace else f"{account}, cluster-wide"
            yield fault("MissingVerb", where, said, **facts.installation.words)
        if not missing:
            yield good("MissingVerb", account)


def where_of(verb: Verb) -> str:
    return verb.namespace


def judge_policy(facts: ClusterState) -> Iterator[Finding]:
    """Judges the admission policy. An installation without cluster-wide rights has none: a policy is cluster-wide."""
    site, found = facts.site, facts.policies
    where = f"policy for Jobs in namespace {site.jobs}"
    if isinstance(found, UnreadObject):
        yield unchecked("PolicyMissing", where, found.why)
        return
    ours = [one for one in found.policies if is_ours(one, site)]
    if not ours and not site.check_room:
        yield unchecked("PolicyMissing", where, "an installation without cluster-wide rights has none")
    elif not ours:
        yield judge_absence(where, facts.installation)
    elif why := why_without_effect(ours, found.bindings, facts):
        yield fault("PolicyUnbound", where, why, **facts.installation.words)
    else:
        yield good("PolicyMissing", where)


def why_without_effect(policies: Sequence[Json], bindings: Sequence[Json], facts: ClusterState) -> str:
    """Why none of these policies of ours judges the Jobs of `run`; empty: one does."""
    names = [one["metadata"]["name"] for one in policies]
    if not any(is_enforced(one, names) for one in bindings):
        return f"no binding enforces ValidatingAdmissionPolicy {', '.join(names)}"
    account = f"system:serviceaccount:{facts.site.ours}:{facts.site.installation}"
    is_found = bool(facts.installation.secret)  # else our programs may be in another namespace
    if is_found and not any(is_about(one, account) for one in policies):
        return f"ValidatingAdmissionPolicy {', '.join(names)} is not about {account}, so it judges no Job of ours"
    return ""


def is_about(policy: Json, account: str) -> bool:
    """Whether the policy judges the account: its conditions name it, or nobody."""
    conditions = [one["expression"] for one in policy["spec"].get("matchConditions", ())]
    return f"'{account}'" in " ".join(conditions) or not conditions


def judge_absence(where: str, installation: Installation) -> Finding:
    """The finding for a missing policy. It is a fault only if the installation is known to want one."""
    said = "no ValidatingAdmissionPolicy is about the Jobs of this installation"
    if installation.wants_policy:
        return fault("PolicyMissing", where, said, **installation.words)
    chosen = ", as its value policy.enabled=false says"
    unknown = ", and the Deployment that tells whether it is to have one cannot be read"
    more = unknown if installation.wants_policy is None else chosen
    return warning("PolicyMissing", where, said + more, **installation.words)


def is_ours(policy: Json, site: InstallationSite) -> bool:
    """Whether the policy has our variables, with the values of this installation."""
    variables = {one["name"]: one["expression"].strip() for one in policy["spec"].get("variables", ())}
    return (
        variables.get("jobsNamespace") == f"'{site.jobs}'" and variables.get("installation") == f"'{site.installation}'"
    )


def is_enforced(binding: Json, names: Sequence[str]) -> bool:
    spec = binding["spec"]
    return spec.get("policyName") in names and "Deny" in spec.get("validationActions", ())


def judge_delays(facts: ClusterState) -> Iterator[Finding]:
    where, found = f"Jobs in namespace {facts.site.jobs}", facts.delays
    if isinstance(found, UnreadObject):
        yield unchecked("JobControllerSlow", where, found.why)
    elif len(found) < ENOUGH_JOBS:
        yield unchecked("JobControllerSlow", where, f"{len(found)} recent Jobs have a Pod, fewer than {ENOUGH_JOBS}")
    elif (middle := statistics.median(found)) > SLOWEST_SECONDS:
        said = f"half of {len(found)} recent Jobs waited more than {middle:.0f} s for their Pod"
        yield warning("JobControllerSlow", where, said)
    else:
        yield good("JobControllerSlow", where)


class PodCount(Struct, frozen=True):
    """The Pods of a Deployment or of a DaemonSet: how many there should be, and how many are ready."""

    wanted: int
    ready: int


class LeaseTerm(Struct, frozen=True):
    """The Lease of the dispatcher.

    holder: empty: nobody leads.
    age: seconds since it was renewed.
    seconds: seconds for which it counts after a renewal.
    """

    holder: str
    age: float
    seconds: float


class RunningFacts(Struct, frozen=True):
    """Programs and lease. `programs`: by name of the Deployment, the dispatcher's first."""

    programs: Mapping[str, PodCount | UnreadObject]
    term: LeaseTerm | UnreadObject


NO_JANITOR: Final = "janitor.enabled=false: unless a janitor runs elsewhere, no cancel ends, and parked rows stay"


def judge_running(facts: RunningFacts, names: Mapping[str, str], *, wants_janitor: bool = True) -> Iterator[Finding]:
    """Judges the programs. Without a Deployment the dispatcher runs elsewhere, unseen.

    names: words for commands.
    wants_janitor: whether the installation is to have a janitor.
    """
    first = next(iter(facts.programs.values()))
    if isinstance(first, UnreadObject) and first.is_absent:
        return
    is_stopped = isinstance(first, PodCount) and not first.wanted
    for name, found in list(facts.programs.items())[: 1 if is_stopped else None]:
        yield judge_program(name, found, names, is_wanted=wants_janitor)
    if not is_stopped:
        yield judge_term(facts.term, names, is_wanted=isinstance(first, PodCount))


def judge_program(name: str, found: PodCount | UnreadObject, names: Mapping[str, str], *, is_wanted: bool) -> Finding:
    where, component = f"Deployment {name} in namespace {names['namespace']}", name.removeprefix(names["installation"])
    words = {**names, "deployment": name, "component": component.lstrip("-") or "run"}
    if isinstance(found, UnreadObject):
        if found.is_absent and is_wanted:
            return fault("ProgramNotReady", where, "there is none", **words)
        return unchecked("ProgramNotReady", where, NO_JANITOR if found.is_absent else found.why)
    if not found.wanted:
        return warning("ProgramNotReady", where, "it is scaled to 0", **words)
    if not found.ready:
        return fault("ProgramNotReady", where, f"0 of {found.wanted} Pods are ready", **words)
    return good("ProgramNotReady", where)


def judge_term(term: LeaseTerm | UnreadObject, names: Mapping[str, str], *, is_wanted: bool) -> Finding:
    """Judges the Lease. `is_wanted` False: it is not known whether there should be a replica."""
    where = f"Lease {names['installation']}-leader in namespace {names['namespace']}"
    if isinstance(term, UnreadObject):
        absent = fault("NoLeader", where, "there is none: no replica has led yet", **names)
        return absent if term.is_absent and is_wanted else unchecked("NoLeader", where, term.why)
    if not term.holder or term.age > term.seconds:
        renewed = f"it was renewed {term.age:.0f} s ago" if math.isfinite(term.age) else "it was never renewed"
        told = f"{renewed}, and counts for {term.seconds:.0f} s"
        return fault("NoLeader", where, told, **names)
    return good("NoLeader", where)


class CacheFacts(Struct, frozen=True):
    """What the API server has about caches.

    keepers: the Pods of the cache keepers.
    full: the newest Event of the last hour about a full disk, by node.
    """

    keepers: PodCount | UnreadObject
    full: Mapping[str, str] | UnreadObject


def judge_caches(facts: CacheFacts, names: Mapping[str, str]) -> Iterator[Finding]:
    """Judges keepers and disks. `names`: words for commands."""
    yield from judge_keepers(facts.keepers, names)
    if isinstance(facts.full, UnreadObject):
        yield unchecked("CacheDiskFull", "Events about nodes", facts.full.why)
        return
    full = sorted(facts.full.items())
    found = (fault("CacheDiskFull", f"node {node}", words, node=node, **names) for node, words in full)
    yield from or_good(found, "CacheDiskFull", "every node")


def judge_keepers(found: PodCount | UnreadObject, names: Mapping[str, str]) -> Iterator[Finding]:
    where = f"DaemonSet {names['installation']}-cache-keeper in namespace {names['namespace']}"
    if isinstance(found, UnreadObject):
        if found.is_absent:
            yield warning("CacheKeeperAbsent", where, "there is none: nobody removes cache directories", **names)
        else:
            yield unchecked("CacheKeeperAbsent", where, found.why)
    elif found.ready < found.wanted:
        yield fault("CacheKeeperAbsent", where, f"{found.ready} of {found.wanted} Pods are ready", **names)
    else:
        yield good("CacheKeeperAbsent", where)


def judge_prometheus(
    url: str, series: Mapping[str, bool] | UnreadObject, *, is_asked_in_pod: bool = True
) -> Iterator[Finding]:
    """Judges Prometheus.

    series: whether it has recent samples of each metric.
    is_asked_in_pod: whether the doctor runs in a Pod, as the dispatcher does.
    """
    if isinstance(series, UnreadObject):
        if is_asked_in_pod or ".svc." not in f"{urlsplit(url).hostname}.":
            yield fault("PrometheusAway", url, series.why, url=url)
        else:
            yield unchecked("PrometheusAway", url, "only a Pod can look up a Service: ask in that of the dispatcher")
        return
    yield good("PrometheusAway", url)
    unknown = sorted(name for name, is_known in series.items() if not is_known)
    yield fault_if(bool(unknown), "MetricUnknown", url, f"it has no recent sample of {', '.join(unknown)}", url=url)


LEASE_SECONDS: Final = 60
"""Age of a lease that is still at work. kube-scheduler renews it each two seconds; a new leader waits for 15."""
RECENT_SECONDS: Final = 600
"""Age of a binding that still shows a scheduler at work."""
CALLS: Final = re.compile(r'^dispatcher_extender_config_faults\{fault="([\w-]+)"\} ([0-9.]+)', re.MULTILINE)


class SchedulerPod(Struct, frozen=True):  # house: kube-scheduler's own Pod
    """A Pod with kube-scheduler and the extender.

    is_answering: whether kubelet finds the extender ready; None: no status yet.
    configurations: the documents of the ConfigMaps that the Pod mounts.
    metrics: the metrics of the extender.
    """

    name: str
    is_ready: bool
    is_answering: bool | None
    configurations: Sequence[Json] | UnreadObject
    metrics: str | UnreadObject


class SchedulingFacts(Struct, frozen=True):
    """Signs that a scheduler of that name works.

    lease_age: seconds since its lease was renewed.
    bound_age: seconds since it bound a Pod; None: it has bound none lately.
    untried: Pods that name it and that no scheduler has looked at for a while.
    """

    name: str
    namespace: str
    pods: Sequence[SchedulerPod] | UnreadObject
    lease_age: float | UnreadObject
    bound_age: float | UnreadObject | None
    untried: int = 0


def judge_scheduling(facts: SchedulingFacts) -> Iterator[Finding]:
    yield judge_presence(facts)
    if isinstance(facts.pods, UnreadObject) or not facts.pods:
        why = (
            facts.pods.why if isinstance(facts.pods, UnreadObject) else f"namespace {facts.namespace} has no Pod of it"
        )
        for what in ("ExtenderNotConfigured", "ExtenderNotAnswering", "ExtenderMisused"):
            yield unchecked(what, f"scheduler {facts.name}", why)
        return
    for pod in facts.pods:
        yield from judge_extender(pod, facts)


def judge_presence(facts: SchedulingFacts) -> Finding:
    where = f"scheduler {facts.name}"
    signs = (facts.lease_age, facts.bound_age, facts.pods)
    is_alive = (
        is_within(facts.lease_age, LEASE_SECONDS)
        or is_within(facts.bound_age, RECENT_SECONDS)
        or (not isinstance(facts.pods, UnreadObject) and any(pod.is_ready for pod in facts.pods))
    )
    names = {"namespace": facts.namespace, "scheduler": facts.name}
    if facts.untried and not is_within(facts.bound_age, RECENT_SECONDS):
        return fault("SchedulerAbsent", where, f"{facts.untried} Pods name it, and no scheduler looks at them", **names)
    if is_alive:
        return good("SchedulerAbsent", where)
    unread = next((sign for sign in signs if isinstance(sign, UnreadObject) and not sign.is_absent), None)
    if unread is not None:
        return unchecked("SchedulerAbsent", where, unread.why)
    said = f"no Pod of it is ready in namespace {facts.namespace}, its lease is not renewed, and it bound no Pod lately"
    return fault("SchedulerAbsent", where, said, **names)


def is_within(age: float | UnreadObject | None, seconds: float) -> bool:
    return isinstance(age, float) and age <= seconds


def judge_extender(pod: SchedulerPod, facts: SchedulingFacts) -> Iterator[Finding]:
    where = f"Pod {pod.name} in namespace {facts.namespace}"
    if isinstance(pod.configurations, UnreadObject):
        yield unchecked("ExtenderNotConfigured", where, pod.configurations.why)
    else:
        found = [fault("ExtenderNotConfigured", where, why) for why in misconfigured(pod.configurations, facts.name)]
        yield from or_good(found, "ExtenderNotConfigured", where)
    if pod.is_answering is None:
        yield unchecked("ExtenderNotAnswering", where, "it has no container `extender` with a status")
    else:
        said, names = "its container `extender` is not ready", {"namespace": facts.namespace, "pod": pod.name}
        yield fault_if(not pod.is_answering, "ExtenderNotAnswering", where, said, **names)
    if isinstance(pod.metrics, UnreadObject):
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
    """The faults of kube-scheduler's configuration that the extender has found in its calls."""
    for name, value in CALLS.findall(metrics):
        if float(value) and name in configuration.FAULTS:
            yield fault("ExtenderMisused", where, f"{name}: {configuration.FAULTS[name]}")
