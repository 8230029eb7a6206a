"""Finds a running dispatcher for a command: at a given address, in this Pod, or by a port-forward of our own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec import Struct

from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import in_cluster, is_cluster_named, log_in
from dispatcher.kube.listing import Resource, list_all
from dispatcher.kube.port_forward import PortForward
from dispatcher.kube.wire import WirePod
from dispatcher.model.errors import ClusterError, ClusterRefused, DispatcherError
from dispatcher.programs.asking_api import Api, NoAnswer, opened
from dispatcher.settings.definition import Settings

OF_RUN: Final = "app.kubernetes.io/name=dispatcher,app.kubernetes.io/component=run"
"""Labels of the Pods of `dispatcher run`, as the chart gives them."""
HOW_TO_REACH: Final = (
    "run the same command in its Pod (`kubectl exec deploy/dispatcher -- dispatcher …`), name its namespace "
    "(--namespace), or give its address (--url)"
)


class Where(Struct, frozen=True):
    """What the caller says about the place of the dispatcher. `namespace`: of its Deployment. At most one is set."""

    url: str | None = None
    namespace: str | None = None

    @property
    def is_said(self) -> bool:
        return self.url is not None or self.namespace is not None


class Replica(Struct, frozen=True):
    """The part of a status that says who answers. Other versions have it, too."""

    installation: str
    jobs_namespace: str
    leads: bool


@asynccontextmanager
async def reached(where: Where, settings: Settings) -> AsyncIterator[Api]:
    """The API of a running dispatcher. What the caller says comes before the settings.

    Raises DispatcherError if none can be reached.
    """
    url = where.url or ("" if where.is_said else settings.service.api_url)
    try:
        if url or not is_a_cluster_asked(where, settings):
            async with opened(url or f"http://127.0.0.1:{port_of(settings)}") as api:
                yield api
        else:
            async with forwarded(where, settings) as api:
                yield api
    except NoAnswer as fault:
        raise DispatcherError(f"{fault}; {HOW_TO_REACH}") from fault


def is_a_cluster_asked(where: Where, settings: Settings) -> bool:
    """False: the dispatcher is expected in this Pod, or on this machine, where no cluster is named."""
    return where.namespace is not None or (in_cluster() is None and is_cluster_named(settings.kube))


def port_of(settings: Settings) -> int:
    return int(settings.service.dashboard_address.rpartition(":")[2])


@asynccontextmanager
async def forwarded(where: Where, settings: Settings) -> AsyncIterator[Api]:
    """The API of the replica that leads, otherwise of one that answers, with the caller's own rights."""
    client = KubeClient(await log_in(settings.kube))
    try:
        namespace = where.namespace or client.namespace
        pod = await leading(client, namespace, settings)
        async with through(client, namespace, pod, port_of(settings)) as api:
            yield api
    finally:
        await client.close()


async def leading(client: KubeClient, namespace: str, settings: Settings) -> str:
    """Name of the Pod of our installation that leads, otherwise of one that answers. Raises NoAnswer."""
    found, faults = dict[str, Replica](), []
    for name in await ready_pods(client, namespace):
        try:
            async with through(client, namespace, name, port_of(settings)) as api:
                found[name] = await api.ask("status", Replica)
        except DispatcherError as fault:
            faults.append(str(fault))
    ours = [name for name, one in found.items() if one.installation == settings.kube.installation] or list(found)
    if not ours:
        raise NoAnswer(faults[0] if faults else f"no Pod of a dispatcher is ready in namespace {namespace}")
    if len(names := {found[name].installation for name in ours}) > 1:
        raise DispatcherError(f"{', '.join(sorted(names))} answer: set DISPATCHER_INSTALLATION to one of them")
    return max(ours, key=lambda name: found[name].leads)


async def ready_pods(client: KubeClient, namespace: str) -> list[str]:
    """Raises ClusterError."""
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
    found = await list_all(client, Resource("pods", path, read_pod, selector=OF_RUN))
    return sorted(pod.metadata.name for pod in found.items if is_ready(pod))


def read_pod(raw: msgspec.Raw) -> WirePod:
    return msgspec.json.decode(raw, type=WirePod)


def is_ready(pod: WirePod) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)


@asynccontextmanager
async def through(client: KubeClient, namespace: str, pod: str, port: int) -> AsyncIterator[Api]:
    """The API in this Pod. A failed port-forward is told in place of a lost connection."""
    async with PortForward(client, namespace, pod, port).opened() as forward:
        try:
            async with opened("http://localhost", f"Pod {pod} in namespace {namespace}", forward.socket) as api:
                yield api
        except NoAnswer as lost:
            if forward.fault is None:
                raise
            raise NoAnswer(f"no dispatcher answers in Pod {pod}: {in_words(forward.fault)}") from lost


def in_words(fault: ClusterError) -> str:
    is_forbidden = isinstance(fault, ClusterRefused) and fault.status == 403
    return (
        f"{fault} (a port-forward needs the rights get and create on pods/portforward)" if is_forbidden else str(fault)
    )
