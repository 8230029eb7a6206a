"""An API server of the tests that keeps one lease as the real one does, and a clock that only the test moves.

Faults are put into `faults` under the method whose next request they answer, or kept in `until_cured`. The faults of
`scripted_faults` work here, too. A call takes as long as its fault moves the clock.
"""

import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web
from prometheus_client import REGISTRY

from dispatcher.kube.client import KubeClient
from dispatcher.kube.lease import Lease, LeaseName
from tests.contract.scripted_api import NAMESPACE, Asked, Fault, Json, ScriptedApi, break_off, served, status
from tests.rig.builders import SITE

NAME = f"{SITE.installation}-leader"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


@dataclass
class MovedClock:
    """A clock that a test moves."""

    at: float = 1000

    def __call__(self) -> float:
        return self.at

    def move(self, seconds: float) -> None:
        self.at += seconds


@dataclass
class ScriptedLease(ScriptedApi):
    """The server; `lease` is the lease that it has."""

    lease: Json | None = None
    faults: "defaultdict[str, deque[Fault]]" = field(default_factory=lambda: defaultdict(deque))

    @property
    def holder(self) -> str | None:
        return None if self.lease is None else self.lease["spec"].get("holderIdentity")

    def by_hand(self, **spec: Any) -> None:
        """An administrator edits or makes the lease; None removes a field."""
        known = self.lease["spec"] if self.lease else {}
        self._keep({key: value for key, value in (known | spec).items() if value is not None})

    def delete(self) -> None:
        """An administrator deletes the lease."""
        self.lease = None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        self.asked.append(Asked(time.monotonic(), request.method, request.path, query, await request.text()))
        if self.faults[request.method]:
            return await self.faults[request.method].popleft()(self, request)
        if request.method in self.until_cured:
            return await self.until_cured[request.method](self, request)
        return await self.serve(request)

    async def serve(self, request: web.Request) -> web.Response:
        """Like the real server: a lease is made once, and replaced only with its current version."""
        assert request.path == (LEASES if request.method == "POST" else f"{LEASES}/{NAME}")
        if request.method == "POST" and self.lease is not None:
            return status(409, "AlreadyExists", f'leases "{NAME}" already exists')
        if request.method != "POST" and self.lease is None:
            return status(404, "NotFound", f'leases "{NAME}" not found')
        if request.method != "GET":
            sent = msgspec.json.decode(await request.read())
            if self.lease and sent["metadata"].get("resourceVersion") != self.lease["metadata"]["resourceVersion"]:
                return status(409, "Conflict", "the object has been modified")
            self._keep(sent["spec"])
        return web.json_response(self.lease)

    def _keep(self, spec: Json) -> None:
        self.version += 1
        self.lease = {"metadata": {"name": NAME, "resourceVersion": str(self.version)}, "spec": spec}


@asynccontextmanager
async def serving_lease() -> AsyncIterator[ScriptedLease]:
    async with served(ScriptedLease()) as api:
        yield api


@dataclass
class Replicas:
    """Replicas with one server and one clock."""

    api: ScriptedLease
    clock: MovedClock = field(default_factory=MovedClock)
    _clients: list[KubeClient] = field(default_factory=list)

    def one(self, seconds: int = 15, is_able: Callable[[], bool] = lambda: True) -> Lease:
        self._clients.append(KubeClient(self.api.login()))
        return Lease(self._clients[-1], LeaseName(NAMESPACE, SITE.installation), seconds, self.clock, is_able)

    async def leader(self, seconds: int = 15, is_able: Callable[[], bool] = lambda: True) -> Lease:
        lease = self.one(seconds, is_able)
        await lease.run_once()
        assert lease.is_trusted()
        return lease

    def trust_ends(self, lease: Lease, at: float) -> None:
        """Moves the clock to that time, at which the lease is no longer trusted, and not before."""
        self.clock.at = at - 0.01
        assert lease.is_trusted()
        self.clock.at = at
        assert not lease.is_trusted()

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


# Faults in place of an answer


async def written_but_lost(api: ScriptedApi, request: web.Request) -> web.StreamResponse:
    """Does what was asked, and loses the answer."""
    assert isinstance(api, ScriptedLease)
    await api.serve(request)
    break_off(request)
    return web.Response()


async def hanging(api: ScriptedApi, request: web.Request) -> web.StreamResponse:
    """Accepts the request and never answers."""
    await api.until(lambda: False)
    return web.Response()


def takes(clock: MovedClock, before: float = 0, after: float = 0) -> Fault:
    """Serves the request after `before` seconds; the answer takes `after` seconds."""

    async def fault(api: ScriptedApi, request: web.Request) -> web.StreamResponse:
        assert isinstance(api, ScriptedLease)
        clock.move(before)
        answer = await api.serve(request)
        clock.move(after)
        return answer

    return fault


def meets(rival: Lease) -> Fault:
    """A rival makes its whole attempt before the request is served."""

    async def fault(api: ScriptedApi, request: web.Request) -> web.StreamResponse:
        assert isinstance(api, ScriptedLease)
        await rival.run_once()
        return await api.serve(request)

    return fault


def beaten_by(deed: Callable[[], object]) -> Fault:
    """Does `deed` before the request is served, as a faster client would."""

    async def fault(api: ScriptedApi, request: web.Request) -> web.StreamResponse:
        assert isinstance(api, ScriptedLease)
        deed()
        return await api.serve(request)

    return fault


def faults() -> float:
    """The number of attempts of this program's leases that ended in a fault."""
    return REGISTRY.get_sample_value("dispatcher_faults_total", {"component": "lease"}) or 0


class Turns:
    """Replicas that share one clock; each tries when its pause is over."""

    def __init__(self, clock: MovedClock, *replicas: Lease) -> None:
        self.living = list(replicas)
        self._clock = clock
        self._due = {lease.me: clock.at for lease in replicas}

    def kill(self, lease: Lease) -> None:
        self.living.remove(lease)

    async def until(self, end: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Runs the replicas until that time, or until `stop`. Fails if two trust their lease at once."""
        while not stop():
            one = min(self.living, key=lambda lease: self._due[lease.me])
            if self._due[one.me] > end:
                self._clock.at = end
                return
            self._clock.at = max(self._clock.at, self._due[one.me])
            pause = await one.run_once()
            assert pause > 0
            self._due[one.me] = self._clock.at + pause
            assert sum(lease.is_trusted() for lease in self.living) <= 1
