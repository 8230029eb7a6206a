"""Writes Events (core/v1) about objects. The API server keeps them for an hour."""

import hashlib
from typing import Any, Final

import msgspec
import structlog

from dispatcher.kube.client import KubeClient, Reply
from dispatcher.model.errors import ClusterRefused
from dispatcher.model.notices import Notice
from dispatcher.runtime.metrics import EVENTS

VERSIONS: Final = {"Job": "batch/v1", "Pod": "v1", "NodeReservation": "dispatcher.internal/v1alpha1", "Node": "v1"}
"""apiVersion of each kind that we write Events about."""
OF_CLUSTER: Final = "default"
"""Namespace of Events about objects that have none, as the API server demands."""
KNOWN: Final = 409
BUSY, BROKEN = 429, 500
LONGEST_NAME, LONGEST_WORDS = 200, 1024
log = structlog.get_logger(component="kube.events")


class Events:
    """Writes Events. `component` is the source that they name."""

    def __init__(self, client: KubeClient, component: str) -> None:
        self._client = client
        self._component = component

    async def tell(self, notice: Notice) -> None:
        """Writes one Event for an object and a reason, in place of an earlier one.

        Raises ClusterError if a later try may succeed. A final refusal only goes to the log, for example while the
        namespace is being deleted.
        """
        reply, path, body = await self._create(notice)
        if reply.status == KNOWN:
            reply = await self._client.request("PATCH", path, body, seconds=5)
        note_outcome(reply, notice)

    async def tell_once(self, notice: Notice) -> None:
        """Writes one Event for an object and a reason. An earlier one stays as it is. Raises as `tell` does."""
        reply, _, _ = await self._create(notice)
        if reply.status != KNOWN:
            note_outcome(reply, notice)

    async def _create(self, notice: Notice) -> tuple[Reply, str, bytes]:
        """The answer, the path of the Event, and the Event."""
        event = self._event(notice)
        namespace, name = event["metadata"]["namespace"], event["metadata"]["name"]
        path, body = f"/api/v1/namespaces/{namespace}/events", msgspec.json.encode(event)
        return await self._client.request("POST", path, body, seconds=5), f"{path}/{name}", body

    def _event(self, notice: Notice) -> dict[str, Any]:
        namespace, _, name = notice.name.partition("/")
        now = self._client.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        about = {"kind": notice.kind, "namespace": namespace, "name": name, "uid": notice.uid}
        return {
            "metadata": {"name": name_of(notice, name), "namespace": namespace or OF_CLUSTER},
            "involvedObject": {"apiVersion": VERSIONS[notice.kind], **about},
            "reason": notice.reason,
            "message": notice.words[:LONGEST_WORDS],
            "type": "Warning" if notice.is_warning else "Normal",
            "source": {"component": self._component},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }


def note_outcome(reply: Reply, notice: Notice) -> None:
    """Counts the answer. Raises ClusterError if a later try may succeed."""
    try:
        reply.expect(f"write the event {notice.reason} of {notice.name}")
    except ClusterRefused as fault:
        if fault.status == BUSY or fault.status >= BROKEN:
            raise
        EVENTS.labels(notice.reason, "refused").inc()
        log.warning("event not written", about=notice.name, reason=notice.reason, fault=str(fault))
    else:
        EVENTS.labels(notice.reason, "written").inc()


def name_of(notice: Notice, name: str) -> str:
    """Name of the Event. The same object and reason give the same name."""
    digest = hashlib.sha256(f"{notice.uid}/{notice.reason}".encode()).hexdigest()[:16]
    return f"{name[:LONGEST_NAME].rstrip('.-')}.{digest}"
