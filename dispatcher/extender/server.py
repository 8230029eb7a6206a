"""The extender's server. kube-scheduler asks which nodes a Pod may have, how good they are, and what it may preempt.

    filter ─▶ nodes.NodeFilter: nodes reserved for others     prioritize ─▶ nodes.score, by the free capacity in memory
    preempt ─▶ nodes.NodeFilter: the proposed victims         explain ─▶ both for people, by node and term

`Bodies`: limits of bodies and answers in size, in number and in time.

    up to 1 MiB                     read at once; these bodies and their answers hold at most 16 MiB together
    up to 16 MiB, or of a size      one at a time, from the first byte of the body to the last byte of the answer;
    not told (chunked, zipped)      the others wait three seconds for their turn, then get 503

kube-scheduler names 5,000 nodes in a quarter of a MiB and waits one second. So such a body never waits for the turn of
a larger one. A slow sender or reader keeps its place for two seconds. The number of values is limited, too, because a
decoded body takes memory for each of them: 16 MiB of `5,` would be half a GiB of objects.

Not guaranteed: an answer for every caller. A flood of small bodies takes answers from others, but memory stays bounded.

`Extender`: every answer comes from memory, because kube-scheduler schedules nothing else while it waits. If the answer
is late or the Pod cannot be read, no node gets points. An unreadable Pod is refused only reserved nodes. A body without
a readable node name is refused, because no answer would be true. No request ends the process. No body is ever logged,
because it holds environment variables.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
import structlog
from aiohttp import web
from msgspec import Struct

from dispatcher.extender.book import UNCERTAIN
from dispatcher.extender.configuration import FAULTS, ConfigurationCheck, Peer
from dispatcher.extender.nodes import NodeFilter, NotListed, Preferences, Score, read_preferences, score, score_in_time
from dispatcher.extender.wire import (
    NOTHING,
    Arguments,
    ExtenderPod,
    FilterResult,
    Nodes,
    PreemptionArguments,
    PreemptionResult,
    Priority,
)
from dispatcher.kube.wire import UNREADABLE
from dispatcher.model.cluster import FreeCapacity
from dispatcher.placement.placing import POINTS
from dispatcher.runtime.clock import Clock, elapsed
from dispatcher.runtime.metrics import (
    EXTENDER_CONFIG_FAULTS,
    EXTENDER_IGNORED,
    EXTENDER_NODES,
    EXTENDER_REFUSED,
    EXTENDER_SECONDS,
    HISTORY_HITS,
)

SMALL_BODY: Final = 2**20
"""Bytes of a small body, at most."""
LARGEST_NAMES: Final = 4 * 2**20
"""Bytes of a body that names its nodes instead of holding them, at most: 15,000 names of the greatest length."""
LARGEST_BODY: Final = 16 * 2**20
"""Bytes of any body, at most."""
HELD_BYTES: Final = 16 * 2**20
"""Bytes of all small bodies and their answers together, at most."""
MOST_NODES: Final = 50_000
"""Nodes of one request, at most."""
MOST_VALUES: Final = 2**17
"""Values of a body that names its nodes, at most. A JSON text has about as many values as commas."""
MOST_WHOLE_VALUES: Final = 400_000
"""Values of a body that holds whole nodes or whole victims, at most: a comma in every 40 bytes."""
MOST_WAITING: Final = 32
"""Large bodies that wait for their turn, at most."""
JSON: Final = "application/json"
OF_BROWSERS: Final = ("Origin", "Sec-Fetch-Site")
"""Headers of requests by pages. kube-scheduler sends neither."""
TURN_SECONDS, READ_SECONDS, SEND_SECONDS = 3, 2, 2


class BodyRefused(Exception):
    """A body that is not read. The message names the limit, and quotes nothing of the body."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Bodies:
    """The bodies and answers that one server holds."""

    def __init__(self) -> None:
        self._held_bytes = 0
        """By small bodies and their answers."""
        self._turn = asyncio.Lock()
        self._waiting = 0

    @asynccontextmanager
    async def place_for(self, request: web.Request) -> AsyncIterator["CallSlot"]:
        """The right to be read and answered. BodyRefused: a page asks, a body is large, or its turn comes too late."""
        if any(name in request.headers for name in OF_BROWSERS):  # a page of somebody else, on a person's machine
            raise BodyRefused(403, "no page in a browser may ask the extender")
        size = size_of(request)
        if size > LARGEST_BODY:
            raise too_large(LARGEST_BODY)
        if size > SMALL_BODY:
            await self._take_turn()
            try:
                yield CallSlot(self, LARGEST_BODY)
            finally:
                self._turn.release()
            return
        place = CallSlot(self, SMALL_BODY)
        try:
            yield place
        finally:
            self._held_bytes -= place.held

    def hold(self, size: int) -> None:
        """Counts bytes of a small body or its answer. Raises BodyRefused if HELD_BYTES would be exceeded."""
        if self._held_bytes + size > HELD_BYTES:
            raise BodyRefused(503, f"small bodies and their answers hold {HELD_BYTES} bytes already: ask again")
        self._held_bytes += size

    async def _take_turn(self) -> None:
        if self._waiting >= MOST_WAITING:
            raise BodyRefused(
                503, f"{MOST_WAITING} bodies over {SMALL_BODY} bytes wait for their turn already: ask again"
            )
        self._waiting += 1
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await self._turn.acquire()
        except TimeoutError as fault:
            told = f"bodies over {SMALL_BODY} bytes are answered one at a time, and {TURN_SECONDS} s were not enough"
            raise BodyRefused(503, f"{told}: ask again") from fault
        finally:
            self._waiting -= 1


