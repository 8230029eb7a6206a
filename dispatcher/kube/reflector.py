"""Reflectors: each keeps one store equal to the API server's objects of one kind, by list and watch.

`Store`: the local copy of one resource.

`list_all`: lists one resource consistently, in pages, and reads each object as a fact.

`Reflector`: it never stops silently. Simple watches lack these rules (sources: client-go's reflector, kopf #847,
airflow #36998):

* Lists are consistent (no resourceVersion=0) and paged.
* Bookmarks move the resource version.
* A watch ends after at most five minutes, and after 90 s of silence.
* Every interruption is followed by a pause and a new list: 410 as a status or as an event in the stream, a refusal, a
  broken line, an event out of order. An accepted stream alone proves nothing.
* An API server that only asks for a pause (429) gets it, and then the same question: a page of a list is asked for
  again, and a watch goes on from its version. To begin anew would cost a large cluster a thousand pages.
* Pauses are jittered and double until a watch lives, so that a refusing server is never called in a hot loop.
* A list every ten minutes shows, as a metric, whether the watch missed a change.

Not guaranteed: that the store is current. `Store.age` is the time since the last proof, and decisions stop by it.

`Reflectors`: the reflectors of one process, one for each resource, so that nothing is listed and watched twice (a
shared informer factory of client-go).
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
import structlog
from msgspec import Struct

from dispatcher.kube.client import AnswerTooLarge, KubeClient, Reply, WatchSilent
from dispatcher.kube.objects import read_status
from dispatcher.kube.wire import UNREADABLE, Bare, Event, ListPage, Meta, full_name, mended
from dispatcher.model.cluster import StoreAge
from dispatcher.model.errors import ClusterAway, ClusterError, ClusterRefused, doubled
from dispatcher.runtime.clock import elapsed
from dispatcher.runtime.logs import LastingFault
from dispatcher.runtime.metrics import RELISTS, STORE_AGE


class NamedObject(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=NamedObject)


class Store(Generic[T]):
    """Objects of one resource. No decision may use them before the first list.

    is_synced: whether a list was read.
    resource_version: the version that the objects have reached.
    proven_at: monotonic seconds of the last sign of life from the API server.
    """

    def __init__(self) -> None:
        self._listeners: list[Callable[[T | None, T | None], None]] = []
        self._items: dict[str, T] = {}
        self._view: dict[str, T] | None = None
        self.is_synced = False
        self.resource_version = ""
        self.proven_at = float("-inf")

    def on_each(self, hear: Callable[[T | None, T | None], None]) -> None:
        """Calls `hear(before, after)` for each change. `before` is None for a new object, `after` for a deleted one."""
        self._listeners.append(hear)

    def _tell(self, before: T | None, after: T | None) -> None:
        for hear in self._listeners:
            hear(before, after)

    def __contains__(self, name: str) -> bool:
        return name in self._items

    def view(self) -> Mapping[str, T]:
        """The objects at this moment. It never changes, and is the same object as before if nothing has changed."""
        if self._view is None:
            self._view = dict(self._items)
        return self._view

    def values(self) -> list[T]:
        """The objects at this moment, as a list that the store does not keep."""
        return list(self._items.values())

    def replace(self, items: Iterable[T], resource_version: str, now: float) -> bool:
        """Takes a whole list. Returns True if it differs from the state after the watch (drift)."""
        fresh = {item.name: item for item in items}
        differs = self.is_synced and fresh != self._items
        before, self._items, self._view = self._items, fresh, None
        for name in before.keys() | fresh.keys():
            if before.get(name) != fresh.get(name):
                self._tell(before.get(name), fresh.get(name))
        self.is_synced = True
        self.prove(now, resource_version)
        return differs

    def put(self, item: T) -> None:
        """Stores an object. A node's heartbeat changes none of our fields, so no listener hears of it."""
        before = self._items.get(item.name)
        self._items[item.name] = item
        if before != item:
            self._view = None
            self._tell(before, item)

    def drop(self, name: str) -> None:
        before = self._items.pop(name, None)
        if before is not None:
            self._view = None
            self._tell(before, None)

    def has_passed(self, resource_version: str) -> bool:
        """Whether the store has reached a later version (KEP-5504: versions are ordered integers)."""
        ours, theirs = self.resource_version, resource_version
        return ours.isdecimal() and theirs.isdecimal() and int(ours) > int(theirs)

    def prove(self, now: float, resource_version: str = "") -> None:
        """Notes a sign of life from the API server. `now`: monotonic seconds."""
        self.proven_at = now
        self.resource_version = resource_version or self.resource_version

    def age(self, now: float) -> float:
        """Seconds since the last proof; infinite before the first."""
        return now - self.proven_at


