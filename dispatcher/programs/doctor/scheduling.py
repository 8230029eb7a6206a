"""Reads what shows that the kube-scheduler of our Pods works, and how it calls the extender."""

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Final

import msgspec

from dispatcher.doctor.cluster import Unread
from dispatcher.doctor.scheduling import Facts, SchedulerPod
from dispatcher.doctor.verbs import Site
from dispatcher.kube.job_api import pods_path
from dispatcher.kube.lease_object import LEASES_GROUP
from dispatcher.model.errors import DispatcherError
from dispatcher.programs.asking_api import Api, opened
from dispatcher.programs.doctor.reading import Json, Reading, in_namespace
from dispatcher.programs.reaching import through

OF_SCHEDULER: Final = (
    "app.kubernetes.io/name=dispatcher,app.kubernetes.io/instance={},app.kubernetes.io/component=scheduler"
)
"""Labels of the Pods with kube-scheduler and the extender of an installation, as the chart writes them."""
PORT: Final = 8080
UNTRIED_SECONDS: Final = 30


async def look(reading: Reading, name: str, site: Site) -> Facts:
    """`name`: of the scheduler. Raises ClusterAway."""
    placed = await reading.each(pods_path(site.jobs), fieldSelector=f"spec.schedulerName={name}")
    now = reading.client.now()
    return Facts(
        name=name,
        namespace=site.ours,
        pods=await pods_of(reading, site),
        lease_age=await lease_age(reading, site.ours, name),
        bound_age=placed if isinstance(placed, Unread) else bound_age(placed, now),
        untried=0 if isinstance(placed, Unread) else sum(is_untried(pod, now) for pod in placed),
    )


async def lease_age(reading: Reading, namespace: str, name: str) -> float | Unread:
    lease = await reading.get(in_namespace(f"/apis/{LEASES_GROUP}/v1", namespace, "leases", name))
    if isinstance(lease, Unread):
        return lease
    renewed = lease.get("spec", {}).get("renewTime")
    return age_of(renewed, reading.client.now()) if renewed else Unread(f"Lease {name} was never renewed", True)


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


def age_of(time: str, now: datetime) -> float:
    return (now - datetime.fromisoformat(time)).total_seconds()


async def pods_of(reading: Reading, site: Site) -> list[SchedulerPod] | Unread:
    """The Pods of this installation. Others in the namespace have a scheduler of their own."""
    found = await reading.each(pods_path(site.ours), labelSelector=OF_SCHEDULER.format(site.installation))
    if isinstance(found, Unread):
        return found
    return [await read_pod(reading, site.ours, pod) for pod in found]


async def read_pod(reading: Reading, namespace: str, pod: Json) -> SchedulerPod:
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


async def configurations_of(reading: Reading, namespace: str, pod: Json) -> list[Json] | Unread:
    """The documents of the ConfigMaps that the Pod mounts."""
    found: list[Json] = []
    for volume in pod["spec"].get("volumes") or ():
        if name := (volume.get("configMap") or {}).get("name"):
            stored = await reading.get(in_namespace("/api/v1", namespace, "configmaps", name))
            if isinstance(stored, Unread):
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


async def metrics_of(reading: Reading, namespace: str, pod: Json) -> str | Unread:
    """The metrics of the extender. Inside the cluster the Pod is asked directly, from outside by a port-forward."""
    try:
        async with reached(reading, namespace, pod) as api:
            return await api.text("/metrics")
    except DispatcherError as fault:
        return Unread(str(fault))


def reached(reading: Reading, namespace: str, pod: Json) -> AbstractAsyncContextManager[Api]:
    name, address = pod["metadata"]["name"], pod.get("status", {}).get("podIP", "")
    if reading.client.own_namespace is None:
        return through(reading.client, namespace, name, PORT)
    return opened(f"http://{f'[{address}]' if ':' in address else address}:{PORT}", f"Pod {name}")
