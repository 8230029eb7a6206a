"""A reflector keeps one store equal to the API server's objects of one kind: list, then watch, and never silently stop.

What it does that naive watches do not (client-go's reflector, kopf #847, airflow #36998 are the museum):
the list is consistent (no resourceVersion=0) and paged; bookmarks move the version; a watch is ended after at most five
minutes and after 90 s of silence; whatever interrupts it (410 as a status or as an event in the stream, a refusal, a
broken line, an event out of order) is followed by a pause and a new list, because a stream that is merely accepted
proves nothing; pauses are jittered and double until a watch lives, so that a refusing server is never hit in a hot
loop; and a list every ten minutes shows, as a metric, whether the watch ever lied.

Not guaranteed: that the store is current. `Store.age` says since when it is unproven, and decisions stop by it.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Final, Generic, TypeVar

import msgspec
import structlog
from msgspec import Struct

from dispatcher.kube.client import KubeClient, WatchSilent
from dispatcher.kube.listing import Resource, list_all
from dispatcher.kube.objects import UNREADABLE, Event, Meta, Wire, read_status
from dispatcher.kube.store import Named, Store
from dispatcher.model.errors import ClusterAway, ClusterError, ClusterRefused
from dispatcher.runtime.clock import elapsed
from dispatcher.runtime.metrics import RELISTS

log = structlog.get_logger(component="kube.reflector")

YIELD_EVERY: Final = 100
KIND_SECONDS: Final = 5
SHORTEST_SECONDS: Final = 1
"""A watch that lived for less is a fault, whatever it brought."""
EVENTS: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})
T = TypeVar("T", bound=Named)


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
        self.is_following = False
        self._client = client
        self._changed = changed
        self._pace = pace
        self._chance = chance or random.Random()  # noqa: S311  # jitter, not a secret
        self._pauses = 0
        self._is_asked = False
        self._following: asyncio.Timeout | None = None

    def relist(self) -> None:
        """Nothing that is known now counts until a list that begins after this call is in."""
        self.fault = "a new list is under way"
        self._is_asked = True
        if self._following is not None:
            self._following.reschedule(0)
            self._following = None  # one end is enough

    async def run(self) -> None:
        cause = "start"
        while True:
            try:
                await self._list(cause)
                cause = await self._follow_until_asked()
            except ClusterError as fault:
                status = fault.status if isinstance(fault, ClusterRefused) else 0
                cause = "expired" if status == 410 else "fault"
                if status == 404 and self.resource.is_optional:
                    await self._wait_for_kind()
                else:
                    await self._pause(fault)

    async def _list(self, cause: str) -> None:
        is_check = cause == "due" and not self._is_asked
        self._is_asked = False
        # As of where the store stands: what has changed since would look like a lie of the watch.
        standing = {"resourceVersion": self.store.resource_version, "resourceVersionMatch": "Exact"}
        listed = await list_all(self._client, self.resource, standing if is_check else {})
        if self.store.has_passed(listed.resource_version):
            back = f"goes back to {listed.resource_version} from {self.store.resource_version}"
            raise ClusterAway(f"list {self.resource.name}: {back}; if etcd was restored, restart the dispatcher")
        drifted = self.store.replace(listed.items, listed.resource_version, elapsed())
        RELISTS.labels(self.resource.name, "drift" if drifted and is_check else cause).inc()
        if not self._is_asked:
            self.fault = ""
        self._changed()

    async def _follow_until_asked(self) -> str:
        """As `_follow`, but a call of `relist` ends it."""
        scope = asyncio.timeout(0 if self._is_asked else None)
        try:
            async with scope:
                self._following = scope
                return await self._follow()
        except TimeoutError:
            if not scope.expired():
                raise
            return "asked"
        finally:
            self._following = None

    async def _follow(self) -> str:
        """Watches from the list on; returns why a new list is needed."""
        relist_at = elapsed() + self._pace.relist * self._chance.uniform(1, 1.2)
        while (left := relist_at - elapsed()) > 0:
            began, moved = elapsed(), False
            try:
                with suppress(WatchSilent):
                    moved = await self._watch(min(left, self._pace.watch * self._chance.uniform(1, 1.2)))
            finally:
                lived = elapsed() - began
                if lived >= SHORTEST_SECONDS:
                    self._pauses = 0
            if lived < SHORTEST_SECONDS:
                raise ClusterAway(f"watch {self.resource.name}: ended at once")
            if not moved and elapsed() < relist_at:
                return "quiet"
        return "due"

    async def _watch(self, seconds: float) -> bool:
        """One watch to its end. True: it brought something."""
        params = {"resourceVersion": self.store.resource_version, **self.resource.which}
        number = 0
        async with aclosing(self._client.watch(self.resource.path, params, max(seconds, 1))) as lines:
            try:
                async for line in lines:
                    self.is_following = True
                    if line:
                        self._apply(line)
                    else:
                        self.store.prove(elapsed())
                    number += 1
                    if number % YIELD_EVERY == 0:
                        await asyncio.sleep(0)  # buffered lines never suspend, and a burst would hold the loop
            finally:
                self.is_following = False
        return number > 1

    def _apply(self, line: bytes) -> None:
        doing = f"watch {self.resource.name}"
        try:
            event = msgspec.json.decode(line, type=Event)
            if event.type == "ERROR":
                status = read_status(bytes(event.object))
                raise ClusterRefused(doing, status.code, status.reason, status.message)
            meta = msgspec.json.decode(event.object, type=Bare).metadata
            fact = self.resource.read(event.object) if event.type in {"ADDED", "MODIFIED"} else None
        except UNREADABLE as fault:
            raise ClusterAway(f"{doing}: half a line: {fault}") from fault
        if event.type not in EVENTS:
            raise ClusterAway(f"{doing}: an event of type {event.type[:20]!r}")
        if self.store.has_passed(meta.resource_version):
            raise ClusterAway(f"{doing}: goes back to {meta.resource_version} from {self.store.resource_version}")
        self.store.prove(elapsed(), meta.resource_version)
        if event.type == "BOOKMARK":
            return
        if self.store.drop(self.resource.key(meta)) if fact is None else self.store.put(fact):
            self._changed()

    async def _wait_for_kind(self) -> None:
        """There is none of it, until somebody adds the kind to the cluster."""
        self.store.replace((), "", elapsed())
        self.fault = ""
        await asyncio.sleep(KIND_SECONDS)

    async def _pause(self, fault: ClusterError) -> None:
        """Full jitter between nothing and a limit that doubles."""
        self.fault = str(fault)
        limit = min(self._pace.first_pause * 2**self._pauses, self._pace.longest_pause)
        self._pauses = min(self._pauses + 1, 16)
        log.warning("watch interrupted", resource=self.resource.name, fault=str(fault), again_in=round(limit, 1))
        await asyncio.sleep(self._chance.uniform(limit / 4, limit))
