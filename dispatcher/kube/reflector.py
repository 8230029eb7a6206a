"""A reflector keeps one store equal to the API server's objects of one kind by list and watch. It never stops silently.

Simple watches lack these rules (sources: client-go's reflector, kopf #847, airflow #36998):

* Lists are consistent (no resourceVersion=0) and paged.
* Bookmarks move the resource version.
* A watch ends after at most five minutes, and after 90 s of silence.
* Every interruption is followed by a pause and a new list: 410 as a status or as an event in the stream, a refusal, a
  broken line, an event out of order. An accepted stream alone proves nothing.
* Pauses are jittered and double until a watch lives, so that a refusing server is never called in a hot loop.
* A list every ten minutes shows, as a metric, whether the watch missed a change.

Not guaranteed: that the store is current. `Store.age` is the time since the last proof, and decisions stop by it.
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
from dispatcher.kube.objects import read_status
from dispatcher.kube.store import Named, Store
from dispatcher.kube.wire import UNREADABLE, Bare, Event
from dispatcher.model.backoff import doubled
from dispatcher.model.errors import ClusterAway, ClusterError, ClusterRefused
from dispatcher.runtime.clock import elapsed
from dispatcher.runtime.metrics import RELISTS

log = structlog.get_logger(component="kube.reflector")

YIELD_EVERY: Final = 100
KIND_SECONDS: Final = 5
SHORTEST_SECONDS: Final = 1
"""A watch that ends sooner is a fault, even if it brought events."""
EVENTS: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})
T = TypeVar("T", bound=Named)


class Pace(Struct, frozen=True):
    """Times in seconds. Jitter adds up to a fifth to `watch` and `relist`, so that replicas do not reconnect together.

    watch: length of one watch.
    relist: time from one list to the next, as long as the watch works.
    first_pause: longest pause after a first fault.
    longest_pause: upper limit of all pauses.
    """

    watch: float = 240
    relist: float = 600
    first_pause: float = 0.5
    longest_pause: float = 30


class Reflector(Generic[T]):
    """Keeps `store` current. `store.on_each` tells each change, `on_list` tells each list.

    fault: why the store must not be used; empty if it may.
    is_following: whether a watch is open now.
    """

    def __init__(
        self, client: KubeClient, resource: Resource[T], pace: Pace = Pace(), chance: random.Random | None = None
    ) -> None:
        self.store: Store[T] = Store()
        self.resource = resource
        self.fault = "not listed yet"
        self.is_following = False
        self._client = client
        self._heard_list: list[Callable[[], None]] = []
        self._pace = pace
        self._chance = chance or random.Random()  # noqa: S311  # jitter, not a secret
        self._pauses = 0
        self._is_asked = False
        self._following: asyncio.Timeout | None = None

    def on_list(self, heard: Callable[[], None]) -> None:
        """Calls `heard` after each list, even if it brought no change: the store may be used from now on."""
        self._heard_list.append(heard)

    def relist(self) -> None:
        """Makes the store stale until a list that begins after this call has been read."""
        self.fault = "a new list is under way"
        self._is_asked = True
        if self._following is not None:
            self._following.reschedule(0)
            self._following = None  # the watch needs to be ended only once

    async def run(self) -> None:
        """Lists and watches until it is cancelled."""
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
        # A check lists at the store's own version. Later changes would look like changes that the watch missed.
        standing = {"resourceVersion": self.store.resource_version, "resourceVersionMatch": "Exact"}
        listed = await list_all(self._client, self.resource, standing if is_check else {})
        if self.store.has_passed(listed.resource_version):
            back = f"goes back to {listed.resource_version} from {self.store.resource_version}"
            raise ClusterAway(f"list {self.resource.name}: {back}; if etcd was restored, restart the dispatcher")
        drifted = self.store.replace(listed.items, listed.resource_version, elapsed())
        RELISTS.labels(self.resource.name, "drift" if drifted and is_check else cause).inc()
        if not self._is_asked:
            self.fault = ""
        for heard in self._heard_list:
            heard()

    async def _follow_until_asked(self) -> str:
        """Like `_follow`, but a call of `relist` ends it."""
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
        """Watches from the last list on. Returns the cause of the next list."""
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
        """Reads one watch to its end. Returns True if it brought an event."""
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
                        await asyncio.sleep(0)  # reading buffered lines never suspends: a burst would block the loop
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
        if fact is None:
            self.store.drop(self.resource.key(meta))
        else:
            self.store.put(fact)

    async def _wait_for_kind(self) -> None:
        """Waits for a kind that the cluster does not have yet. Until then the store is empty and valid."""
        self.store.replace((), "", elapsed())
        self.fault = ""
        await asyncio.sleep(KIND_SECONDS)

    async def _pause(self, fault: ClusterError) -> None:
        """Sleeps for a quarter of a limit up to the whole limit, at random. The limit doubles with each fault."""
        self.fault = str(fault)
        limit = doubled(self._pace.first_pause, self._pauses, self._pace.longest_pause)
        self._pauses += 1
        log.warning("watch interrupted", resource=self.resource.name, fault=str(fault), again_in=round(limit, 1))
        await asyncio.sleep(self._chance.uniform(limit / 4, limit))
