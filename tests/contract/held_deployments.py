"""Holds new Deployments at the API server, so that a test can act while a client waits for the answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from dispatcher.runtime.health import take_nobody_new
from tests.contract.in_force import IN_FORCE_SECONDS, is_refused_with
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane

HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
CLOSED_PORT = 1


@asynccontextmanager
async def deployments_held(plane: ControlPlane, namespace: str) -> AsyncIterator[asyncio.Event]:
    """The event is set when the first new Deployment of the namespace is held. No held one is made.

    Each waits for a webhook that does not answer, for up to 30 seconds. The same configuration refuses LimitRanges by a
    webhook that is not there. A refused LimitRange shows that the configuration is in force.
    """
    held, taken = asyncio.Event(), list[asyncio.StreamWriter]()

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(writer)
        held.set()

    probe = partial(is_probe_refused, plane, namespace)
    listener = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        hooks = [
            hook(namespace, "apps", "deployments", listener.sockets[0].getsockname()[1]),
            hook(namespace, "", "limitranges", CLOSED_PORT),
        ]
        await plane.admin("POST", HOOKS, {"metadata": {"name": namespace}, "webhooks": hooks})
        await plane.wait_for(probe, "the webhooks are in force", IN_FORCE_SECONDS)
        yield held
    finally:
        await plane.remove(f"{HOOKS}/{namespace}")
        await take_nobody_new(listener)
        listener.close()
        for writer in taken:
            writer.transport.abort()

    async def are_gone() -> bool:
        return not await probe()

    await plane.wait_for(are_gone, "the webhooks are gone", IN_FORCE_SECONDS)


async def is_probe_refused(plane: ControlPlane, namespace: str) -> bool:
    body = {"metadata": {"name": "probe"}, "spec": {"limits": []}}
    return await is_refused_with(plane, f"/api/v1/namespaces/{namespace}/limitranges", body, "failed calling webhook")


def hook(namespace: str, group: str, resource: str, port: int) -> Json:
    """A webhook for new objects of this kind."""
    creates = {"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [resource]}
    return {
        "name": f"{resource}.test.internal",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/x"},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 30,
        "rules": [creates],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    }
