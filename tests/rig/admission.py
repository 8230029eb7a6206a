"""Admission at the API server: policies that refuse Jobs of a test's namespace, and webhooks that fail."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from dispatcher.runtime.health import take_nobody_new
from tests.controlplane.api import Json, KubeFault
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Place
from tests.rig.steps import jobs_path, plain_job

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
CREATES_JOBS = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
CREATES_PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
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
    return selected(place.namespace)


def selected(namespace: str) -> Json:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}


async def is_refused(place: Place, job: Json, words: str) -> bool:
    """Whether the Job is refused with these words, by a dry run."""
    try:
        await place.control_plane.admin("POST", jobs_path(place), job, params={"dryRun": "All"})
    except KubeFault as refused:
        return words in str(refused)
    return False


@asynccontextmanager
async def failing_webhook(place: Place, template: str, port: int, rule: Json = CREATES_JOBS) -> AsyncIterator[None]:
    """An admission webhook for the Jobs of one template, or what `rule` says. Nothing answers on its port."""
    hook = {
        "name": "down.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/x"},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
        "rules": [rule],
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


@asynccontextmanager
async def changing(
    plane: ControlPlane, namespace: str, expression: str, changed: Callable[[Json], bool]
) -> AsyncIterator[None]:
    """A policy that changes each new Job of a namespace, in force while the context lasts.

    expression: what it applies, such as `Object{spec: Object.spec{ttlSecondsAfterFinished: 20}}`, or a JSON patch.
    changed: whether a Job, as a dry run returns it, has been changed.
    """
    match = {**selected(namespace), "resourceRules": [CREATES_JOBS]}
    change: Json = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    if expression.startswith("["):
        change = {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}
    specs: dict[str, Json] = {
        "mutatingadmissionpolicies": {
            "matchConstraints": match, "mutations": [change], "failurePolicy": "Fail", "reinvocationPolicy": "Never",
        },
        "mutatingadmissionpolicybindings": {"policyName": namespace},
    }  # fmt: skip
    for plural, spec in specs.items():
        await plane.admin("POST", f"{ADMISSION}/{plural}", {"metadata": {"name": namespace}, "spec": spec})

    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"

    async def is_in_force() -> bool:
        made = await plane.admin(
            "POST", jobs, plain_job("probe", notes={"policy.example/probe": "1"}), params={"dryRun": "All"}
        )
        return changed(made)

    try:
        await wait_for(is_in_force, "the policy is in force", 30)
        yield
    finally:
        for plural in reversed(specs):
            await plane.admin("DELETE", f"{ADMISSION}/{plural}/{namespace}")


KINDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OF_KUEUE = "kueue.x-k8s.io"
WORKLOAD_KIND: Json = {
    "metadata": {"name": f"workloads.{OF_KUEUE}"},
    "spec": {
        "group": OF_KUEUE, "scope": "Namespaced", "names": {"plural": "workloads", "kind": "Workload"},
        "versions": [{
            "name": "v1beta2", "served": True, "storage": True,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }],
    },
}  # fmt: skip


async def is_served(plane: ControlPlane, path: str) -> bool:
    """Whether the API server has opened a kind that is new to it. Until then it answers 404, and then 429."""
    try:
        await plane.admin("GET", path)
    except KubeFault:
        return False
    return True


async def write_workload(plane: ControlPlane, namespace: str, job: Json, message: str) -> None:
    """Writes what Kueue keeps for a Job that it holds. The kind has no schema here, so one write does it."""
    if not await plane.exists(f"{KINDS}/workloads.{OF_KUEUE}"):
        await plane.admin("POST", KINDS, WORKLOAD_KIND)
    path = f"/apis/{OF_KUEUE}/v1beta2/namespaces/{namespace}/workloads"
    await wait_for(lambda: is_served(plane, path), "the API server serves Workloads", 30)
    condition = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": message}
    meta = {"name": job["metadata"]["name"], "labels": {f"{OF_KUEUE}/job-uid": job["metadata"]["uid"]}}
    workload = {"apiVersion": f"{OF_KUEUE}/v1beta2", "kind": "Workload", "metadata": meta}
    await plane.admin("POST", path, {**workload, "status": {"conditions": [condition]}})
