"""NodeReservations (deploy/chart): how they are read and listed, the extender's writes about them, and claims as such.

`ClaimObjects`: claims as NodeReservations, so that the extender keeps other people's Pods away from claimed nodes, too.
A reservation `{INSTALLATION}-claim-{task id}` ends by itself after 15 minutes. While its claim lasts, it is replaced in
time. So a dispatcher that dies leaves nothing behind for long. Without the kind, or without the right, only our own
Pods respect claims.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, timedelta
from functools import partial
from typing import ClassVar, Final, Protocol

import msgspec
import structlog
from msgspec import Struct

from dispatcher.kube.client import OF_A_ROUND_SECONDS, KubeClient
from dispatcher.kube.reflector import Reflector, Resource, fault_of, list_all
from dispatcher.kube.wire import Bare, Meta, Moment, WirePod, full_name, in_namespace
from dispatcher.model.cluster import LONG_AGO
from dispatcher.model.errors import ClusterError, ClusterRefused
from dispatcher.model.launches import WOKEN_AT
from dispatcher.model.needs import PodNeeds
from dispatcher.model.reservations import Reservation, key_of
from dispatcher.model.resources import amounts, written
from dispatcher.runtime.clock import elapsed
from dispatcher.runtime.metrics import UNREADABLE_AMOUNTS

GROUP: Final = "/apis/dispatcher.internal/v1alpha1"
PATH: Final = f"{GROUP}/nodereservations"
GONE: Final = {404, 409}
"""The object is gone, or its name belongs to another object now."""
FINAL: Final = {400, 413, 422}
"""These refusals are final for the object. 403 is not one of them, because a right may be granted later."""
log = structlog.get_logger(component="kube.reservations")


class WireTarget(Struct, frozen=True, rename="camel"):
    """The target. Exactly one field is set."""

    pod_name: str | None = None
    job_name: str | None = None
    task_id: int | None = None
    uid: str | None = None


class WireSpec(Struct, frozen=True, rename="camel"):
    node_name: str = ""
    resources: dict[str, str | int] = {}
    target: WireTarget = WireTarget()
    expires_at: Moment | None = None
    ttl_seconds: int = 0


class WireStatus(Struct, frozen=True):
    phase: str = ""
    message: str = ""


class WireReservation(Struct, frozen=True):
    metadata: Meta = Meta()
    spec: WireSpec = WireSpec()
    status: WireStatus = WireStatus()


def read_reservation(raw: bytes | msgspec.Raw) -> Reservation | None:
    """Reads a NodeReservation. Returns None if it does not fit the kind, for example if it is older than the schema.

    An unreadable reservation holds nothing. Failing the whole list would block every Pod.
    """
    try:
        return reservation_of(msgspec.json.decode(raw, type=WireReservation))
    except (msgspec.ValidationError, OverflowError) as fault:
        name = full_name(msgspec.json.decode(raw, type=Bare).metadata)
        log.warning("a reservation holds nothing: it cannot be read", name=name, fault=str(fault))
        return None


def reservation_of(wire: WireReservation) -> Reservation:
    """The reservation. Raises OverflowError if its end is earlier or later than any date."""
    meta, spec = wire.metadata, wire.spec
    made_at = meta.creation_timestamp or LONG_AGO
    ends_at = (spec.expires_at or made_at + timedelta(seconds=spec.ttl_seconds)).astimezone(UTC)
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


class PodWithoutNode(Struct, frozen=True):
    """A Pod without a node. `why`: the reason in kube-scheduler's words."""

    name: str
    uid: str
    why: str


def read_waiting(raw: bytes | msgspec.Raw) -> PodWithoutNode:
    wire = msgspec.json.decode(raw, type=WirePod)
    why = next((one.message for one in wire.status.conditions if one.type == "PodScheduled"), "")
    return PodWithoutNode(full_name(wire.metadata), wire.metadata.uid, why)


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
        path = in_namespace(GROUP, namespace, "nodereservations", name, "status")
        await self._patch(path, {"metadata": {"uid": one.uid}, "status": {"phase": phase, "message": message}})

    async def wake(self, pod: str) -> None:
        """Makes kube-scheduler try a Pod again. `pod`: `namespace/name`.

        The patch goes to `pods/status`, because the right to patch `pods` is also the right to change images.
        """
        namespace, _, name = pod.partition("/")
        note = {WOKEN_AT: self._client.now().isoformat()}
        path = in_namespace("/api/v1", namespace, "pods", name, "status")
        await self._patch(path, {"metadata": {"annotations": note}})

    async def waiting(self) -> Sequence[PodWithoutNode]:
        """Pending Pods without a node."""
        return (await list_all(self._client, UNPLACED)).items

    async def _patch(self, path: str, change: object) -> None:
        try:
            body = msgspec.json.encode(change)
            reply = await self._client.request("PATCH", path, body, seconds=OF_A_ROUND_SECONDS)
            reply.expect(f"patch {path}")
        except ClusterRefused as fault:
            if fault.status in FINAL:
                log.warning("not written", path=path, fault=str(fault))
            elif fault.status not in GONE:
                raise