PAGE: Final = 100
"""Objects of one page of a list."""
BUSY: Final = 429
"""The API server asks for a pause. It has answered nothing, and forgets nothing."""
TRIES: Final = 10
"""Times that one page is asked for while the server asks for pauses, as client-go does."""
LONGEST_WISH_SECONDS: Final = 30
"""The longest Retry-After of a page that is obeyed, in seconds."""
Item = TypeVar("Item")


def by_name(meta: Meta) -> str:
    return meta.name


class Resource(Struct, Generic[Item], frozen=True):
    """Which objects to list, and how to read them.

    name: name in metrics, logs and faults.
    path: path of the collection.
    read: makes a fact of an object; None: the object is not ours.
    selector: label selector.
    fields: field selector.
    key: the fact's name, from its metadata.
    is_optional: a 404 means that the API server does not know the kind, so there are no such objects.
    """

    name: str
    path: str
    read: Callable[[msgspec.Raw], Item | None]
    selector: str = ""
    fields: str = ""
    key: Callable[[Meta], str] = by_name
    is_optional: bool = False

    @property
    def which(self) -> dict[str, str]:
        """Query parameters that select the objects, for a list and for a watch."""
        return {"labelSelector": self.selector} | ({"fieldSelector": self.fields} if self.fields else {})


class ObjectList(Struct, Generic[Item], frozen=True):
    """All objects, as of one resource version."""

    items: Sequence[Item]
    resource_version: str


async def list_all(client: KubeClient, resource: Resource[Item], params: Mapping[str, str] = {}) -> ObjectList[Item]:
    """Lists all objects. The list never comes from a lagging cache, unless `params` name a resourceVersion.

    Raises ClusterError if any page is missing.
    """
    found, limit, begin = list[Item](), PAGE, params
    while True:
        asked = {**resource.which, **begin, "limit": str(limit)}
        try:
            reply = await ask_patiently(client, resource.path, asked)
        except AnswerTooLarge:
            if limit == 1:
                raise
            limit //= 2
            continue
        page = read_page(resource, reply, found)
        if not page.metadata.continue_:
            return ObjectList(found, page.metadata.resource_version)
        begin = {"continue": page.metadata.continue_}
        await asyncio.sleep(0)  # lets other coroutines run between pages


async def ask_patiently(client: KubeClient, path: str, params: Mapping[str, str]) -> Reply:
    """The answer to a GET, after the pauses that the API server asks for."""
    for left in reversed(range(TRIES)):
        reply = await client.request("GET", path, params=params)
        if reply.status != BUSY or not left or not 0 < reply.retry_after <= LONGEST_WISH_SECONDS:
            break
        await asyncio.sleep(reply.retry_after * random.uniform(1, 1.3))  # noqa: S311  # spreads clients, keeps no secret
    return reply


def read_page(resource: Resource[Item], reply: Reply, found: list[Item]) -> ListPage:
    page = reply.read(f"list {resource.name}", ListPage)
    found.extend(fact for raw in page.items if (fact := read_item(resource, raw)) is not None)
    return page


def read_item(resource: Resource[Item], raw: msgspec.Raw) -> Item | None:
    try:
        return resource.read(raw)
    except UNREADABLE:
        text = mended(bytes(raw))
    try:
        return resource.read(msgspec.Raw(text))
    except UNREADABLE as fault:
        raise ClusterAway(f"list {resource.name}: {name_in(text)} cannot be read: {fault}") from fault


def name_in(text: bytes) -> str:
    """The name of an object that cannot be read; of a proxy's page there is none."""
    try:
        return full_name(msgspec.json.decode(text, type=Bare).metadata)
    except UNREADABLE:
        return "an object"


log = structlog.get_logger(component="kube.reflector")

YIELD_EVERY: Final = 100
"""Lines of a watch after which other coroutines run."""
KIND_SECONDS: Final = 5
"""Seconds between two looks for a kind that the cluster does not have yet."""
SHORTEST_SECONDS: Final = 1
"""A watch that ends within this number of seconds is a fault, even if it brought events."""
EVENTS: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})


class ReflectorPace(Struct, frozen=True):
    """Times in seconds. Jitter adds up to a fifth to `watch` and `relist`, so that replicas do not reconnect together.

    watch: length of one watch.
    relist: time from one list to the next, while the watch works.
    first_pause: longest pause after a first fault.
    longest_pause: upper limit of all pauses.
    """

    watch: float = 240
    relist: float = 600
    first_pause: float = 0.5
    longest_pause: float = 30


NOT_LISTED, UNDER_WAY = "not listed yet", "a new list is under way"


