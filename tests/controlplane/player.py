"""Plays the containers of Pods that kwok shows as Running, in place of kubelet and container runtime.

The player runs each Running Pod of the dispatcher once. It resolves the environment as kubelet does, runs a program
with it, and writes the exit code as the annotation `exited`, on which kwok ends the Pod. When a Pod ends or is deleted
first, its program is cancelled, as by SIGKILL, unless the Pod has the annotation `outlives-pod` (a container behind a
partition). After an outage of the API server the player lists again and writes exit codes late. Containers repeat
their calls during an outage of the database. A program that raises has exit code 1 and is kept in `faults`.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Self, TypeVar

import asyncpg

from dispatcher_demo.node.containers import Source, references, resolve
from tests.controlplane.api import UNREACHABLE, Change, Json, KubeFault
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.programs import Program, TaskCalls, play_task
from tests.controlplane.waiting import moment
from tests.rig.rows import Started

OURS = "app.kubernetes.io/managed-by=dispatcher"
STEER = "play.dispatcher.internal"
TERMINAL = ("Succeeded", "Failed")
DATABASE_CONNECTIONS = 8
ANSWER_LOST = (asyncpg.PostgresConnectionError, asyncpg.exceptions.OperatorInterventionError, OSError)
T = TypeVar("T")


class PatientCalls(TaskCalls):
    """Repeats a call whose answer was lost, as the contract asks of containers: the same Pod gets the same answer."""

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
    """One container that ran. `exit_code` is None while it runs, and after it was cancelled."""

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
    """A program that raised, or a container whose environment could not be resolved."""

    pod: str
    error: Exception


class Player:
    """Runs `behaviour` for every Pod of the namespace with our label. Use with `async with`."""

    def __init__(
        self,
        control_plane: ControlPlane,
        namespace: str,
        database_url: str | None = None,
        behaviour: Program = play_task,
    ) -> None:
        """`database_url`: a login with the role of containers (dispatch_task); None for programs without database."""
        self.runs: list[Run] = []
        self.faults: list[PlayFault] = []
        self._api = control_plane.api
        self._namespace = f"/api/v1/namespaces/{namespace}"
        self._database_url = database_url
        self._behaviour = behaviour
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._seen: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._killable: dict[str, asyncio.Task[None]] = {}  # by uid of the Pod whose end cancels the task

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
        """The runs of a task, in the order of their starts."""
        return [run for run in self.runs if run.task_id == task_id]

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        """Keeps an error outside a program as a fault of the player, for tests to assert on."""
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.faults.append(PlayFault(task.get_name(), error))

    async def _watch(self) -> None:
        async for change in self._api.follow(f"{self._namespace}/pods", labels=OURS):
            for uid in _over_or_gone(change, self._killable):
                self._killable.pop(uid).cancel()
            if change.type != "DELETED":
                for pod in change.objects:
                    self._run_once(pod)

    def _run_once(self, pod: Json) -> None:
        """Starts the program of a Running Pod, unless it was started before."""
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
        except Exception as error:  # noqa: BLE001  # any exception of a program is exit code 1
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
        """Writes the exit code until the server accepts it, or the Pod is gone (404) or another one (409 by uid)."""
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
    """The task's container: the one named `task`, else the first."""
    containers: list[Json] = pod["spec"]["containers"]
    return next((container for container in containers if container["name"] == "task"), containers[0])


def _over_or_gone(change: Change, uids: Iterable[str]) -> list[str]:
    """The uids whose Pod has ended or is gone after this change."""
    ended = {pod["metadata"]["uid"] for pod in change.objects if pod["status"].get("phase") in TERMINAL}
    named = {pod["metadata"]["uid"] for pod in change.objects}
    if change.type == "LIST":
        return [uid for uid in uids if uid in ended or uid not in named]
    return [uid for uid in uids if uid in (named if change.type == "DELETED" else ended)]
