"""The API server as one process meets it: each request has an outcome, and a write may land long after its answer.

Each process has a list of outcomes. Its next request takes the first one. Requests succeed when the list is empty.
"""

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct

from dispatcher.kube.job_api import WITHHELD
from dispatcher.model.errors import ClusterAway
from dispatcher.model.jobs import ApiAnswer, Job, Manifest, ObjectWrite
from tests.property.cluster import Cluster
from tests.property.timing import Timeline

LANDS_WITHIN: Final = 18
"""Seconds until no POST can land any more: the time limits of client and server together.
`submit.RESOLVE_AFTER_SECONDS` relies on it.
"""
GIVES_UP_AFTER: Final = 10


class Outcome(StrEnum):
    FINE = "fine"
    LOST = "lost"  # the request never arrives, and there is no answer
    ANSWER_LOST = "answer-lost"  # the request is done, and its answer is lost
    LATE = "late"  # there is no answer, and the request may land later
    THROTTLED = "throttled"
    SERVER_ERROR = "server-error"  # 500, for example the timeout of a webhook
    PROXY = "proxy"  # a proxy answers in place of the API server
    HELD = "held"  # no outcome yet


ANSWERS: Final = {
    Outcome.THROTTLED: ApiAnswer(429, "TooManyRequests", "slow down", retry_after=1),
    Outcome.SERVER_ERROR: ApiAnswer(500, "InternalError", "failed calling webhook"),
    Outcome.PROXY: ApiAnswer(404, message="default backend", is_told=False),
}
NO_ANSWER: Final = ApiAnswer(0, message="timeout")


class Observer(Protocol):
    """Called for each create and delete that is sent, for each answer that arrives, and for each create that lands."""

    def sent(self, api: "Api", manifest: Manifest) -> None: ...
    def heard(self, api: "Api", name: str, answer: ApiAnswer) -> None: ...
    def landed(self, api: "Api", manifest: Manifest, answer: ApiAnswer) -> None: ...
    def removing(self, api: "Api", end: ObjectWrite) -> None: ...


class Late(Struct, frozen=True):
    """A create that was sent and has no answer. It may land until `until`."""

    api: "Api"
    manifest: Manifest
    until: float

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])


class Held(Struct, frozen=True):
    """A request on its way since `since`. `manifest`: of a create; None for other requests."""

    api: "Api"
    answer: "asyncio.Future[Outcome]"
    since: float
    manifest: Manifest | None = None


class Network:
    """The requests that are on their way between the processes and the API server."""

    def __init__(self, cluster: Cluster, clock: Timeline, observer: Observer) -> None:
        self.cluster = cluster
        self.clock = clock
        self.observer = observer
        self.is_away = False
        self.late: list[Late] = []
        self.held: list[Held] = []
        self.writes = 0

    def land(self, late: Late) -> None:
        self.late.remove(late)
        late.api.make(late.manifest)

    def release(self, held: Held, outcome: Outcome) -> None:
        self.held.remove(held)
        held.answer.set_result(outcome)

    def expire(self) -> None:
        """Drops creates that are too old to land, and ends requests that their client has given up."""
        now = self.clock()
        self.late = [late for late in self.late if now < late.until]
        for held in [held for held in self.held if now - held.since >= GIVES_UP_AFTER]:
            self.release(held, Outcome.LOST)

    def cut(self, api: "Api", *, lands_later: bool) -> None:
        """Ends the requests of a process that died. With `lands_later` its creates may still land."""
        for held in [held for held in self.held if held.api is api]:
            self.held.remove(held)
            held.answer.cancel()
            if lands_later and held.manifest is not None:
                self.late.append(Late(api, held.manifest, held.since + LANDS_WITHIN))


class Api:
    """The API server's client of one process."""

    def __init__(self, network: Network, may_write: Callable[[], bool]) -> None:
        self.network = network
        self.outcomes: list[Outcome] = []
        self.may_write = may_write

    async def try_create(self, manifest: Manifest) -> ApiAnswer:
        raise AssertionError("nobody changes Jobs here")

    async def create(self, manifest: Manifest) -> ApiAnswer:
        if not self.may_write():
            return WITHHELD
        self.network.writes += 1
        self.network.observer.sent(self, manifest)
        until = self.network.clock() + LANDS_WITHIN
        outcome = await self._next_outcome(manifest)
        if outcome is Outcome.LATE:
            self.network.late.append(Late(self, manifest, until))
        if outcome in {Outcome.FINE, Outcome.ANSWER_LOST}:
            answer = self.make(manifest)
            return self._answered(manifest["metadata"]["name"], answer) if outcome is Outcome.FINE else NO_ANSWER
        return ANSWERS.get(outcome, NO_ANSWER)

    def make(self, manifest: Manifest) -> ApiAnswer:
        """Lets a create land."""
        answer = self.network.cluster.create(manifest)
        self.network.observer.landed(self, manifest, answer)
        return answer

    async def get(self, name: str) -> ApiAnswer:
        outcome = await self._next_outcome()
        if outcome is Outcome.FINE:
            return self._answered(name, self.network.cluster.get(name))
        return ANSWERS.get(outcome, NO_ANSWER)

    def _answered(self, name: str, answer: ApiAnswer) -> ApiAnswer:
        self.network.observer.heard(self, name, answer)
        return answer

    async def list_task(self, task_id: int) -> list[Job]:
        if await self._next_outcome() is not Outcome.FINE:
            raise ClusterAway("no answer")
        return self.network.cluster.of_task(task_id)

    async def end(self, end: ObjectWrite) -> ApiAnswer:
        if not self.may_write():
            return WITHHELD
        self.network.writes += 1
        self.network.observer.removing(self, end)
        outcome = await self._next_outcome()
        if outcome in {Outcome.FINE, Outcome.ANSWER_LOST, Outcome.LATE}:
            answer = self.network.cluster.end(end)
            return answer if outcome is Outcome.FINE else NO_ANSWER
        return ANSWERS.get(outcome, NO_ANSWER)

    async def _next_outcome(self, manifest: Manifest | None = None) -> Outcome:
        """The outcome of the next request. A held request waits here until it has one."""
        outcome = self.outcomes.pop(0) if self.outcomes else Outcome.FINE
        if self.network.is_away:
            return Outcome.LOST
        if outcome is not Outcome.HELD:
            return outcome
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.network.held.append(Held(self, future, self.network.clock(), manifest))
        return await future
