"""Claims as NodeReservations, so that the extender keeps other people's Pods away from claimed nodes, too.

A reservation `{INSTALLATION}-claim-{task id}` ends by itself after 15 minutes. While its claim lasts, it is replaced in
time. So a dispatcher that dies leaves nothing behind for long. Without the kind, or without the right, claims work for
our own Pods alone.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol
from urllib.parse import quote

import msgspec
import structlog

from dispatcher.kube.client import KubeClient
from dispatcher.kube.reflector import Reflector
from dispatcher.kube.reflectors import fault_of
from dispatcher.kube.reservations import GROUP
from dispatcher.model.amounts import written
from dispatcher.model.errors import ClusterError, ClusterRefused
from dispatcher.model.needs import PodNeeds
from dispatcher.model.reservations import Reservation
from dispatcher.runtime.clock import elapsed

LIVES_SECONDS: Final = 900
REPLACED_AFTER_SECONDS: Final = 600
PAUSE_SECONDS: Final = 60
"""Pause after a refusal, for example because the kind is not installed."""
REQUEST_SECONDS: Final = 5
AS_WANTED: Final = {404, 409}
"""Answers of a DELETE whose object is gone, and of a POST whose object is there."""
log = structlog.get_logger(component="kube.claims")


class Claim(Protocol):
    """A node that is kept for a row."""

    @property
    def task_id(self) -> int: ...
    @property
    def node(self) -> str: ...
    @property
    def needs(self) -> PodNeeds: ...


class ClaimObjects:
    """The NodeReservations of one installation's claims."""

    def __init__(
        self, client: KubeClient, reservations: Reflector[Reservation], namespace: str, installation: str,
        may_write: Callable[[], bool],
    ) -> None:  # fmt: skip
        """`may_write` is asked before each call, because a term may end meanwhile."""
        self._client = client
        self._reservations = reservations
        self._path = f"{GROUP}/namespaces/{quote(namespace, safe='')}/nodereservations"
        self._prefix = f"{namespace}/{installation}-claim-"
        self._may_write = may_write
        self._rests_until = 0.0

    def known(self) -> Mapping[int, str]:
        """The claimed nodes by task, as far as reservations show them."""
        return {task_id: one.node for task_id, one in self._own().items()}

    async def keep(self, claims: Sequence[Claim]) -> int:
        """Makes missing reservations, and deletes those that are old or not wanted. Returns the number of writes."""
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

    def _is_over(self, one: Reservation, claim: Claim | None) -> bool:
        is_old = self._client.now().timestamp() - one.made_at > REPLACED_AFTER_SECONDS
        return claim is None or claim.node != one.node or is_old

    async def _make(self, claim: Claim) -> None:
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
            reply = await self._client.request(method, path, msgspec.json.encode(body), seconds=REQUEST_SECONDS)
            reply.expect(f"{method} {path}")
        except ClusterRefused as fault:
            if fault.status not in AS_WANTED or (method == "POST" and fault.status == 404):
                raise
