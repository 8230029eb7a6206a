"""A reflector keeps one store equal to the API server's objects of one kind: list, then watch, and never silently stop.

What it does that naive watches do not (client-go's reflector, kopf #847, airflow #36998 are the museum):
the list is consistent (no resourceVersion=0) and paged; bookmarks move the version; a watch is ended after at most five
minutes and after 90 s of silence; 410 means relist, as a status and as an event in the stream; everything else is
retried from the same version with a jittered, bounded pause, so that a refusing server is never hit in a hot loop; and
a full relist every ten minutes shows, as a metric, whether the watch ever lied.

Not guaranteed: that the store is current. `Store.age` says since when it is unproven, and decisions stop by it.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec
import structlog
from msgspec import Struct

from dispatcher.errors import ClusterAway, ClusterError, ClusterRefused
from dispatcher.kube.client import KubeClient
from dispatcher.kube.objects import Event, Meta, Page, Wire, read_status
from dispatcher.kube.store import Named, Store
from dispatcher.metrics import RELISTS

log = structlog.get_logger(component="kube.reflector")

PAGE: Final = 500
YIELD_EVERY: Final = 100
T = TypeVar("T", bound=Named)


class Resource(Struct, Generic[T], frozen=True):
    """What is mirrored: its path, which of it, and how an object becomes a fact (None: not ours)."""

    name: str
    path: str
    read: Callable[[msgspec.Raw], T | None]
    selector: str = ""


class Pace(Struct, frozen=True):
    """Seconds. Watches and relists are jittered, so that replicas do not reconnect together."""

    watch: float = 240
    relist: float = 600
    first_pause: float = 0.5
    longest_pause: float = 30


class Bare(Wire, frozen=True):
    """Any object, for its metadata."""

    metadata: Meta = Meta()


class Reflector(Generic[T]):
    """Runs until it is cancelled; `changed` is called whenever the store changed."""

    def __init__(
        self, client: KubeClient, resource: Resource[T], changed: Callable[[], None],
        pace: Pace = Pace(), chance: random.Random | None = None,
    ) -> None:  # fmt: skip
        self.store: Store[T] = Store()
        self.resource = resource
        self.fault = "not listed yet"
        self._client = client
        self._changed = changed
        self._pace = pace
        self._chance = chance or random.Random()  # noqa: S311  jitter, not a secret
        self._pauses = 0

    async def run(self) -> None:
        cause = "start"
        while True:
            try:
                await self._list(cause)
                cause = await self._follow()
            except ClusterError as fault:
                cause = "fault"
                await self._pause(fault)

    async def _list(self, cause: str) -> None:
        found: list[T] = []
        params = {"limit": str(PAGE), "labelSelector": self.resource.selector}
        while True:
            reply = await self._client.request("GET", self.resource.path, params=params)
            page = self._read_page(reply.expect(f"list {self.resource.name}"), found)
            if not page.metadata.continue_:
                break
            params["continue"] = page.metadata.continue_
            await asyncio.sleep(0)  # between pages the loop belongs to others
        drifted = self.store.replace(found, page.metadata.resource_version, time.monotonic())
        RELISTS.labels(self.resource.name, "drift" if drifted and cause == "due" else cause).inc()
        self._recover()
        self._changed()

    def _read_page(self, body: bytes, found: list[T]) -> Page:
        try:
            page = msgspec.json.decode(body, type=Page)
            found.extend(fact for raw in page.items if (fact := self.resource.read(raw)) is not None)
        except msgspec.DecodeError as fault:
            raise ClusterAway(f"list {self.resource.name}: not a list: {fault}") from fault
        return page

    async def _follow(self) -> str:
        """Watches from the list on; returns why a new list is needed."""
        relist_at = time.monotonic() + self._pace.relist * self._chance.uniform(1, 1.2)
        while time.monotonic() < relist_at:
            began, moved = time.monotonic(), False
            try:
                moved = await self._watch()
            except ClusterRefused as fault:
                if fault.status == 410:
                    await self._pause(fault)
                    return "expired"
                raise
            except ClusterAway as fault:
                await self._pause(fault)
                continue
            if not moved and time.monotonic() - began < 1:
                await self._pause(ClusterAway(f"watch {self.resource.name}: ended at once, without an event"))
        return "due"

    async def _watch(self) -> bool:
        """One watch to its end. True: it brought something."""
        params = {"resourceVersion": self.store.resource_version, "labelSelector": self.resource.selector}
        seconds = self._pace.watch * self._chance.uniform(1, 1.2)
        number = 0
        async for line in self._client.watch(self.resource.path, params, seconds):
            if line:
                self._apply(line)
                self._recover()
            else:
                self.store.prove(time.monotonic())
            number += 1
            if number % YIELD_EVERY == 0:
                await asyncio.sleep(0)  # buffered lines never suspend, and a burst would hold the loop
        return number > 1

    def _apply(self, line: bytes) -> None:
        try:
            event = msgspec.json.decode(line, type=Event)
            if event.type == "ERROR":
                status = read_status(bytes(event.object))
                raise ClusterRefused(f"watch {self.resource.name}", status.code, status.reason, status.message)
            meta = msgspec.json.decode(event.object, type=Bare).metadata
            fact = self.resource.read(event.object) if event.type in {"ADDED", "MODIFIED"} else None
        except msgspec.DecodeError as fault:
            raise ClusterAway(f"watch {self.resource.name}: half a line: {fault}") from fault
        self.store.prove(time.monotonic(), meta.resource_version)
        if event.type == "BOOKMARK":
            return
        if self.store.drop(meta.name) if fact is None else self.store.put(fact):
            self._changed()

    def _recover(self) -> None:
        self.fault = ""
        self._pauses = 0

    async def _pause(self, fault: ClusterError) -> None:
        """Full jitter between nothing and a limit that doubles."""
        self.fault = str(fault)
        limit = min(self._pace.first_pause * 2**self._pauses, self._pace.longest_pause)
        self._pauses = min(self._pauses + 1, 16)
        log.warning("watch interrupted", resource=self.resource.name, fault=str(fault), again_in=round(limit, 1))
        await asyncio.sleep(self._chance.uniform(limit / 4, limit))
