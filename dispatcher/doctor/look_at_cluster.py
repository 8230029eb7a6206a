"""Reads what the API server and Prometheus know, and gives it to the judges.

`look_at_prometheus`: whether Prometheus has the metrics of containers.

`ClusterReader`: a refused read gives an `UnreadObject` with the reason.

`look_at_cluster`: version, namespaces, rights, policies and the delays of Pods.

`look_at_programs`: how many Pods of the programs are ready, and the Lease of the dispatcher.

`look_at_caches`: the Pods of the cache keepers, and full disks.

`look_at_scheduling`: whether the kube-scheduler of our Pods works, and how it calls the extender.

`look_at_installation`: how the installation was made, and whose account asks.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from dispatcher.commands.reaching import DispatcherApi, opened, through
from dispatcher.doctor.cluster import (
    CacheFacts,
    ClusterState,
    LeaseTerm,
    Permission,
    PodCount,
    Policies,
    RunningFacts,
    SchedulerPod,
    SchedulingFacts,
    UnreadObject,
)
from dispatcher.doctor.finding import Installation, read_installation
from dispatcher.keeper.program import DISK_FULL
from dispatcher.kube.client import KubeClient, Reply
from dispatcher.kube.job_api import jobs_path, pods_path
from dispatcher.kube.lease import LEASES_GROUP, LeaseName
from dispatcher.kube.wire import UNREADABLE, in_namespace
from dispatcher.model.errors import ClusterAway, ClusterRefused, DispatcherError
from dispatcher.model.jobs import Json
from dispatcher.model.launches import job_selector
from dispatcher.model.rights import (
    ACCOUNTS,
    CACHE_KEEPER,
    EXTENDER,
    JANITOR,
    NODE_EVENTS,
    RUN,
    InstallationSite,
    Verb,
    account_of,
    verbs_of,
)
from dispatcher.prometheus import METRICS, Prometheus, PrometheusFault


async def look_at_prometheus(url: str) -> dict[str, bool] | UnreadObject:
    prometheus = Prometheus(url)
    try:
        return {metric: await prometheus.knows(metric) for metric in METRICS}
    except PrometheusFault as fault:
        return UnreadObject(str(fault))
    finally:
        await prometheus.close()


ANSWER_SECONDS: Final = 10
"""Limit of one question, in seconds."""
PAGE: Final = 500
"""Objects of one page of a list."""
FORBIDDEN: Final = 403


class ClusterReader:
    """Questions to one API server. Each raises ClusterAway without an answer."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client

    async def get(self, path: str) -> Json | UnreadObject:
        """One object."""
        return read(path, await self.client.request("GET", path, seconds=ANSWER_SECONDS))

    async def each(self, path: str, **which: str) -> list[Json] | UnreadObject:
        """All objects of a collection."""
        found: list[Json] = []
        asked: Mapping[str, str] = {**which, "limit": str(PAGE)}
        while True:
            page = read(path, await self.client.request("GET", path, params=asked, seconds=ANSWER_SECONDS))
            if isinstance(page, UnreadObject):
                return page
            found += page.get("items") or []
            following = page.get("metadata", {}).get("continue")
            if not following:
                return found
            asked = {**which, "limit": str(PAGE), "continue": following}

    async def review(self, kind: str, spec: Json) -> bool | UnreadObject:
        """Whether an access review of this kind is answered with yes. No review is stored anywhere."""
        found = await self._ask("authorization.k8s.io/v1", kind, {"spec": spec})
        return found if isinstance(found, UnreadObject) else bool(found.get("status", {}).get("allowed"))

    async def own_name(self) -> str | UnreadObject:
        """The user name of the account that asks."""
        found = await self._ask("authentication.k8s.io/v1", "SelfSubjectReview", {})
        return (
            found
            if isinstance(found, UnreadObject)
            else str(found.get("status", {}).get("userInfo", {}).get("username"))
        )

    async def _ask(self, api: str, kind: str, fields: Json) -> Json | UnreadObject:
        path = f"/apis/{api}/{kind.lower()}s"
        sent = msgspec.json.encode({"apiVersion": api, "kind": kind, **fields})
        return read(path, await self.client.request("POST", path, sent, seconds=ANSWER_SECONDS), "POST")


def read(path: str, reply: Reply, verb: str = "GET") -> Json | UnreadObject:
    """The object of an answer. Raises ClusterAway if a proxy answered instead."""
    try:
        found = msgspec.json.decode(reply.expect(f"{verb} {path}"))
    except ClusterRefused as refused:
        if refused.status == FORBIDDEN:
            return UnreadObject(f"this account may not {verb} {path}")
        return UnreadObject(str(refused), is_absent=refused.status == 404 and refused.reason == "NotFound")
    except UNREADABLE as fault:
        raise ClusterAway(f"read {path}: not an answer of the API server: {fault}") from fault
    if not isinstance(found, dict):
        raise ClusterAway(f"read {path}: not an answer of the API server")
    return found


