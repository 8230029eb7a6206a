"""Admission at the API server: policies that refuse Jobs of a test's namespace, and webhooks that fail."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from dispatcher.runtime.listening import take_nobody_new
from tests.controlplane.api import Json, KubeFault
from tests.controlplane.waiting import wait_for
from tests.dispatching import Place
from tests.steps import jobs_path, plain_job

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
CREATES_JOBS = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
TEMPLATE = "dispatcher.internal/template"
NO_GPUS = "no gpus"


def denied(place: Place, template: str, reason: str = "Invalid") -> AbstractAsyncContextManager[None]:
    """Refuses the Jobs of one template, with the message `NO_GPUS`."""
    rule = {
        "expression": f"object.metadata.labels['{TEMPLATE}'] != '{template}'", "message": NO_GPUS, "reason": reason,
    }  # fmt: skip
    return policy(place, rule, plain_job("probe", labels={TEMPLATE: template}))


@asynccontextmanager
async def policy(place: Place, rule: Json, refused: Json) -> AsyncIterator[None]:
    """An admission policy, in force while the context lasts.

    rule: expression that must be true for each Job, message, reason.
    refused: a Job that the rule refuses; a dry run of it shows when the policy is in force.
    """
    plane, name = place.control_plane, place.namespace
    specs: dict[str, Json] = {
        "validatingadmissionpolicies": {
            "matchConstraints": {**here(place), "resourceRules": [CREATES_JOBS]}, "validations": [rule],
        },
        "validatingadmissionpolicybindings": {"policyName": name, "validationActions": ["Deny"]},
    }  # fmt: skip
    for plural, spec in specs.items():
        await plane.admin("POST", f"{ADMISSION}/{plural}", {"metadata": {"name": name}, "spec": spec})
    try:
        await wait_for(lambda: is_refused(place, refused, rule["message"]), "the policy is in force", 30)
        yield
    finally:
        for plural in reversed(specs):
            await plane.admin("DELETE", f"{ADMISSION}/{plural}/{name}")


def here(place: Place) -> Json:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": place.namespace}}}


async def is_refused(place: Place, job: Json, words: str) -> bool:
    """Whether the Job is refused with these words, by a dry run."""
    try:
        await place.control_plane.admin("POST", jobs_path(place), job, params={"dryRun": "All"})
    except KubeFault as refused:
        return words in str(refused)
    return False


@asynccontextmanager
async def failing_webhook(place: Place, template: str, port: int) -> AsyncIterator[None]:
    """An admission webhook for the Jobs of one template. Nothing answers on its port."""
    hook = {
        "name": "down.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/x"},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
        "rules": [CREATES_JOBS],
        "objectSelector": {"matchLabels": {TEMPLATE: template}},
        **here(place),
    }
    hooks = f"{ADMISSION}/validatingwebhookconfigurations"
    await place.control_plane.admin("POST", hooks, {"metadata": {"name": place.namespace}, "webhooks": [hook]})
    try:
        yield
    finally:
        await place.control_plane.admin("DELETE", f"{hooks}/{place.namespace}")


@asynccontextmanager
async def silent_server() -> AsyncIterator[int]:
    """The port of a server that accepts connections and never answers."""
    taken: list[asyncio.StreamWriter] = []
    listener = await asyncio.start_server(lambda reader, writer: taken.append(writer), "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        await take_nobody_new(listener)
        listener.close()
        for writer in taken:
            writer.transport.abort()
