"""Creates, reads and deletes Jobs, and deletes Pods. Answers are values; `jobs.answers` decides what they mean."""

from collections.abc import Callable
from typing import Final
from urllib.parse import quote

import msgspec

from dispatcher.kube.client import KubeClient, Reply
from dispatcher.kube.objects import encode, read_job, read_status
from dispatcher.kube.wire import UNREADABLE, Bare, Page
from dispatcher.model.errors import ClusterAway, ClusterRefused
from dispatcher.model.identity import UNPLACED, job_selector
from dispatcher.model.jobs import ApiAnswer, End, Job, Manifest

WRITE_SECONDS: Final = 10
SERVER_SECONDS: Final = 8
"""The server's limit, sent as `timeout`. It bounds how late a write of ours can take effect."""

WITHHELD: Final = ApiAnswer(0, message="not sent: this replica does not lead any more", is_sent=False)


def always() -> bool:
    return True


def jobs_path(namespace: str) -> str:
    return f"/apis/batch/v1/namespaces/{quote(namespace, safe='')}/jobs"


def pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"


class JobApi:
    """Calls in the namespace of one installation's Jobs.

    `may_write` is asked directly before each write, because a term may end while a write waits.
    """

    def __init__(
        self, client: KubeClient, namespace: str, installation: str, may_write: Callable[[], bool] = always
    ) -> None:
        self._client = client
        self._may_write = may_write
        self._jobs = jobs_path(namespace)
        self._pods = pods_path(namespace)
        self._installation = installation

    async def create(self, manifest: Manifest) -> ApiAnswer:
        """POST that refuses unknown fields. Status 0: the Job may have been made, unless the POST was not sent."""
        if not self._may_write():
            return WITHHELD
        params = {"fieldValidation": "Strict", "timeout": f"{SERVER_SECONDS}s"}
        return await self._ask("POST", self._jobs, encode(manifest), params)

    async def try_create(self, manifest: Manifest) -> ApiAnswer:
        """The same POST as a dry run: the API server checks it and stores nothing."""
        params = {"fieldValidation": "Strict", "dryRun": "All", "timeout": f"{SERVER_SECONDS}s"}
        return await self._ask("POST", self._jobs, encode(manifest), params)

    async def get(self, name: str) -> ApiAnswer:
        """A consistent read of one Job."""
        return await self._ask("GET", f"{self._jobs}/{name}", None, None)

    async def list_task(self, task_id: int) -> list[Job]:
        """A consistent list of one task's Jobs. Raises ClusterError if they are not known."""
        params = {"labelSelector": job_selector(self._installation, task_id)}
        reply = await self._client.request("GET", self._jobs, params=params, seconds=WRITE_SECONDS)
        page = reply.read(f"list Jobs of task {task_id}", Page)
        return [job for raw in page.items if (job := read_job(raw)) is not None]

    async def end(self, end: End) -> ApiAnswer:
        """Ends the object as it was judged, or does nothing: all calls carry preconditions."""
        if not self._may_write():
            return WITHHELD
        if end.kind in {"deadline", "mark"}:
            return await self._change(end)
        return await (self._delete_unplaced(end) if end.kind == "unplaced-pods" else self._delete(end))

    async def _change(self, end: End) -> ApiAnswer:
        """PATCH of a deadline that has passed: the Job fails, and its Pods go. Or of the mark of an unplaced Job."""
        change: Manifest = {"metadata": {"uid": end.uid, "resourceVersion": end.resource_version}}
        if end.kind == "mark":
            change["metadata"]["annotations"] = {UNPLACED: "true"}
        else:
            change["spec"] = {"activeDeadlineSeconds": 1}
        return await self._ask("PATCH", f"{self._jobs}/{end.name}", encode(change), {"timeout": f"{SERVER_SECONDS}s"})

    async def _delete_unplaced(self, end: End) -> ApiAnswer:
        """Deletes a Pod in the version in which it had no node. A Pod that gets one meanwhile stays."""
        try:
            only = {"fieldSelector": f"metadata.name={end.name},spec.nodeName="}
            reply = await self._client.request("GET", self._pods, params=only, seconds=WRITE_SECONDS)
            found = [msgspec.json.decode(raw, type=Bare).metadata for raw in reply.read("list one Pod", Page).items]
        except ClusterRefused as fault:
            return ApiAnswer(fault.status, fault.reason, str(fault))
        except ClusterAway as fault:
            return ApiAnswer(0, message=str(fault), is_sent=False)
        if not found:
            return ApiAnswer(409, "Conflict", "the Pod has a node, or is gone")
        return await self._delete(msgspec.structs.replace(end, kind="pods", resource_version=found[0].resource_version))

    async def _delete(self, end: End) -> ApiAnswer:
        only_if = {"uid": end.uid}
        if end.resource_version is not None:
            only_if["resourceVersion"] = end.resource_version
        options: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": only_if}
        if end.kind == "jobs":
            options["propagationPolicy"] = "Foreground"  # the default of batch/v1 leaves the Pods behind
        if end.grace_seconds is not None:
            options["gracePeriodSeconds"] = end.grace_seconds
        path = f"{self._jobs if end.kind == 'jobs' else self._pods}/{end.name}"
        return await self._ask("DELETE", path, encode(options), {"timeout": f"{SERVER_SECONDS}s"})

    async def _ask(self, method: str, path: str, body: bytes | None, params: dict[str, str] | None) -> ApiAnswer:
        try:
            reply = await self._client.request(method, path, body, params, WRITE_SECONDS)
        except ClusterAway as fault:
            return ApiAnswer(0, message=str(fault))
        return read_answer(reply)


def read_answer(reply: Reply) -> ApiAnswer:
    if reply.status < 300:
        try:
            return ApiAnswer(reply.status, job=read_job(reply.body))
        except UNREADABLE:  # a truncated body: the call is done, and only a GET can tell what was made
            return ApiAnswer(0, message="the answer was not whole")
    status = read_status(reply.body)
    details = status.details
    causes = tuple(cause.reason for cause in details.causes) if details else ()
    wait = max(reply.retry_after, details.retry_after_seconds if details else 0)
    told = status.kind == "Status"
    return ApiAnswer(reply.status, status.reason, status.message[:500], causes, wait, is_told=told)