def age_of(time: str, now: datetime) -> float:
    """Seconds since a time in an object."""
    return (now - datetime.fromisoformat(time)).total_seconds()


ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
RECENT_SECONDS: Final = 3600
"""Age of Jobs whose delays are read, in seconds."""


async def look_at_cluster(
    reading: ClusterReader, site: InstallationSite, installation: Installation, *, has_extender: bool
) -> ClusterState:
    """Reads the cluster. Raises ClusterAway."""
    names = dict.fromkeys((site.ours, site.jobs))
    return ClusterState(
        site=site,
        version=await version_of(reading),
        namespaces={name: await reading.get(in_namespace("/api/v1", name)) for name in names},
        allowed=await rights_of(reading, site, installation.program, has_extender=has_extender),
        policies=await policies_of(reading),
        delays=await delays_of(reading, site),
        installation=installation,
    )


async def version_of(reading: ClusterReader) -> tuple[str, str] | UnreadObject:
    found = await reading.get("/version")
    return found if isinstance(found, UnreadObject) else (str(found.get("major")), str(found.get("minor")))


async def policies_of(reading: ClusterReader) -> Policies | UnreadObject:
    policies = await reading.each(f"{ADMISSION}/validatingadmissionpolicies")
    bindings = await reading.each(f"{ADMISSION}/validatingadmissionpolicybindings")
    if isinstance(policies, UnreadObject):
        return policies
    return bindings if isinstance(bindings, UnreadObject) else Policies(policies, bindings)


async def rights_of(
    reading: ClusterReader, site: InstallationSite, own: str | None, *, has_extender: bool
) -> Sequence[Permission]:
    """The answer for each verb of each program. `own`: the program whose account asks; it asks only about itself."""
    if own is not None:
        return await asked(reading, site, own, None)
    programs = (RUN, JANITOR, *[EXTENDER] * has_extender, *[CACHE_KEEPER] * site.has_caches)
    found: list[Permission] = []
    for program in programs:
        name = account_of(program, site)
        account = await reading.get(in_namespace("/api/v1", site.ours, "serviceaccounts", name))
        if isinstance(account, UnreadObject) and account.is_absent:
            why = f"namespace {site.ours} has no ServiceAccount {name}; --namespace names that of the programs"
            found.append(Permission(program, next(verbs_of(program, site)), None, why))
        else:
            found += await asked(reading, site, program, name)
    return found


async def asked(reading: ClusterReader, site: InstallationSite, program: str, account: str | None) -> list[Permission]:
    """Asks for every verb of a program at once. `account` None: about the account that asks."""
    who = {} if account is None else subject(site.ours, account)
    kind = "SelfSubjectAccessReview" if account is None else "SubjectAccessReview"

    async def ask(verb: Verb) -> Permission:
        answer = await reading.review(kind, {"resourceAttributes": attributes(verb), **who})
        if isinstance(answer, UnreadObject):
            return Permission(program, verb, None, answer.why)
        return Permission(program, verb, answer)

    return list(await asyncio.gather(*map(ask, verbs_of(program, site))))


def subject(namespace: str, account: str) -> Json:
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    return {"user": f"system:serviceaccount:{namespace}:{account}", "groups": groups}


def attributes(verb: Verb) -> dict[str, str]:
    resource, _, part = verb.resource.partition("/")
    named = {"namespace": verb.namespace, "group": verb.group, "resource": resource, "subresource": part}
    return {field: value for field, value in {**named, "verb": verb.verb, "name": verb.name}.items() if value}


async def delays_of(reading: ClusterReader, site: InstallationSite) -> Sequence[float] | UnreadObject:
    """Seconds from each recent Job to its Pod, or to now if an active Job has no Pod."""
    ours = {"labelSelector": job_selector(site.installation)}
    pods = await reading.each(pods_path(site.jobs), **ours)
    jobs = await reading.each(jobs_path(site.jobs), **ours)
    if isinstance(jobs, UnreadObject):
        return jobs
    if isinstance(pods, UnreadObject):
        return pods
    firsts = {owner["uid"]: made(pod) for pod in pods for owner in pod["metadata"].get("ownerReferences") or ()}
    now, found = reading.client.now(), []
    for job in jobs:
        end = firsts.get(job["metadata"]["uid"], now if goes_on(job) else None)
        if end is not None and (now - made(job)).total_seconds() < RECENT_SECONDS:
            found.append(max(0.0, (end - begun(job)).total_seconds()))
    return found


