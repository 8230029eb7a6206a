"""The API server as one process meets it: every request has a fate, and a write may land long after its answer.

The fates of a process stand in a row: its next request meets the first of them, and all goes well when none is left.
"""

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct

from dispatcher.kube.job_api import WITHHELD
from dispatcher.model.errors import ClusterAway
from dispatcher.model.jobs import ApiAnswer, End, Job, Manifest
from tests.property.cluster import Cluster
from tests.property.timing import Timeline

LANDS_WITHIN: Final = 18
"""Client and server limits together: `submit.RESOLVE_AFTER_SECONDS` rests on it."""
GIVES_UP_AFTER: Final = 10


class Fate(StrEnum):
    FINE = "fine"
    LOST = "lost"  # never arrived, no answer
    UNHEARD = "unheard"  # done, no answer
    LATE = "late"  # no answer, and it may land later
    THROTTLED = "throttled"
    BROKEN = "broken"  # 500: a webhook's timeout, for one
    PROXY = "proxy"  # somebody answered in the API server's place
    HELD = "held"  # neither yet


SAID: Final = {
    Fate.THROTTLED: ApiAnswer(429, "TooManyRequests", "slow down", retry_after=1),
    Fate.BROKEN: ApiAnswer(500, "InternalError", "failed calling webhook"),
    Fate.PROXY: ApiAnswer(404, message="default backend", is_told=False),
}
SILENCE: Final = ApiAnswer(0, message="timeout")


class Law(Protocol):
    """Who watches: told of each write when it is sent, of each answer that arrives, of each create when it lands."""

    def sent(self, api: "Api", manifest: Manifest) -> None: ...
    def heard(self, api: "Api", name: str, answer: ApiAnswer) -> None: ...
    def landed(self, api: "Api", manifest: Manifest, answer: ApiAnswer) -> None: ...
    def removing(self, api: "Api", end: End) -> None: ...


class Late(Struct, frozen=True):
    """A create that was sent, is not answered, and may land until `until`."""

    api: "Api"
    manifest: Manifest
    until: float

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])


class Held(Struct, frozen=True):
    """A request on its way; `manifest` where it is a create."""

    api: "Api"
    answer: "asyncio.Future[Fate]"
    since: float
    manifest: Manifest | None = None


class Wires:
    """What is on its way between all processes and the API server."""

    def __init__(self, cluster: Cluster, clock: Timeline, law: Law) -> None:
        self.cluster = cluster
        self.clock = clock
        self.law = law
        self.is_away = False
        self.late: list[Late] = []
        self.held: list[Held] = []
        self.writes = 0

    def land(self, late: Late) -> None:
        self.late.remove(late)
        late.api.make(late.manifest)

    def release(self, held: Held, fate: Fate) -> None:
        self.held.remove(held)
        held.answer.set_result(fate)

    def expire(self) -> None:
        """What is too old lands no more; what waits too long is given up by its client."""
        now = self.clock()
        self.late = [late for late in self.late if now < late.until]
        for held in [held for held in self.held if now - held.since >= GIVES_UP_AFTER]:
            self.release(held, Fate.LOST)

    def cut(self, api: "Api", *, lands_later: bool) -> None:
        """A process died: its requests are answered to nobody, and may land."""
        for held in [held for held in self.held if held.api is api]:
            self.held.remove(held)
            held.answer.cancel()
            if lands_later and held.manifest is not None:
                self.late.append(Late(api, held.manifest, held.since + LANDS_WITHIN))


class Api:
    """The port of one process."""

    def __init__(self, wires: Wires, may_write: Callable[[], bool]) -> None:
        self.wires = wires
        self.fates: list[Fate] = []
        self.may_write = may_write

    async def create(self, manifest: Manifest) -> ApiAnswer:
        if not self.may_write():
            return WITHHELD
        self.wires.writes += 1
        self.wires.law.sent(self, manifest)
        until = self.wires.clock() + LANDS_WITHIN
        fate = await self._fate(manifest)
        if fate is Fate.LATE:
            self.wires.late.append(Late(self, manifest, until))
        if fate in {Fate.FINE, Fate.UNHEARD}:
            answer = self.make(manifest)
            return self._told(manifest["metadata"]["name"], answer) if fate is Fate.FINE else SILENCE
        return SAID.get(fate, SILENCE)

    def make(self, manifest: Manifest) -> ApiAnswer:
        """A create lands."""
        answer = self.wires.cluster.create(manifest)
        self.wires.law.landed(self, manifest, answer)
        return answer

    async def get(self, name: str) -> ApiAnswer:
        fate = await self._fate()
        return self._told(name, self.wires.cluster.get(name)) if fate is Fate.FINE else SAID.get(fate, SILENCE)

    def _told(self, name: str, answer: ApiAnswer) -> ApiAnswer:
        self.wires.law.heard(self, name, answer)
        return answer

    async def list_task(self, task_id: int) -> list[Job]:
        if await self._fate() is not Fate.FINE:
            raise ClusterAway("no answer")
        return self.wires.cluster.of_task(task_id)

    async def delete(self, end: End) -> ApiAnswer:
        if not self.may_write():
            return WITHHELD
        self.wires.writes += 1
        self.wires.law.removing(self, end)
        fate = await self._fate()
        if fate in {Fate.FINE, Fate.UNHEARD, Fate.LATE}:
            answer = self.wires.cluster.delete(end)
            return answer if fate is Fate.FINE else SILENCE
        return SAID.get(fate, SILENCE)

    async def _fate(self, manifest: Manifest | None = None) -> Fate:
        """The fate of the next request, once it is known."""
        fate = self.fates.pop(0) if self.fates else Fate.FINE
        if self.wires.is_away:
            return Fate.LOST
        if fate is not Fate.HELD:
            return fate
        future: asyncio.Future[Fate] = asyncio.get_running_loop().create_future()
        self.wires.held.append(Held(self, future, self.wires.clock(), manifest))
        return await future