class CallSlot:
    """The place of one call. `held`: its bytes that count towards HELD_BYTES."""

    def __init__(self, bodies: Bodies, most: int) -> None:
        self._bodies = bodies
        self._most = most
        self.held = 0

    async def read(self, request: web.Request) -> bytearray:
        """The whole body. Raises BodyRefused if it is too large or too slow, or as `hold`."""
        body = bytearray()
        try:
            async with asyncio.timeout(READ_SECONDS):
                while chunk := await request.content.readany():
                    if len(body) + len(chunk) > self._most:
                        raise too_large(self._most)
                    self.hold(len(chunk))
                    body += chunk
        except TimeoutError as fault:
            raise BodyRefused(408, f"the body did not come within {READ_SECONDS} s") from fault
        check_values(body, MOST_VALUES if self._most == SMALL_BODY else MOST_WHOLE_VALUES)
        return body

    async def send(self, request: web.Request, answer: bytes) -> web.StreamResponse:
        """Sends until the reader has nearly everything. Cuts off a slow reader. Raises BodyRefused as `hold`.

        aiohttp would keep a response that holds its body until the next request of the connection.
        """
        self.hold(len(answer))
        response = web.StreamResponse(headers={"Content-Type": JSON, "Content-Length": str(len(answer))})
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await response.prepare(request)
                await response.write(answer)
                await response.write_eof()
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            pass  # the reader is gone
        return response

    def hold(self, size: int) -> None:
        """Counts bytes, if the body is a small one. Raises BodyRefused if HELD_BYTES would be exceeded."""
        if self._most == SMALL_BODY:
            self._bodies.hold(size)
            self.held += size


def size_of(request: web.Request) -> int:
    """The size of the body in the headers, or LARGEST_BODY if they have none."""
    is_told = request.content_length is not None and "Content-Encoding" not in request.headers
    return (request.content_length or 0) if is_told else LARGEST_BODY


def too_large(most: int) -> BodyRefused:
    return BodyRefused(413, f"more than {most} bytes")


def check_values(body: bytes | bytearray, most: int) -> None:
    if body.count(b",") > most:
        raise BodyRefused(413, f"more than {most} values")


