"""Plays the containers: what kubelet and a container runtime would do with a Pod that kwok shows as Running.

Each Pod of the dispatcher that becomes Running is run once: its environment is resolved as kubelet does, a program runs
with nothing but that, and its exit code goes to the Pod as the annotation `exited`, on which kwok ends it. A Pod that
ends or goes before its program does takes the program with it, as SIGKILL does, unless it carries the annotation
`outlives-pod` (a container behind a partition). The player outlasts an API server that is away: it lists anew, and
tells exits late; its containers outlast a database that is away or loses answers. A program that raises is exit code 1,
and kept in `faults`.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Self, TypeVar

import asyncpg

from dispatcher.local.environment import Source, references, resolve
from tests.controlplane.api import UNREACHABLE, Change, Json, KubeFault
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.programs import Program, Started, TaskCalls, play_task
from tests.controlplane.waiting import moment

OURS = "app.kubernetes.io/managed-by=dispatcher"
STEER = "play.dispatcher.internal"
TERMINAL = ("Succeeded", "Failed")
DATABASE_CONNECTIONS = 8
ANSWER_LOST = (asyncpg.PostgresConnectionError, asyncpg.exceptions.OperatorInterventionError, OSError)
T = TypeVar("T")


class PatientCalls(TaskCalls):
    """Asks again for a lost answer, as the contract wants it of a container: the same Pod gets the same answer."""

    async def start(self, env: Mapping[str, str]) -> Started | None:
        return await until_answered(lambda: TaskCalls.start(self, env))

    async def heartbeat(self) -> str:
        return await until_answered(lambda: TaskCalls.heartbeat(self))

    async def finish(self, outcome: str, error: str | None = None, result: object = None) -> str | None:
        return await until_answered(lambda: TaskCalls.finish(self, outcome, error, result))


async def until_answered(call: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await call()
        except ANSWER_LOST:
            await moment()


@dataclass(slots=True)
class Run:
    """One container that ran. `exit_code` None: it still runs, or was cut off."""

    pod: str
    pod_uid: str
    node: str
    env: Mapping[str, str]
    calls: TaskCalls
    exit_code: int | None = None

    @property
    def task_id(self) -> int | None:
        return int(self.env["TASK_ID"]) if "TASK_ID" in self.env else None

    @property
    def attempt(self) -> int:
        return int(self.env.get("TASK_ATTEMPT", 0))

    @property
    def launch(self) -> int:
        return int(self.env.get("TASK_LAUNCH", 0))

    @property
    def job_uid(self) -> str:
        return self.env.get("JOB_UID", "")

    @property
    def started(self) -> Started | None:
        return self.calls.started


@dataclass(frozen=True, slots=True)
class PlayFault:
    """A program that raised, or a container whose environment could not be made."""

    pod: str
    error: Exception


class Player:
    """Runs `behaviour` in every Pod of the namespace that carries our label; `async with` it."""

    def __init__(
        self,
        control_plane: ControlPlane,
        namespace: str,
        database_url: str | None = None,
        behaviour: Program = play_task,
    ) -> None:
        """`database_url`: as the role of the containers (dispatch_task); None for programs that call no database."""
        self.runs: list[Run] = []
        self.faults: list[PlayFault] = []
        self._api = control_plane.api
        self._namespace = f"/api/v1/namespaces/{namespace}"
        self._database_url = database_url
        self._behaviour = behaviour
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._seen: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._killable: dict[str, asyncio.Task[None]] = {}  # by uid of the Pod that they end with

    async def __aenter__(self) -> Self:
        if self._database_url:
            self._pool = await asyncpg.create_pool(self._database_url, min_size=1, max_size=DATABASE_CONNECTIONS)
        self._spawn(self._watch(), "the watch")
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._pool is not None:
            await self._pool.close()

    def runs_of(self, task_id: int) -> list[Run]:
        """In the order in which they began."""
        return [run for run in self.runs if run.task_id == task_id]

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        """What fails outside a program is a fault of the player: it is kept where a test looks."""
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.faults.append(PlayFault(task.get_name(), error))

    async def _watch(self) -> None:
        async for change in self._api.follow(f"{self._namespace}/pods", labels=OURS):
            for uid in _over_or_gone(change, self._killable):
                self._killable.pop(uid).cancel()
            if change.type != "DELETED":
                for pod in change.objects:
                    self._meet(pod)

    def _meet(self, pod: Json) -> None:
        """Begins the program of a Pod that runs, once."""
        meta = pod["metadata"]
        if pod["status"].get("phase") != "Running" or meta["uid"] in self._seen:
            return
        self._seen.add(meta["uid"])
        task = self._spawn(self._play(pod), meta["name"])
        if f"{STEER}/outlives-pod" not in meta.get("annotations", {}):
            self._killable[meta["uid"]] = task

    async def _play(self, pod: Json) -> None:
        calls = PatientCalls(self._pool)
        run = Run(pod["metadata"]["name"], pod["metadata"]["uid"], pod["spec"]["nodeName"], {}, calls)
        try:
            container = played_container(pod)
            run.env = resolve(container, pod, await self._sources(container))
            self.runs.append(run)
            run.exit_code = await self._behaviour(run.env, run.calls)
        except Exception as error:  # noqa: BLE001  # a program may raise what it likes: that is exit code 1
            self.faults.append(PlayFault(run.pod, error))
            run.exit_code = 1
        await self._tell_exit(run)

    async def _sources(self, container: Json) -> dict[Source, dict[str, str]]:
        found: dict[Source, dict[str, str]] = {}
        for kind, name in references(container):
            try:
                stored = await self._api.request("GET", f"{self._namespace}/{kind.lower()}s/{name}")
            except KubeFault as fault:
                if fault.status != 404:
                    raise
                continue
            values: dict[str, str] = stored.get("data", {})
            secret = kind == "Secret"
            found[kind, name] = {k: base64.b64decode(v).decode() if secret else v for k, v in values.items()}
        return found

    async def _tell_exit(self, run: Run) -> None:
        """Until it is heard, or the Pod is gone (404) or another one (409: the uid is a precondition)."""
        told = {"metadata": {"uid": run.pod_uid, "annotations": {f"{STEER}/exited": str(run.exit_code)}}}
        while True:
            try:
                await self._api.request("PATCH", f"{self._namespace}/pods/{run.pod}", told)
            except KubeFault as fault:
                if fault.status in (404, 409):
                    return
                if fault.status not in (429, 500, 503, 504):
                    raise
            except UNREACHABLE:
                pass
            else:
                return
            await moment(0.2)


def played_container(pod: Json) -> Json:
    """The container that is the task: the one called `task`, else the first."""
    containers: list[Json] = pod["spec"]["containers"]
    return next((container for container in containers if container["name"] == "task"), containers[0])


def _over_or_gone(change: Change, uids: Iterable[str]) -> list[str]:
    """Those of `uids` whose Pod, after this change, has ended or is no longer there."""
    ended = {pod["metadata"]["uid"] for pod in change.objects if pod["status"].get("phase") in TERMINAL}
    named = {pod["metadata"]["uid"] for pod in change.objects}
    if change.type == "LIST":
        return [uid for uid in uids if uid in ended or uid not in named]
    return [uid for uid in uids if uid in (named if change.type == "DELETED" else ended)]
