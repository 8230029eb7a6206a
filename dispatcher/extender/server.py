"""The extender: kube-scheduler asks which nodes a Pod may have, how good they are, and whom it may push aside.

    filter ─▶ gate.py: what is held for others              prioritize ─▶ score.py, from rooms in memory
    preempt ─▶ what kube-scheduler proposes                 explain ─▶ the same for people, by node and term

Every answer comes from memory. kube-scheduler waits for it with everything else it has to do, so whatever is late or
cannot be read is answered neutrally: all nodes pass, nobody has points. Only a body that holds no names at all is
refused, because no answer to it would be true, and one for which there is no memory (bodies.py). Nothing here takes the
process down, and no body is ever logged: it holds environments.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import msgspec
import structlog
from aiohttp import web
from msgspec import Struct

from dispatcher.extender.bodies import MOST_NODES, Bodies, Refused, check_names
from dispatcher.extender.configuration_check import FAULTS, ConfigurationCheck, Peer
from dispatcher.extender.node_filter import NodeFilter, NotListed
from dispatcher.extender.score import Score, Wish, read_wish, score, score_in_time
from dispatcher.extender.wire import (
    NOTHING,
    UNREADABLE,
    Arguments,
    FilterResult,
    Nodes,
    Pod,
    PreemptionArguments,
    PreemptionResult,
    Priority,
)
from dispatcher.model.capacity import Room
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
"""What is sent, and the outcome as the metric has it."""


class BadBody(Exception):
    """Not what kube-scheduler sends; the message says why, and holds nothing of the body's values."""


class Call(Struct, frozen=True):
    """One request: what came, from whom, and whether it is too late for an answer that takes thought."""

    body: bytes | bytearray
    peer: Peer
    is_late: Callable[[], bool]


class Extender:
    """`rooms`: of nodes by name, as they are now; `gate`: who may have which."""

    def __init__(self, rooms: Mapping[str, Room], gate: NodeFilter, clock: Clock = elapsed) -> None:
        self._rooms = rooms
        self._gate = gate
        self._clock = clock
        self._callers = ConfigurationCheck()
        self._bodies = Bodies()
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def drained(self) -> None:
        """Until no call is under way."""
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
                status, outcome = judged(fault)
                EXTENDER_SECONDS.labels(verb, outcome).observe(self._clock() - began)
                return web.json_response({"Error": str(fault)}, status=status)

        return handle

    def filter(self, call: Call) -> Answer:
        asked = read(call.body, Arguments)
        names = self._heard("filter", call, asked)
        EXTENDER_NODES.labels("filter").observe(len(names))
        refused = self._gate.refusals(read_pod(asked), names)
        for cause, count in Counter(map(cause_of, refused.values())).items():
            EXTENDER_REFUSED.labels(cause).inc(count)
        if asked.is_cached:
            passed = [name for name in names if name not in refused] if refused else list(names)
            return FilterResult(node_names=passed, failed_and_unresolvable_nodes=refused), "ok"
        items = [item for name, item in asked.by_name().items() if name not in refused]
        return FilterResult(nodes=Nodes(items), failed_and_unresolvable_nodes=refused), "ok"

    def prioritize(self, call: Call) -> Answer:
        asked = read(call.body, Arguments)
        names = list(self._heard("prioritize", call, asked))
        pod = read_pod(asked)
        wish = read_wish(pod) if pod is not None else Wish(faults=("pod",))
        for fault in wish.faults:
            EXTENDER_IGNORED.labels(fault).inc()
        found = score_in_time(wish, self._rooms, names, call.is_late)
        if found is None:
            return [Priority(name, 0) for name in names], "late"
        note_hit(wish, found)
        return [Priority(name, total) for name, total in found.totals().items()], "ok"

    def preempt(self, call: Call) -> Answer:
        asked = read(call.body, PreemptionArguments)
        if not asked.node_name_to_victims:
            check_names(call.body)
        return PreemptionResult(self._gate.spared(read_pod(asked), asked.victims())), "ok"

    def explain(self, call: Call) -> Answer:
        """For people, who may leave the nodes out: then all that are known."""
        asked = read(call.body, Arguments)
        if asked.is_cached or asked.nodes == NOTHING:
            check_names(call.body)
        pod = read_pod(asked)
        if pod is None:
            raise BadBody("Pod: not one")
        wish = read_wish(pod)
        names = list(read_names(asked)) if not asked.node_names == asked.nodes == NOTHING else sorted(self._rooms)
        found = score(wish, self._rooms, names)
        refused = self._gate.look(pod, names)
        nodes = {
            name: {"verdict": "pass", "points": total, "terms": found.terms(name)} | refused.get(name, {})
            for name, total in found.totals().items()
        }
        return {"nodes": nodes, "ignored": wish.faults}, "ok"

    def _heard(self, verb: str, call: Call, asked: Arguments) -> dict[str, None]:
        """The names; and what the call tells of how its sender is configured."""
        if asked.is_cached:
            check_names(call.body)
        names = read_names(asked)
        choice = len(names) > 1
        for fault in self._callers.hear(verb, call.peer, self._clock(), has_choice=choice, is_cached=asked.is_cached):
            EXTENDER_CONFIG_FAULTS.labels(fault).set(1)
            log.warning("kube-scheduler's configuration", fault=fault, says=FAULTS[fault])
        return names


def judged(fault: Exception) -> tuple[int, str]:
    """Status and outcome of what is not answered."""
    if isinstance(fault, NotListed):
        return 503, "unsynced"
    if isinstance(fault, Refused):
        return fault.status, "busy" if fault.status == 503 else "bad"
    return 400, "bad"


def peer_of(request: web.Request) -> Peer:
    peer = request.transport.get_extra_info("peername") if request.transport else None
    return (str(peer[0]), int(peer[1])) if peer else ("", 0)


def read(body: bytes | bytearray, kind: type[T]) -> T:
    """BadBody: not JSON, cut, or of other types."""
    try:
        return msgspec.json.decode(body, type=kind)
    except UNREADABLE as fault:
        raise BadBody(f"not {kind.__name__}: {fault}") from fault


def read_names(asked: Arguments) -> dict[str, None]:
    """BadBody: there is no list of nodes, or none of what stands in it is one. Refused: there are too many."""
    try:
        names = asked.names()
    except UNREADABLE as fault:
        raise BadBody(f"nodes: {fault}") from fault
    if len(names) > MOST_NODES:
        raise Refused(413, f"more than {MOST_NODES} nodes")
    return names


def read_pod(asked: Arguments | PreemptionArguments) -> Pod | None:
    """None: what stands there is none that could be scored."""
    try:
        return msgspec.json.decode(asked.pod, type=Pod)
    except UNREADABLE:
        return None


def cause_of(why: str) -> str:
    return "uncertain" if why == UNCERTAIN else "reserved"


def note_hit(wish: Wish, found: Score) -> None:
    """How warm the best node on offer is: 1 the newest, to 3; none: a history, and no node of it on offer."""
    if wish.history:
        best = max(found.warmth.values(), default=0)
        HISTORY_HITS.labels(str(POINTS.index(best) + 1) if best else "none").inc()
