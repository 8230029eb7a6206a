"""NodeReservations as they come over the wire (deploy/crd), where they are listed, and what is written about them."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from dispatcher.kube.client import KubeClient
from dispatcher.kube.listing import Resource, list_all
from dispatcher.kube.objects import Meta, full_name
from dispatcher.model.amounts import amounts
from dispatcher.model.errors import ClusterRefused
from dispatcher.model.identity import WOKEN_AT
from dispatcher.model.reservations import Reservation, key_of

GROUP: Final = "/apis/dispatcher.internal/v1alpha1"
PATH: Final = f"{GROUP}/nodereservations"
GONE: Final = {404, 409}
"""It is no more, or another one of the same name."""
FINAL: Final = {400, 413, 422}
"""Of this one object. What is forbidden may be allowed again."""
log = structlog.get_logger(component="kube.reservations")


class WireTarget(Struct, frozen=True, rename="camel"):
    """One of them is set."""

    pod_name: str | None = None
    job_name: str | None = None
    task_id: int | None = None
    uid: str | None = None


class WireSpec(Struct, frozen=True, rename="camel"):
    node_name: str = ""
    resources: dict[str, str | int] = {}
    target: WireTarget = WireTarget()
    expires_at: datetime | None = None
    ttl_seconds: int = 0


class WireStatus(Struct, frozen=True):
    phase: str = ""
    message: str = ""


class WireReservation(Struct, frozen=True):
    metadata: Meta = Meta()
    spec: WireSpec = WireSpec()
    status: WireStatus = WireStatus()


class Bare(Struct, frozen=True):
    """Any of them, for its name."""

    metadata: Meta = Meta()


def read_reservation(raw: bytes | msgspec.Raw) -> Reservation | None:
    """None: it is not as deploy/crd would have it, from a time before, say. It holds nothing: to know of none instead
    would stop all who ask.
    """
    try:
        return reservation_of(msgspec.json.decode(raw, type=WireReservation))
    except (msgspec.ValidationError, OverflowError) as fault:
        name = full_name(msgspec.json.decode(raw, type=Bare).metadata)
        log.warning("a reservation holds nothing: it cannot be read", name=name, fault=str(fault))
        return None


def reservation_of(wire: WireReservation) -> Reservation:
    """OverflowError: it would end after all time."""
    meta, spec = wire.metadata, wire.spec
    ends_at = spec.expires_at or meta.creation_timestamp + timedelta(seconds=spec.ttl_seconds)
    held = amounts((name, str(amount)) for name, amount in spec.resources.items())
    return Reservation(
        name=full_name(meta),
        uid=meta.uid,
        node=spec.node_name,
        amounts={name: amount for name, amount in held.items() if amount > 0},
        target=target_of(meta.namespace, spec.target),
        ends_at=ends_at.timestamp(),
        made_at=meta.creation_timestamp.timestamp(),
        phase=wire.status.phase,
        message=wire.status.message,
    )


def target_of(namespace: str, target: WireTarget) -> str:
    """By the one field that is set; a target without any is nobody's."""
    named = msgspec.to_builtins(target)
    kind, value = next(((kind, value) for kind, value in named.items() if value is not None), ("", ""))
    return key_of(kind, namespace, value)


class Scheduled(Struct, frozen=True):
    type: str = ""
    message: str = ""


class WaitingStatus(Struct, frozen=True):
    conditions: list[Scheduled] = []


class WireWaiting(Struct, frozen=True):
    metadata: Meta = Meta()
    status: WaitingStatus = WaitingStatus()


class Waiting(Struct, frozen=True):
    """A Pod without a node; `why`: in kube-scheduler's words."""

    name: str
    uid: str
    why: str


def read_waiting(raw: bytes | msgspec.Raw) -> Waiting:
    wire = msgspec.json.decode(raw, type=WireWaiting)
    why = next((one.message for one in wire.status.conditions if one.type == "PodScheduled"), "")
    return Waiting(full_name(wire.metadata), wire.metadata.uid, why)


UNPLACED: Final = Resource("pods", "/api/v1/pods", read_waiting, fields="spec.nodeName=,status.phase=Pending")


class Reports:
    """What the extender writes: statuses, and the note on a Pod that has kube-scheduler ask again. ClusterError: try
    again. What is gone by now is done, and what is refused for good is told in the log.
    """

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def tell(self, one: Reservation, phase: str, message: str) -> None:
        namespace, _, name = one.name.partition("/")
        path = f"{GROUP}/namespaces/{namespace}/nodereservations/{name}/status"
        await self._patch(path, {"metadata": {"uid": one.uid}, "status": {"phase": phase, "message": message}})

    async def wake(self, pod: str) -> None:
        """`pod` with its namespace. By `pods/status`: who may patch `pods` may set any Pod's image."""
        namespace, _, name = pod.partition("/")
        note = {WOKEN_AT: self._client.now().isoformat()}
        await self._patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"metadata": {"annotations": note}})

    async def waiting(self) -> Sequence[Waiting]:
        """Pods that no scheduler has found a node for."""
        return (await list_all(self._client, UNPLACED)).items

    async def _patch(self, path: str, change: object) -> None:
        try:
            (await self._client.request("PATCH", path, msgspec.json.encode(change), seconds=5)).expect(f"patch {path}")
        except ClusterRefused as fault:
            if fault.status in FINAL:
                log.warning("not written", path=path, fault=str(fault))
            elif fault.status not in GONE:
                raise


RESERVATIONS: Final = Resource("nodereservations", PATH, read_reservation, key=full_name, is_optional=True)