def goes_on(job: Json) -> bool:
    """Whether the Job controller should make a Pod of the Job."""
    is_over = any(one.get("status") == "True" for one in job.get("status", {}).get("conditions") or ())
    return not is_over and not job["spec"].get("suspend") and "deletionTimestamp" not in job["metadata"]


def begun(job: Json) -> datetime:
    """When the Job controller could make the Job's Pod: the end of its suspension, as by Kueue, or its creation."""
    known = job.get("status", {}).get("conditions") or ()
    ends = [one["lastTransitionTime"] for one in known if (one["type"], one["status"]) == ("Suspended", "False")]
    return max([made(job), *map(datetime.fromisoformat, ends)])


def made(found: Json) -> datetime:
    return datetime.fromisoformat(found["metadata"]["creationTimestamp"])


async def look_at_programs(reading: ClusterReader, site: InstallationSite) -> RunningFacts:
    """Reads the Pods of the programs and the Lease. Raises ClusterAway."""
    names = (site.installation, f"{site.installation}-janitor")
    return RunningFacts({name: await replicas_of(reading, site, name) for name in names}, await term_of(reading, site))


async def replicas_of(reading: ClusterReader, site: InstallationSite, name: str) -> PodCount | UnreadObject:
    found = await reading.get(in_namespace("/apis/apps/v1", site.ours, "deployments", name))
    if isinstance(found, UnreadObject):
        return found
    return PodCount(found["spec"].get("replicas", 1), found.get("status", {}).get("readyReplicas", 0))


async def term_of(reading: ClusterReader, site: InstallationSite) -> LeaseTerm | UnreadObject:
    lease = LeaseName(site.ours, site.installation)
    found = await reading.get(in_namespace(f"/apis/{LEASES_GROUP}/v1", lease.namespace, "leases", lease.name))
    if isinstance(found, UnreadObject):
        return found
    spec, renewed = found.get("spec", {}), renewed_at(found)
    age = age_of(renewed, reading.client.now()) if renewed else float("inf")
    return LeaseTerm(spec.get("holderIdentity") or "", age, spec.get("leaseDurationSeconds", 0))


def renewed_at(lease: Json) -> str | None:
    """When the lease was renewed last, by the API server's clock. `renewTime` is by that of the holder's machine.

    None: it was never renewed.
    """
    own: str | None = lease.get("spec", {}).get("renewTime")
    times: list[str] = [one["time"] for one in lease["metadata"].get("managedFields") or () if one.get("time")]
    return max(times, default=own) if own else None


RECENT: Final = timedelta(hours=1)
"""Age of Events about full disks that are read."""


async def look_at_caches(reading: ClusterReader, site: InstallationSite) -> CacheFacts:
    """Reads keepers and full disks. Raises ClusterAway."""
    return CacheFacts(await keepers_of(reading, site), await full_disks(reading))


async def keepers_of(reading: ClusterReader, site: InstallationSite) -> PodCount | UnreadObject:
    name = account_of(CACHE_KEEPER, site)
    found = await reading.get(in_namespace("/apis/apps/v1", site.ours, "daemonsets", name))
    if isinstance(found, UnreadObject):
        return found
    status = found.get("status", {})
    return PodCount(status.get("desiredNumberScheduled", 0), status.get("numberReady", 0))


async def full_disks(reading: ClusterReader) -> dict[str, str] | UnreadObject:
    found = await reading.each(in_namespace("/api/v1", NODE_EVENTS, "events"), fieldSelector=f"reason={DISK_FULL}")
    if isinstance(found, UnreadObject):
        return found
    since = reading.client.now() - RECENT
    return {one["involvedObject"].get("name", ""): one.get("message", "") for one in found if last_of(one) >= since}


def last_of(event: Json) -> datetime:
    return datetime.fromisoformat(event.get("lastTimestamp") or event["metadata"]["creationTimestamp"])


OF_SCHEDULER: Final = (
    "app.kubernetes.io/name=dispatcher,app.kubernetes.io/instance={},app.kubernetes.io/component=scheduler"
)
"""Labels of the Pods with kube-scheduler and the extender of an installation, as the chart writes them."""
PORT: Final = 8080
UNTRIED_SECONDS: Final = 30
"""Seconds after which a Pod that no scheduler has looked at counts as untried."""


async def look_at_scheduling(reading: ClusterReader, name: str, site: InstallationSite) -> SchedulingFacts:
    """Reads the signs of a scheduler. `name`: name of the scheduler. Raises ClusterAway."""
    placed = await reading.each(pods_path(site.jobs), fieldSelector=f"spec.schedulerName={name}")
    now = reading.client.now()
    return SchedulingFacts(
        name=name,
        namespace=site.ours,
        pods=await pods_of(reading, site),
        lease_age=await lease_age(reading, site.ours, name),
        bound_age=placed if isinstance(placed, UnreadObject) else bound_age(placed, now),
        untried=0 if isinstance(placed, UnreadObject) else sum(is_untried(pod, now) for pod in placed),
    )


