"""Judges the cluster: API server, rights, namespaces, admission policy, and how fast Jobs get their Pods."""

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from msgspec import Struct

from dispatcher.doctor.finding import Finding, fault, good, unchecked, warning
from dispatcher.doctor.installation import Installation
from dispatcher.doctor.verbs import Site, Verb, account_of

OLDEST_MINOR: Final = 31
ENOUGH_JOBS: Final = 5
SLOWEST_SECONDS: Final = 5
"""With default flags a Job waits this long for its Pod when about 25 others were made just before it."""
Json = Mapping[str, Any]


class Unread(Struct, frozen=True):
    """An object that could not be read. `is_absent`: the API server says that it does not exist."""

    why: str
    is_absent: bool = False


class Allowed(Struct, frozen=True):
    """Whether a program may do something; None: it could not be asked, for the reason `why`."""

    program: str
    verb: Verb
    is_allowed: bool | None
    why: str = ""


class Policies(Struct, frozen=True):
    """All ValidatingAdmissionPolicies of the cluster, and their bindings."""

    policies: Sequence[Json]
    bindings: Sequence[Json]


class Facts(Struct, frozen=True):
    """The cluster, as far as it was read.

    version: major and minor version, as the API server writes them.
    namespaces: each namespace of the installation.
    allowed: the answer for each verb.
    delays: seconds from the creation of a Job to that of its Pod, for recent Jobs.
    """

    site: Site
    version: tuple[str, str] | Unread
    namespaces: Mapping[str, Json | Unread]
    allowed: Sequence[Allowed]
    policies: Policies | Unread
    delays: Sequence[float] | Unread
    installation: Installation = Installation()


def judge_cluster(facts: Facts) -> Iterator[Finding]:
    yield good("ApiServerAway", "API server")
    yield from judge_version(facts.version)
    for name, found in facts.namespaces.items():
        yield from judge_namespace(name, found)
    yield from judge_rights(facts)
    yield from judge_policy(facts)
    yield from judge_delays(facts)


def judge_version(version: tuple[str, str] | Unread) -> Iterator[Finding]:
    if isinstance(version, Unread):
        yield unchecked("ApiServerTooOld", "API server", version.why)
        return
    major, minor = map(number, version)
    if (major, minor) < (1, OLDEST_MINOR):
        yield fault("ApiServerTooOld", "API server", f"it is Kubernetes {major}.{minor}")
    else:
        yield good("ApiServerTooOld", "API server")


def number(text: str) -> int:
    """A part of a version. Some clusters write `33+`."""
    return int(re.sub(r"\D.*", "", text) or "0")


def judge_namespace(name: str, found: Json | Unread) -> Iterator[Finding]:
    where = f"namespace {name}"
    if isinstance(found, Unread) and not found.is_absent:
        yield unchecked("NamespaceMissing", where, found.why)
    elif isinstance(found, Unread):
        yield fault("NamespaceMissing", where, "it does not exist", namespace=name)
    elif is_terminating(found):
        yield fault("NamespaceTerminating", where, "it is being deleted", namespace=name)
    else:
        yield good("NamespaceMissing", where)


def is_terminating(namespace: Json) -> bool:
    return bool(namespace.get("status", {}).get("phase") == "Terminating")


def is_usable(namespace: Json | Unread) -> bool:
    """Whether nothing is known against making Jobs there."""
    return not namespace.is_absent if isinstance(namespace, Unread) else not is_terminating(namespace)


def judge_rights(facts: Facts) -> Iterator[Finding]:
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


def judge_policy(facts: Facts) -> Iterator[Finding]:
    """An installation without rights in the whole cluster has no policy either: a policy is cluster-wide."""
    site, found = facts.site, facts.policies
    where = f"policy for Jobs in namespace {site.jobs}"
    if isinstance(found, Unread):
        yield unchecked("PolicyMissing", where, found.why)
        return
    names = [one["metadata"]["name"] for one in found.policies if is_ours(one, site)]
    if not names and not site.check_room:
        yield unchecked("PolicyMissing", where, "an installation without cluster-wide rights has none")
    elif not names:
        yield judge_absence(where, facts.installation)
    elif not any(is_enforced(one, names) for one in found.bindings):
        said = f"no binding enforces ValidatingAdmissionPolicy {', '.join(names)}"
        yield fault("PolicyUnbound", where, said, **facts.installation.words)
    else:
        yield good("PolicyMissing", where)


def judge_absence(where: str, installation: Installation) -> Finding:
    """An installation may have chosen to do without. If that is not known, nobody is woken for it."""
    said = "no ValidatingAdmissionPolicy is about the Jobs of this installation"
    if installation.wants_policy:
        return fault("PolicyMissing", where, said, **installation.words)
    chosen = ", as its value policy.enabled=false says"
    unknown = ", and the Deployment that tells whether it is to have one cannot be read"
    more = unknown if installation.wants_policy is None else chosen
    return warning("PolicyMissing", where, said + more, **installation.words)


def is_ours(policy: Json, site: Site) -> bool:
    """Whether the policy has our variables, with the values of this installation."""
    variables = {one["name"]: one["expression"].strip() for one in policy["spec"].get("variables", ())}
    return (
        variables.get("jobsNamespace") == f"'{site.jobs}'" and variables.get("installation") == f"'{site.installation}'"
    )


def is_enforced(binding: Json, names: Sequence[str]) -> bool:
    spec = binding["spec"]
    return spec.get("policyName") in names and "Deny" in spec.get("validationActions", ())


def judge_delays(facts: Facts) -> Iterator[Finding]:
    where, found = f"Jobs in namespace {facts.site.jobs}", facts.delays
    if isinstance(found, Unread):
        yield unchecked("JobControllerSlow", where, found.why)
    elif len(found) < ENOUGH_JOBS:
        yield unchecked("JobControllerSlow", where, f"{len(found)} recent Jobs have a Pod, fewer than {ENOUGH_JOBS}")
    elif (middle := statistics.median(found)) > SLOWEST_SECONDS:
        said = f"half of {len(found)} recent Jobs waited more than {middle:.0f} s for their Pod"
        yield warning("JobControllerSlow", where, said)
    else:
        yield good("JobControllerSlow", where)
