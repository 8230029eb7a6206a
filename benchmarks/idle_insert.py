"""Promise: a row inserted into an idle system has its Job 3 ms (p50), 20 ms (p99) later than a raw create would have.

One client watches the namespaces and is the clock of all: from the send of the INSERT, or of the POST, until the watch
shows the Job. So the time of the INSERT itself counts against us. Raw, toy and ours take turns, one sample each, so
that noise hits them alike. Before the next sample the Job is gone, its row is cancelled, and the system is quiet.

The 3 and 20 ms are work of the CPU, so they are multiplied by the slowness of the machine.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from benchmarks import raw, toy
from benchmarks.figures import Figure, percentile, run, tell
from benchmarks.machine import slowness
from benchmarks.servers import WITHOUT_LIMITS, Servers, launched
from tests.controlplane.waiting import moment
from tests.rig.dispatching import Dispatcher, Place

SAMPLES = 240
WARM_UP = 10
QUIET_SECONDS = 0.12
LATER_P50_MS = 3
LATER_P99_MS = 20
ONE_ROW = "INSERT INTO dispatch.tasks (queue) VALUES ('default') RETURNING id"

Begin = Callable[[], Awaitable[Callable[[], Awaitable[object]]]]
"""Asks for one Job, and returns after the answer. The returned function cleans up, except for the Job."""


class Candidate:
    """A maker of Jobs in a namespace, and the watch that sees them."""

    def __init__(self, place: Place, begin: Begin) -> None:
        self.seen_ms: list[float] = []
        self.answered_ms: list[float] = []
        self._api = place.control_plane.api
        self._path = f"/apis/batch/v1/namespaces/{place.namespace}/jobs"
        self._begin = begin
        self._names: asyncio.Queue[tuple[str, float]] = asyncio.Queue()

    async def watch(self) -> None:
        async for change in self._api.follow(self._path):
            at = time.perf_counter()
            if change.type == "ADDED":
                self._names.put_nowait((change.objects[0]["metadata"]["name"], at))

    async def sample(self) -> None:
        began = time.perf_counter()
        tidy = await self._begin()
        self.answered_ms.append((time.perf_counter() - began) * 1000)
        async with asyncio.timeout(30):
            name, at = await self._names.get()
        self.seen_ms.append((at - began) * 1000)
        await tidy()
        await self._api.request("DELETE", f"{self._path}/{name}", params={"propagationPolicy": "Background"})
        await moment(QUIET_SECONDS)

    def forget(self) -> None:
        self.seen_ms.clear()
        self.answered_ms.clear()


@asynccontextmanager
async def raw_client(place: Place) -> AsyncIterator[Begin]:
    bodies = iter(raw.bodies(place, SAMPLES + WARM_UP + 1))
    async with raw.Client(place.folder / "kubeconfig") as client:
        await client.allowed(next(bodies))

        async def begin() -> Callable[[], Awaitable[object]]:
            assert await client.post(next(bodies)) == 201
            return lambda: asyncio.sleep(0)

        yield begin


async def insert_into(place: Place) -> Begin:
    submitter = await place.database.session("team_a")

    async def begin() -> Callable[[], Awaitable[object]]:
        task_id = await submitter.fetchval(ONE_ROW)
        return lambda: submitter.fetchval("SELECT dispatch.task_cancel($1)", task_id)

    return begin


async def candidates(servers: Servers, stack: AsyncExitStack) -> dict[str, Candidate]:
    """The candidates. Ours is the last one, because the binding of the role for nodes is that of the newest place."""
    place = await servers.place()
    found = {"raw": Candidate(place, await stack.enter_async_context(raw_client(place)))}
    place = await servers.place()
    await stack.enter_async_context(toy.running(place))
    found["toy"] = Candidate(place, await insert_into(place))
    place = await servers.place()
    dispatcher = await stack.enter_async_context(Dispatcher(place, **WITHOUT_LIMITS))
    await dispatcher.ready()
    found["ours"] = Candidate(place, await insert_into(place))
    return found


async def measure(them: Mapping[str, Candidate]) -> None:
    watches = [asyncio.create_task(one.watch()) for one in them.values()]
    await moment(1)  # for the start of three watches; the first samples do not count
    for number in range(SAMPLES + WARM_UP):
        if number == WARM_UP:
            for one in them.values():
                one.forget()
        for one in them.values():
            await one.sample()
    for watch in watches:
        watch.cancel()


async def main() -> int:
    async with launched() as servers, AsyncExitStack() as stack:
        servers.stop_controllers()
        them = await candidates(servers, stack)
        before = slowness()
        await measure(them)
        slow = (before + slowness()) / 2
        versions = await servers.versions()
    p50, p99 = ({name: percentile(one.seen_ms, part) for name, one in them.items()} for part in (0.5, 0.99))
    figures = [
        Figure("insert to Job, p50, ms", p50["ours"], p50["raw"] + LATER_P50_MS * slow),
        Figure("insert to Job, p99, ms", p99["ours"], p99["raw"] + LATER_P99_MS * slow),
    ]
    context = {f"{name} p50, ms": p50[name] for name in ("raw", "toy")}
    context |= {f"{name} p99, ms": p99[name] for name in ("raw", "toy")}
    context |= {"the INSERT alone, p50, ms": percentile(them["ours"].answered_ms, 0.5)}
    context |= {"the POST alone, p50, ms": percentile(them["raw"].answered_ms, 0.5), "slowness of the machine": slow}
    return tell("idle_insert", figures, context, versions)


if __name__ == "__main__":
    run(main)