RESERVATIONS: Final = Resource("nodereservations", PATH, read_reservation, key=full_name, is_optional=True)
LIVES_SECONDS: Final = 900
"""Seconds after which a claim's reservation ends by itself."""
REPLACED_AFTER_SECONDS: Final = 600
"""Seconds after which it is replaced while its claim lasts."""
PAUSE_SECONDS: Final = 60
"""Seconds of the pause after a refusal, for example because the kind is not installed."""
AS_WANTED: Final = {404, 409}
"""Statuses that count as success: of a DELETE whose object is gone, and of a POST whose object is there."""


class ClaimedNode(Protocol):
    """A node that is kept for a row."""

    @property
    def task_id(self) -> int: ...
    @property
    def node(self) -> str: ...
    @property
    def needs(self) -> PodNeeds: ...


class ClaimObjects:
    """The NodeReservations of one installation's claims."""

    replaced_after: ClassVar[float] = REPLACED_AFTER_SECONDS

    def __init__(
        self, client: KubeClient, reservations: Reflector[Reservation], namespace: str, installation: str,
        may_write: Callable[[], bool],
    ) -> None:  # fmt: skip
        """`may_write` is asked before each call, because a term may end meanwhile."""
        self._client = client
        self._reservations = reservations
        self._path = in_namespace(GROUP, namespace, "nodereservations")
        self._prefix = f"{namespace}/{installation}-claim-"
        self._may_write = may_write
        self._rests_until = 0.0

    def known(self) -> Mapping[int, str]:
        """The claimed nodes by task, as reservations show them."""
        return {task_id: one.node for task_id, one in self._own().items()}

    async def keep(self, claims: Sequence[ClaimedNode]) -> int:
        """Creates missing reservations, and deletes old or unwanted ones. Returns the number of writes."""
        if fault_of(self._reservations) or elapsed() < self._rests_until:
            return 0
        own, wanted = self._own(), {claim.task_id: claim for claim in claims}
        over = [one for task_id, one in own.items() if self._is_over(one, wanted.get(task_id))]
        missing = [claim for task_id, claim in wanted.items() if task_id not in own]
        try:
            for call in (*(partial(self._delete, one) for one in over), *(partial(self._make, one) for one in missing)):
                if self._may_write():
                    await call()
        except ClusterError as fault:
            self._rests_until = elapsed() + PAUSE_SECONDS
            log.warning("claims are not written", fault=str(fault), again_in=PAUSE_SECONDS)
        return len(over) + len(missing)

    def _own(self) -> dict[int, Reservation]:
        found = {}
        for name, one in self._reservations.store.view().items():
            number = name.removeprefix(self._prefix)
            if name.startswith(self._prefix) and number.isdecimal():
                found[int(number)] = one
        return found

    def _is_over(self, one: Reservation, claim: ClaimedNode | None) -> bool:
        is_old = self._client.now().timestamp() - one.made_at > self.replaced_after
        return claim is None or claim.node != one.node or is_old

    async def _make(self, claim: ClaimedNode) -> None:
        resources = {name: written(name, amount) for name, amount in claim.needs.asks if name != "pods"}
        name = f"{self._prefix.partition('/')[2]}{claim.task_id}"
        body = {
            "apiVersion": "dispatcher.internal/v1alpha1",
            "kind": "NodeReservation",
            "metadata": {"name": name},
            "spec": {
                "nodeName": claim.node,
                "resources": resources or {"pods": "1"},
                "target": {"taskId": claim.task_id},
                "ttlSeconds": LIVES_SECONDS,
            },
        }
        await self._call("POST", self._path, body)
        log.info("node claimed", node=claim.node, task=claim.task_id)

    async def _delete(self, one: Reservation) -> None:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": one.uid}}
        await self._call("DELETE", f"{self._path}/{one.name.partition('/')[2]}", body)

    async def _call(self, method: str, path: str, body: object) -> None:
        try:
            reply = await self._client.request(method, path, msgspec.json.encode(body), seconds=OF_A_ROUND_SECONDS)
            reply.expect(f"{method} {path}")
        except ClusterRefused as fault:
            if fault.status not in AS_WANTED or (method == "POST" and fault.status == 404):
                raise


def amounts_of(resource: str, written: Mapping[str, str | int] | None) -> dict[str, int]:
    """Amounts in thousandths. An amount that is no quantity counts as missing, and is counted in a metric.

    resource: kind of the object, for the metric.
    """
    texts = {name: str(amount) for name, amount in (written or {}).items()}
    found = amounts(texts.items())
    if len(found) < len(texts):
        UNREADABLE_AMOUNTS.labels(resource).inc(len(texts) - len(found))
    return found