async def lease_age(reading: ClusterReader, namespace: str, name: str) -> float | UnreadObject:
    lease = await reading.get(in_namespace(f"/apis/{LEASES_GROUP}/v1", namespace, "leases", name))
    if isinstance(lease, UnreadObject):
        return lease
    renewed = renewed_at(lease)
    return age_of(renewed, reading.client.now()) if renewed else UnreadObject(f"Lease {name} was never renewed", True)


def bound_age(pods: Iterable[Json], now: datetime) -> float | None:
    """Seconds since the newest binding of these Pods."""
    times = [one["lastTransitionTime"] for pod in pods for one in scheduled(pod) if one["status"] == "True"]
    return min((age_of(time, now) for time in times if time), default=None)


def scheduled(pod: Json) -> list[Json]:
    return [one for one in pod.get("status", {}).get("conditions") or () if one.get("type") == "PodScheduled"]


def is_untried(pod: Json, now: datetime) -> bool:
    """Whether the Pod has waited for a while, and no scheduler has said anything about it."""
    is_waiting = not pod["spec"].get("nodeName") and not pod["spec"].get("schedulingGates") and not scheduled(pod)
    return is_waiting and age_of(pod["metadata"]["creationTimestamp"], now) > UNTRIED_SECONDS


async def pods_of(reading: ClusterReader, site: InstallationSite) -> list[SchedulerPod] | UnreadObject:
    """The Pods of this installation. Others in the namespace have another scheduler."""
    found = await reading.each(pods_path(site.ours), labelSelector=OF_SCHEDULER.format(site.installation))
    if isinstance(found, UnreadObject):
        return found
    return [await read_pod(reading, site.ours, pod) for pod in found]


async def read_pod(reading: ClusterReader, namespace: str, pod: Json) -> SchedulerPod:
    status = pod.get("status", {})
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or ()}
    answers = {one["name"]: bool(one.get("ready")) for one in status.get("containerStatuses") or ()}
    return SchedulerPod(
        name=pod["metadata"]["name"],
        is_ready=conditions.get("Ready") == "True",
        is_answering=answers.get("extender"),
        configurations=await configurations_of(reading, namespace, pod),
        metrics=await metrics_of(reading, namespace, pod),
    )


async def configurations_of(reading: ClusterReader, namespace: str, pod: Json) -> list[Json] | UnreadObject:
    """The documents of the ConfigMaps that the Pod mounts."""
    found: list[Json] = []
    for volume in pod["spec"].get("volumes") or ():
        if name := (volume.get("configMap") or {}).get("name"):
            stored = await reading.get(in_namespace("/api/v1", namespace, "configmaps", name))
            if isinstance(stored, UnreadObject):
                return stored
            found += [read for text in (stored.get("data") or {}).values() if (read := document(text)) is not None]
    return found


def document(text: str) -> Json | None:
    """A YAML document; None if the text is something else."""
    try:
        found: Any = msgspec.yaml.decode(text)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None


async def metrics_of(reading: ClusterReader, namespace: str, pod: Json) -> str | UnreadObject:
    """The metrics of the extender: inside the cluster from the Pod itself, from outside through a port-forward."""
    try:
        async with reached(reading, namespace, pod) as api:
            return await api.text("/metrics")
    except DispatcherError as fault:
        return UnreadObject(str(fault))


def reached(reading: ClusterReader, namespace: str, pod: Json) -> AbstractAsyncContextManager[DispatcherApi]:
    name, address = pod["metadata"]["name"], pod.get("status", {}).get("podIP", "")
    if reading.client.own_namespace is None:
        return through(reading.client, namespace, name, PORT)
    return opened(f"http://{f'[{address}]' if ':' in address else address}:{PORT}", f"Pod {name}")


async def look_at_installation(reading: ClusterReader, site: InstallationSite) -> Installation:
    """Reads the installation. An account that may not read the Deployment knows little. Raises ClusterAway."""
    program = await program_of(reading, site)
    found = await reading.get(in_namespace("/apis/apps/v1", site.ours, "deployments", site.installation))
    if isinstance(found, UnreadObject):
        return Installation(site.ours, program, wants_policy=True if found.is_absent else None)
    return read_installation(found, site.ours, program)


async def program_of(reading: ClusterReader, site: InstallationSite) -> str | None:
    """The program of the Pod in which the doctor runs; None outside of the cluster."""
    if reading.client.own_namespace is None:
        return None
    user = await reading.own_name()
    owners = {f"system:serviceaccount:{site.ours}:{account_of(program, site)}": program for program in ACCOUNTS}
    return RUN if isinstance(user, UnreadObject) else owners.get(user, RUN)
