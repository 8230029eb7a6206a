"""Promise: to share the table with a hostile team costs little more than to share the server with it.

While it makes all attacks that its login allows, rows of the other team have their Jobs at most twice as late (p95) as
while it works as hard in a table of its own. The other team inserts ten rows a second into a shared queue, for a minute
each time: alone, while the team works in its own table, and while `hostile_attack.py` attacks, which first inserts
72,000 rows that come before them. A sample lasts from the send of the INSERT until a watch shows the Job. Dispatcher
and janitor run as they are shipped, with a cap of 20 Jobs for each submitter. The API server is a real one. The
controllers are stopped, because they take most of two cores, so this file plays the containers. Containers of the other
team report at once. Those of the hostile team fill its cap, and two of them a second report from nodes that do not
exist.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import asyncpg

from benchmarks.figures import Figure, percentile, run, tell
from benchmarks.hostile_attack import CONNECTIONS, OWN_TABLE
from benchmarks.servers import Servers, cpu_seconds, launched, program
from tests.controlplane.api import Json
from tests.controlplane.waiting import moment, wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.janitoring import Janitor

SECONDS = 60
WARM_UP_SECONDS = 5
EVERY_SECONDS = 0.1
LIE_SECONDS = 0.5
CAP = 20
MOST_TIMES = 2
LIES = ("No Such Node!", "nobody", "x" * 253, "node-1\n", "a" * 63)
ONE_ROW = "INSERT INTO dispatch.tasks (dedupe_key) VALUES ($1) RETURNING id"
START = "SELECT run_token FROM dispatch.task_start($1, $2, $3, $4, $5, $6, $7)"
FINISH = "SELECT dispatch.task_finish($1, 'succeeded')"
CAPPED = "UPDATE dispatch.queues SET max_jobs_per_submitter = $1 WHERE name = '*'"
LIMITED = f"ALTER ROLE team_a CONNECTION LIMIT {CONNECTIONS}"
Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
POISON = "          volumeMounts: [{name: nowhere, mountPath: /x}]\n"


class Team:
    """The other team: its inserts, the times when its Jobs were seen, and its containers."""

    def __init__(self, place: Place) -> None:
        self.inserted_ms: list[float] = []
        self._place = place
        self._began: dict[int, float] = {}
        self._seen: dict[int, float] = {}
        self._numbers = itertools.count(1)
        self._theirs: asyncio.Queue[Json] = asyncio.Queue()
        self._api = place.control_plane.api
        self._path = f"/apis/batch/v1/namespaces/{place.namespace}/jobs"
        self._endings: set[asyncio.Task[None]] = set()

    async def connect(self) -> None:
        self._submitter = await self._place.database.connect("team_b")
        url = self._place.database.url("task")
        self._ours, self._liars = [await asyncpg.create_pool(url, min_size=4, max_size=4) for _ in range(2)]

    def close(self) -> None:
        for ending in self._endings:
            ending.cancel()
        for containers in (self._ours, self._liars):
            containers.terminate()

    async def watch(self) -> None:
        """Watches Jobs, and plays the containers of the other team."""
        async for change in self._api.follow(self._path):
            at = time.perf_counter()
            for job in change.objects if change.type in {"LIST", "ADDED"} else ():
                if job["metadata"]["annotations"]["dispatcher.internal/submitted-by"] != "team_b":
                    self._theirs.put_nowait(job)
                    continue
                self._seen[int(job["metadata"]["labels"]["dispatcher.internal/task-id"])] = at
                self._end(job, "node-1", self._ours)

    async def lie(self) -> None:
        """Plays containers of the hostile team, which report from nodes that do not exist."""
        for lie in itertools.cycle(LIES):
            self._end(await self._theirs.get(), lie, self._liars)
            await moment(LIE_SECONDS)

    def _end(self, job: Json, node: str, containers: Pool) -> None:
        task = asyncio.create_task(self._run(job, node, containers))
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

    async def _run(self, job: Json, node: str, containers: Pool) -> None:
        """Plays one container: it starts and reports, then its Job is deleted."""
        env = {one["name"]: one.get("value") for one in job["spec"]["template"]["spec"]["containers"][0]["env"]}
        me = int(env["TASK_ID"]), env["TASK_START_KEY"], int(env["TASK_ATTEMPT"]), int(env["TASK_LAUNCH"])
        token = await containers.fetchval(START, *me, job["metadata"]["uid"], node, job["metadata"]["name"])
        await containers.fetchval(FINISH, token)
        await self._api.request(
            "DELETE", f"{self._path}/{job['metadata']['name']}", params={"propagationPolicy": "Background"}
        )

    async def insert_for(self, seconds: float) -> list[float]:
        """Milliseconds from each INSERT to its Job."""
        self._began, self._seen, self.inserted_ms = {}, {}, []
        end, due = time.perf_counter() + seconds, time.perf_counter()
        while (began := time.perf_counter()) < end:
            task_id = await self._submitter.fetchval(ONE_ROW, f"b-{next(self._numbers)}")
            self.inserted_ms.append((time.perf_counter() - began) * 1000)
            self._began[task_id] = began
            due = max(due + EVERY_SECONDS, time.perf_counter())
            await moment(max(due - time.perf_counter(), 0))
        await wait_for(lambda: self._began.keys() <= self._seen.keys(), "all of the other team's rows have Jobs", 120)
        return [(self._seen[id_] - began) * 1000 for id_, began in self._began.items()]


@asynccontextmanager
async def at_work(place: Place, team: Team) -> AsyncIterator[Dispatcher]:
    """Runs the programs and the containers of both teams."""
    async with Dispatcher(
        place, KUBE_WRITES_PER_SECOND=None, LEASE_SECONDS=None, POLL_SECONDS=None, CHECK_ROOM="false"
    ) as ours, Janitor(place, PARK_SECONDS=None) as janitor:  # fmt: skip
        await ours.ready()
        await janitor.ready()
        playing = asyncio.gather(team.watch(), team.lie())
        try:
            yield ours
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
            team.close()


async def prepare(servers: Servers) -> Place:
    """Sets caps as an operator does, and adds a template that the API server refuses."""
    place = await servers.place()
    place.template("poison")
    file = place.templates / "poison.yaml"
    file.write_text(file.read_text() + POISON)
    admin = await place.database.session("admin")
    await admin.execute(CAPPED, CAP)
    await admin.execute(LIMITED)
    await admin.execute(OWN_TABLE)
    return place


async def measure(servers: Servers) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Milliseconds of each phase, and the context for the record."""
    place = await prepare(servers)
    team, found, context = Team(place), dict[str, list[float]](), dict[str, float]()
    await team.connect()
    async with at_work(place, team) as ours:
        await team.insert_for(WARM_UP_SECONDS)
        found["alone"] = await phase(team, ours, "alone", context)
        for name, arguments in {"beside its own table": ("own",), "beside": ()}.items():
            async with program("benchmarks.hostile_attack", place.database.url("team_a"), *arguments) as attack:
                assert attack.stdin is not None
                attack.stdin.write(b"go\n")
                await team.insert_for(WARM_UP_SECONDS)
                found[name] = await phase(team, ours, name, context)
                assert attack.returncode is None, "the attack ended early"
        (place.folder / "metrics").write_text((await ours.get("/metrics"))[1])
    return found, context


async def phase(team: Team, ours: Dispatcher, name: str, context: dict[str, float]) -> list[float]:
    used = cpu_seconds(ours.process.pid)
    found = await team.insert_for(SECONDS)
    context[f"{name}: INSERT alone, p95 (ms)"] = percentile(team.inserted_ms, 0.95)
    context[f"{name}: CPU of the dispatcher (%)"] = 100 * (cpu_seconds(ours.process.pid) - used) / SECONDS
    return found


async def main() -> int:
    async with launched() as servers:
        servers.stop_controllers()
        found, context = await measure(servers)
        versions = await servers.versions()
    p95 = {name: percentile(times, 0.95) for name, times in found.items()}
    context |= {f"{name}: p50 (ms)": percentile(times, 0.5) for name, times in found.items()}
    context |= {f"{name}: p95 (ms)": late for name, late in p95.items() if name != "beside"}
    context |= {f"{name}: rows": len(times) for name, times in found.items()}
    limit = MOST_TIMES * p95["beside its own table"]
    figures = [Figure("insert to Job beside a hostile team, p95 (ms)", p95["beside"], limit)]
    return tell("hostile_team", figures, context, versions)


if __name__ == "__main__":
    run(main)
