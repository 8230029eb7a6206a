"""NodeReservations (deploy/chart): how they are read and listed, and what the extender writes about them."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from dispatcher.kube.client import KubeClient
from dispatcher.kube.listing import Resource, list_all
from dispatcher.kube.quantities import amounts_of
from dispatcher.kube.wire import Bare, Meta, WirePod, full_name
from dispatcher.model.cluster import LONG_AGO
from dispatcher.model.errors import ClusterRefused
from dispatcher.model.identity import WOKEN_AT
from dispatcher.model.reservations import Reservation, key_of

GROUP: Final = "/apis/dispatcher.internal/v1alpha1"
PATH: Final = f"{GROUP}/nodereservations"
GONE: Final = {404, 409}
"""The object is gone, or its name belongs to another object now."""
FINAL: Final = {400, 413, 422}
"""These refusals are final for the object. 403 is not among them, because a right may be granted later."""
log = structlog.get_logger(component="kube.reservations")


class WireTarget(Struct, frozen=True, rename="camel"):
    """One field is set."""

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


def read_reservation(raw: bytes | msgspec.Raw) -> Reservation | None:
    """Reads a NodeReservation. Returns None if it does not fit the kind, for example if it is older than that schema.

    An unreadable reservation holds nothing. Failing the whole list would block every Pod.
    """
    try:
        return reservation_of(msgspec.json.decode(raw, type=WireReservation))
    except (msgspec.ValidationError, OverflowError) as fault:
        name = full_name(msgspec.json.decode(raw, type=Bare).metadata)
        log.warning("a reservation holds nothing: it cannot be read", name=name, fault=str(fault))
        return None


def reservation_of(wire: WireReservation) -> Reservation:
    """Raises OverflowError if the end is later than any date."""
    meta, spec = wire.metadata, wire.spec
    made_at = meta.creation_timestamp or LONG_AGO
    ends_at = spec.expires_at or made_at + timedelta(seconds=spec.ttl_seconds)
    held = amounts_of("nodereservations", spec.resources)
    return Reservation(
        name=full_name(meta),
        uid=meta.uid,
        node=spec.node_name,
        amounts={name: amount for name, amount in held.items() if amount > 0},
        target=target_of(meta.namespace, spec.target),
        ends_at=ends_at.timestamp(),
        made_at=made_at.timestamp(),
        phase=wire.status.phase,
        message=wire.status.message,
    )


def target_of(namespace: str, target: WireTarget) -> str:
    """The target's key, made from the field that is set. A target without a field matches no Pod."""
    named = msgspec.to_builtins(target)
    kind, value = next(((kind, value) for kind, value in named.items() if value is not None), ("", ""))
    return key_of(kind, namespace, value)


class Waiting(Struct, frozen=True):
    """A Pod without a node. `why`: the reason in kube-scheduler's words."""

    name: str
    uid: str
    why: str


def read_waiting(raw: bytes | msgspec.Raw) -> Waiting:
    wire = msgspec.json.decode(raw, type=WirePod)
    why = next((one.message for one in wire.status.conditions if one.type == "PodScheduled"), "")
    return Waiting(full_name(wire.metadata), wire.metadata.uid, why)


UNPLACED: Final = Resource("pods", "/api/v1/pods", read_waiting, fields="spec.nodeName=,status.phase=Pending")


class Reports:
    """The extender's writes: statuses of reservations, and the annotation that makes kube-scheduler try a Pod again.

    Raises ClusterError if a later try may succeed. A write to an object that is gone counts as done. A final refusal
    goes to the log.
    """

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def tell(self, one: Reservation, phase: str, message: str) -> None:
        namespace, _, name = one.name.partition("/")
        path = f"{GROUP}/namespaces/{namespace}/nodereservations/{name}/status"
        await self._patch(path, {"metadata": {"uid": one.uid}, "status": {"phase": phase, "message": message}})

    async def wake(self, pod: str) -> None:
        """Makes kube-scheduler try a Pod again. `pod`: `namespace/name`.

        The patch goes to `pods/status`, because the right to patch `pods` is also the right to change images.
        """
        namespace, _, name = pod.partition("/")
        note = {WOKEN_AT: self._client.now().isoformat()}
        await self._patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"metadata": {"annotations": note}})

    async def waiting(self) -> Sequence[Waiting]:
        """Pending Pods without a node."""
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
