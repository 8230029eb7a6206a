"""The extender's server. kube-scheduler asks which nodes a Pod may have, how good they are, and what it may preempt.

    filter ─▶ node_filter.py: nodes reserved for others     prioritize ─▶ score.py, by the free capacity in memory
    preempt ─▶ node_filter.py: the proposed victims         explain ─▶ both for people, by node and term

Every answer comes from memory, because kube-scheduler schedules nothing else while it waits. If the answer is late or
the Pod cannot be read, no node gets points. An unreadable Pod is refused only reserved nodes. Two kinds of bodies are
refused. One has no readable node name, so no answer would be true. The other exceeds the memory for bodies (bodies.py).
No request ends the process. No body is ever logged, because it holds environment variables.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import msgspec
import structlog
from aiohttp import web
from msgspec import Struct

from dispatcher.extender.bodies import MOST_NODES, Bodies, Refused, check_names
from dispatcher.extender.configuration_check import FAULTS, ConfigurationCheck, Peer
from dispatcher.extender.node_filter import NodeFilter, NotListed
from dispatcher.extender.score import Preferences, Score, read_preferences, score, score_in_time
from dispatcher.extender.wire import (
    NOTHING,
    Arguments,
    FilterResult,
    Nodes,
    Pod,
    PreemptionArguments,
    PreemptionResult,
    Priority,
)
from dispatcher.kube.wire import UNREADABLE
from dispatcher.model.capacity import FreeCapacity
from dispatcher.placement.history import POINTS
from dispatcher.reservations.book import UNCERTAIN
from dispatcher.runtime.clock import Clock, elapsed
from dispatcher.runtime.metrics import (
    EXTENDER_CONFIG_FAULTS,
    EXTENDER_IGNORED,
    EXTENDER_NODES,
    EXTENDER_REFUSED,
    EXTENDER_SECONDS,
    HISTORY_HITS,
)

log = structlog.get_logger(component="placement.extender")

DEADLINE_SECONDS: Final = 0.2
T = TypeVar("T")
Answer = tuple[Any, str]
"""The body to send, and the outcome as the metric has it."""


class BadBody(Exception):
    """A body that kube-scheduler would not send. The message says why, and holds no values of the body."""


class Call(Struct, frozen=True):
    """One request.

    `body`: the body as it came.
    `peer`: address and port of the caller.
    `is_late`: asks whether the deadline is over. Then a neutral answer is due.
    """

    body: bytes | bytearray
    peer: Peer
    is_late: Callable[[], bool]


class Extender:
    """Answers the calls. `free`: the free capacity of nodes by name, always as it is now."""

    def __init__(self, free: Mapping[str, FreeCapacity], node_filter: NodeFilter, clock: Clock = elapsed) -> None:
        self._free = free
        self._node_filter = node_filter
        self._clock = clock
        self._configuration = ConfigurationCheck()
        report_faults(self._configuration.faults)
        self._bodies = Bodies()
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

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
            except (Refused, NotListed, BadBody, web.RequestPayloadError, ConnectionError) as fault:
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
        """For people. A question without nodes is answered for all known nodes."""
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
        """Returns the node names. Reports new faults of the caller's configuration that the call shows."""
        if asked.is_cached:
            check_names(call.body)
        names = read_names(asked)
        has_choice = len(names) > 1
        before = self._configuration.faults
        new = self._configuration.hear(verb, call.peer, self._clock(), has_choice=has_choice, is_cached=asked.is_cached)
        if self._configuration.faults != before:
            report_faults(self._configuration.faults)
        for fault in new:
            log.warning("kube-scheduler's configuration", fault=fault, says=FAULTS[fault])
        return names


def report_faults(faults: Set[str]) -> None:
    """Sets the gauge of each fault of the configuration."""
    for fault in FAULTS:
        EXTENDER_CONFIG_FAULTS.labels(fault).set(fault in faults)


def outcome_of(fault: Exception) -> tuple[int, str]:
    """HTTP status and outcome of a call that gets no answer."""
    if isinstance(fault, NotListed):
        return 503, "unsynced"
    if isinstance(fault, Refused):
        return fault.status, "busy" if fault.status == 503 else "bad"
    return 400, "bad"


def peer_of(request: web.Request) -> Peer:
    peer = request.transport.get_extra_info("peername") if request.transport else None
    return (str(peer[0]), int(peer[1])) if peer else ("", 0)


def read(body: bytes | bytearray, kind: type[T]) -> T:
    """BadBody: not JSON, cut off, or of other types."""
    try:
        return msgspec.json.decode(body, type=kind)
    except UNREADABLE as fault:
        raise BadBody(f"not {kind.__name__}: {fault}") from fault


def read_names(asked: Arguments) -> dict[str, None]:
    """BadBody: there is no list of nodes, or no item of it is a node. Refused: there are too many nodes."""
    try:
        names = asked.names()
    except UNREADABLE as fault:
        raise BadBody(f"nodes: {fault}") from fault
    if len(names) > MOST_NODES:
        raise Refused(413, f"more than {MOST_NODES} nodes")
    return names


def read_pod(asked: Arguments | PreemptionArguments) -> Pod | None:
    """The Pod, or None if it cannot be read."""
    try:
        return msgspec.json.decode(asked.pod, type=Pod)
    except UNREADABLE:
        return None


def cause_of(why: str) -> str:
    return "uncertain" if why == UNCERTAIN else "reserved"


def count_history_hit(wanted: Preferences, found: Score) -> None:
    """Counts the rank of the best node in the Pod's history: 1 (newest) to 3, or `none` if no such node is offered."""
    if wanted.history:
        best = max(found.history.values(), default=0)
        HISTORY_HITS.labels(str(POINTS.index(best) + 1) if best else "none").inc()
