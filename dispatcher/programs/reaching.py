"""Finds a running dispatcher for a command: at a given address, in this Pod, or by a port-forward of our own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec import Struct

from dispatcher.explain.status import InstallationStatus
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import in_cluster, is_cluster_named, log_in
from dispatcher.kube.listing import Resource, list_all
from dispatcher.kube.port_forward import PortForward
from dispatcher.kube.wire import WirePod
from dispatcher.model.errors import ClusterError, ClusterRefused, DispatcherError
from dispatcher.programs.asking_api import Api, NoAnswer, opened
from dispatcher.settings.definition import Settings

OF_RUN: Final = "app.kubernetes.io/name=dispatcher,app.kubernetes.io/component=run"
"""Labels of the Pods of `dispatcher run`, as in deploy/base/run.yaml."""
HOW_TO_REACH: Final = (
    "run the same command in its Pod (`kubectl exec deploy/dispatcher -- dispatcher …`), name its namespace "
    "(--namespace), or give its address (--url)"
)


class Where(Struct, frozen=True):
    """What the caller says about the place of the dispatcher. `namespace`: of its Deployment."""

    url: str | None = None
    namespace: str | None = None


@asynccontextmanager
async def reached(where: Where, settings: Settings) -> AsyncIterator[Api]:
    """The API of a running dispatcher. Raises DispatcherError if none can be reached."""
    url = where.url or settings.service.api_url
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
        pod = await leading(client, namespace, port_of(settings))
        async with through(client, namespace, pod, port_of(settings)) as api:
            yield api
    finally:
        await client.close()


async def leading(client: KubeClient, namespace: str, port: int) -> str:
    """Name of the Pod that leads, otherwise of the first that answers. Raises NoAnswer."""
    names = await ready_pods(client, namespace)
    faults, answering = [], []
    for name in names:
        try:
            async with through(client, namespace, name, port) as api:
                status = await api.ask("status", InstallationStatus)
        except DispatcherError as fault:
            faults.append(str(fault))
            continue
        if status.leads:
            return name
        answering.append(name)
    if not answering:
        raise NoAnswer(faults[0] if faults else f"no Pod of a dispatcher is ready in namespace {namespace}")
    return answering[0]


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