def check_names(body: bytes | bytearray) -> None:
    """Checks a body without whole nodes. Raises BodyRefused if it is larger than names can be."""
    if len(body) > LARGEST_NAMES:
        raise BodyRefused(
            413, f"more than {LARGEST_NAMES} bytes, and no whole nodes: only bodies with these may be larger"
        )
    check_values(body, MOST_VALUES)


log = structlog.get_logger(component="extender")

DEADLINE_SECONDS: Final = 0.2
"""Seconds after which an answer is late."""
T = TypeVar("T")
Answer = tuple[Any, str]
"""The body to send, and the outcome for the metric."""


class BadBody(Exception):
    """A body that kube-scheduler would not send. The message says why, and quotes no values of the body."""


class Call(Struct, frozen=True):
    """One request.

    `body`: the body as it came.
    `peer`: address and port of the caller.
    `is_late`: whether the deadline is over. Then a neutral answer is due.
    """

    body: bytes | bytearray
    peer: Peer
    is_late: Callable[[], bool]


class Extender:
    """Answers the calls. `free`: the present free capacity of nodes by name."""

    def __init__(self, free: Mapping[str, FreeCapacity], node_filter: NodeFilter, clock: Clock = elapsed) -> None:
        self._free = free
        self._node_filter = node_filter
        self._clock = clock
        self._configuration = ConfigurationCheck()
        for fault in FAULTS:
            EXTENDER_CONFIG_FAULTS.labels(fault).set_function(partial(self._stands, fault))
        self._bodies = Bodies()
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def _stands(self, fault: str) -> float:
        """1 if calls show this fault of the configuration now, else 0: the gauge at a scrape."""
        return float(fault in self._configuration.standing(self._clock()))

    async def drained(self) -> None:
        """Waits until no call is under way."""
        await self._idle.wait()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._under_way += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    def app(self) -> web.Application:
        app = web.Application()
        verbs: dict[str, Callable[[Call], Answer]] = {
            "filter": self.filter, "prioritize": self.prioritize, "preempt": self.preempt, "explain": self.explain,
        }  # fmt: skip
        for verb, answer in verbs.items():
            app.router.add_post(f"/{verb}", self._answering(verb, answer))
        return app

    def _answering(
        self, verb: str, answer: Callable[[Call], Answer]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            with self._counted():
                return await answered(request)

        async def answered(request: web.Request) -> web.StreamResponse:
            began = self._clock()
            try:
                async with self._bodies.place_for(request) as place:
                    body = await place.read(request)
                    late_at = self._clock() + DEADLINE_SECONDS
                    sent, outcome = answer(Call(body, peer_of(request), lambda: self._clock() > late_at))
                    written = msgspec.json.encode(sent)
                    del sent
                    seconds = self._clock() - began
                    response = await place.send(request, written)
                    EXTENDER_SECONDS.labels(verb, outcome).observe(seconds)
                    return response
            except (BodyRefused, NotListed, BadBody, web.RequestPayloadError, ConnectionError) as fault:
                status, outcome = outcome_of(fault)
                EXTENDER_SECONDS.labels(verb, outcome).observe(self._clock() - began)
                return web.json_response({"Error": str(fault)}, status=status)

        return handle

    def filter(self, call: Call) -> Answer:
        asked = read(call.body, Arguments)
        names = self._read_names("filter", call, asked)
        EXTENDER_NODES.labels("filter").observe(len(names))
        refused = self._node_filter.filter_nodes(read_pod(asked), names)
        for cause, count in Counter(map(cause_of, refused.values())).items():
            EXTENDER_REFUSED.labels(cause).inc(count)
        if asked.is_cached:
            passed = [name for name in names if name not in refused] if refused else list(names)
            return FilterResult(node_names=passed, failed_and_unresolvable_nodes=refused), "ok"
        items = [item for name, item in asked.by_name().items() if name not in refused]
        return FilterResult(nodes=Nodes(items), failed_and_unresolvable_nodes=refused), "ok"

    def prioritize(self, call: Call) -> Answer:
        asked = read(call.body, Arguments)
        names = list(self._read_names("prioritize", call, asked))
        pod = read_pod(asked)
        wanted = read_preferences(pod) if pod is not None else Preferences(faults=("pod",))
        for fault in wanted.faults:
            EXTENDER_IGNORED.labels(fault).inc()
        found = score_in_time(wanted, self._free, names, call.is_late)
        if found is None:
            return [Priority(name, 0) for name in names], "late"
        count_history_hit(wanted, found)
        return [Priority(name, total) for name, total in found.totals().items()], "ok"

    def preempt(self, call: Call) -> Answer:
        asked = read(call.body, PreemptionArguments)
        if not asked.node_name_to_victims:
            check_names(call.body)
        return PreemptionResult(self._node_filter.filter_victims(read_pod(asked), asked.victims())), "ok"

    def explain(self, call: Call) -> Answer:
        """The answer for people. A question without nodes is answered for all known nodes."""
        asked = read(call.body, Arguments)
        if asked.is_cached or asked.nodes == NOTHING:
            check_names(call.body)
        pod = read_pod(asked)
        if pod is None:
            raise BadBody("Pod: not one")
        wanted = read_preferences(pod)
        names = list(read_names(asked)) if not asked.node_names == asked.nodes == NOTHING else sorted(self._free)
        found = score(wanted, self._free, names)
        refused = self._node_filter.explain(pod, names)
        nodes = {
            name: {"verdict": "pass", "points": total, "terms": found.terms(name)} | refused.get(name, {})
            for name, total in found.totals().items()
        }
        return {"nodes": nodes, "ignored": wanted.faults}, "ok"

    def _read_names(self, verb: str, call: Call, asked: Arguments) -> dict[str, None]:
        """The node names. Reports new faults of the caller's configuration that the call shows."""
        if asked.is_cached:
            check_names(call.body)
        names = read_names(asked)
        has_choice = len(names) > 1
        new = self._configuration.hear(verb, call.peer, self._clock(), has_choice=has_choice, is_cached=asked.is_cached)
        for fault in new:
            log.warning("kube-scheduler's configuration", fault=fault, says=FAULTS[fault])
        return names


def outcome_of(fault: Exception) -> tuple[int, str]:
    """HTTP status and outcome of a call that gets no answer."""
    if isinstance(fault, NotListed):
        return 503, "unsynced"
    if isinstance(fault, BodyRefused):
        return fault.status, "busy" if fault.status == 503 else "bad"
    return 400, "bad"


def peer_of(request: web.Request) -> Peer:
    peer = request.transport.get_extra_info("peername") if request.transport else None
    return (str(peer[0]), int(peer[1])) if peer else ("", 0)


def read(body: bytes | bytearray, kind: type[T]) -> T:
    """The decoded body. Raises BadBody if it is no JSON, cut off, or of other types."""
    try:
        return msgspec.json.decode(body, type=kind)
    except UNREADABLE as fault:
        raise BadBody(f"not {kind.__name__}: {fault}") from fault


def read_names(asked: Arguments) -> dict[str, None]:
    """The names. Raises BadBody if there is no list with a node, and BodyRefused if there are too many nodes."""
    try:
        names = asked.names()
    except UNREADABLE as fault:
        raise BadBody(f"nodes: {fault}") from fault
    if len(names) > MOST_NODES:
        raise BodyRefused(413, f"more than {MOST_NODES} nodes")
    return names


def read_pod(asked: Arguments | PreemptionArguments) -> ExtenderPod | None:
    """The Pod, or None if it cannot be read."""
    try:
        return msgspec.json.decode(asked.pod, type=ExtenderPod)
    except UNREADABLE:
        return None


def cause_of(why: str) -> str:
    return "uncertain" if why == UNCERTAIN else "reserved"


def count_history_hit(wanted: Preferences, found: Score) -> None:
    """Counts the rank of the best node in the Pod's history: 1 (newest) to 3, or `none` if no such node is offered."""
    if wanted.history:
        best = max(found.history.values(), default=0)
        HISTORY_HITS.labels(str(POINTS.index(best) + 1) if best else "none").inc()