class Reflector(Generic[T]):
    """Keeps `store` current. `store.on_each` tells each change, `on_list` tells each list.

    fault: why the store must not be used; empty if it may.
    is_following: whether a watch is open now.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource[T],
        pace: ReflectorPace = ReflectorPace(),
        chance: random.Random | None = None,
    ) -> None:
        self.store: Store[T] = Store()
        self.resource = resource
        self.fault = NOT_LISTED
        self.is_following = False
        self._client = client
        self._heard_list: list[Callable[[], None]] = []
        self._pace = pace
        self._chance = chance or random.Random()  # noqa: S311  # jitter, not a secret
        self._pauses = 0
        self._lasting = LastingFault()
        self._is_asked = False
        self._following: asyncio.Timeout | None = None

    def on_list(self, heard: Callable[[], None]) -> None:
        """Calls `heard` after each list, even if it brought no change: the store may be used from now on."""
        self._heard_list.append(heard)

    def relist(self) -> None:
        """Makes the store stale until a list that begins after this call has been read."""
        self.fault = UNDER_WAY
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
                    self.fault = str(fault)
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
        self._lasting.end()
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
            began, moved, busy = elapsed(), False, None
            try:
                with suppress(WatchSilent):
                    moved = await self._watch(min(left, self._pace.watch * self._chance.uniform(1, 1.2)))
            except ClusterRefused as refused:
                if refused.status != BUSY:
                    raise
                busy = refused
            finally:
                lived = elapsed() - began
                if lived >= SHORTEST_SECONDS:
                    self._pauses = 0
            if busy is not None:
                await self._pause(busy)
                continue
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

    def _read(self, line: bytes) -> tuple[Event, Meta, T | None]:
        event = msgspec.json.decode(line, type=Event)
        if event.type == "ERROR":
            status = read_status(bytes(event.object))
            raise ClusterRefused(f"watch {self.resource.name}", status.code, status.reason, status.message)
        meta = msgspec.json.decode(event.object, type=Bare).metadata
        return event, meta, self.resource.read(event.object) if event.type in {"ADDED", "MODIFIED"} else None

    def _apply(self, line: bytes) -> None:
        doing = f"watch {self.resource.name}"
        try:
            event, meta, fact = self._read(line)
        except UNREADABLE:
            try:
                event, meta, fact = self._read(mended(line))
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
        """Sleeps at random for a quarter of a limit up to the whole limit. The limit doubles with each fault."""
        limit = doubled(self._pace.first_pause, self._pauses, self._pace.longest_pause)
        self._pauses += 1
        if self._lasting.is_due(str(fault)):
            log.warning("watch interrupted", resource=self.resource.name, fault=str(fault), again_in=round(limit, 1))
        await asyncio.sleep(self._chance.uniform(limit / 4, limit))


MOST_SECONDS = 100
"""Seconds without proof after which a store is stale. Bookmarks come each minute; 90 s of silence end a watch."""
MOST_SHOWN: Final = 1e9
"""Age of a store that was never listed, as the metric shows it."""


class Reflectors:
    """All reflectors of a process. Every resource must be requested before `run`."""

    def __init__(self, client: KubeClient, pace: ReflectorPace = ReflectorPace()) -> None:
        self.client = client
        self._pace = pace
        self._made: dict[Resource[Any], Reflector[Any]] = {}

    def of(self, resource: Resource[T]) -> Reflector[T]:
        """The reflector of a resource. Equal resources share one."""
        if resource not in self._made:
            self._made[resource] = Reflector[T](self.client, resource, self._pace)
            STORE_AGE.labels(resource.name).set_function(partial(self._age, resource.name))
        return self._made[resource]

    def _age(self, name: str) -> float:
        """Age of the oldest store of this kind of object, at most MOST_SHOWN seconds."""
        now = elapsed()
        return max(min(one.store.age(now), MOST_SHOWN) for kind, one in self._made.items() if kind.name == name)

    def ages(self) -> list[StoreAge]:
        now = elapsed()
        return [StoreAge(kind.name, one.store.age(now), MOST_SECONDS, one.fault) for kind, one in self._made.items()]

    async def run(self) -> None:
        """Runs until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._made.values():
                group.create_task(reflector.run())


def fault_of(reflector: Reflector[Any]) -> str:
    """Why the store must not be used for decisions; empty if it is fresh."""
    age = reflector.store.age(elapsed())
    if reflector.fault or age > MOST_SECONDS:
        return f"{reflector.resource.name}: {reflector.fault or f'no sign of life for {age:.0f} s'}"
    return ""


def is_lost(reflector: Reflector[Any]) -> bool:
    """Whether the store has been stale for long, and not because a list takes its time."""
    is_awaited = reflector.fault in {NOT_LISTED, UNDER_WAY}
    return reflector.store.age(elapsed()) > MOST_SECONDS and not is_awaited


def faults_of(*reflectors: Reflector[Any]) -> str:
    """The faults of these reflectors in one line; empty if all are fresh."""
    return "; ".join(fault for one in reflectors if (fault := fault_of(one)))
