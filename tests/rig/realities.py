"""Steps of the journeys with real processes: rows that run shell scripts, and the processes behind them."""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, overload

from tests.controlplane import waiting
from tests.controlplane.api import Json
from tests.controlplane.waiting import wait_for
from tests.rig import steps
from tests.rig.dispatching import Dispatcher, Place, QuickDispatcher
from tests.rig.noding import Node, nodes
from tests.rig.postgres import Record

T = TypeVar("T")
HANG = 'echo $$ >> "$MARKS/pids"; exec sleep 1000'
TRAP_SIGTERM = (
    """trap 'echo stopped >> "$MARKS/words"; exit 9' TERM; echo $$ >> "$MARKS/pids"; while :; do sleep 0.05; done"""
)


class Real:
    """A place with a dispatcher, and waits for rows, Jobs, Pods and processes."""

    def __init__(self, place: Place, dispatcher: Dispatcher) -> None:
        self.place = place
        self.dispatcher = dispatcher
        self.marks = place.folder / "marks"
        self.marks.mkdir()

    async def insert(self, script: str, **columns: Any) -> int:
        """The id of a new row that runs the script. `MARKS` names a folder in which the script may write files."""
        env = {"SCRIPT": script, "MARKS": str(self.marks), **columns.pop("env", {})}
        return await self.place.database.insert_task(env=env, **columns)

    async def reaches(self, task_id: int, status: str, seconds: float = 40) -> Record:
        return await steps.reaches(self.place, self.dispatcher, task_id, status, seconds)

    async def outcomes(self, task_id: int) -> list[str | None]:
        """Outcomes of its launches that started; None while a launch is open."""
        return [launch["outcome"] for launch in await self.place.database.launches(task_id)]

    async def runs(self, count: int = 1, seconds: float = 40) -> list[int]:
        """The pids of `count` scripts, once so many have written their pid."""
        return await self.wait(lambda: found if len(found := self.pids()) >= count else [], f"{count} run", seconds)

    def pids(self) -> list[int]:
        return [int(word) for word in self.words("pids")]

    def words(self, name: str) -> list[str]:
        file = self.marks / name
        return file.read_text().split() if file.exists() else []

    async def swept(self) -> None:
        await steps.no_jobs(self.place, self.dispatcher, 40)

    async def pods(self) -> list[Json]:
        found: list[Json] = (await self.place.control_plane.admin("GET", self.pods_path()))["items"]
        return found

    async def no_pods(self) -> bool:
        return not await self.pods()

    def pods_path(self, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.place.namespace}/pods" + (f"/{name}" if name else "")

    async def the_pod(self, phase: str = "", seconds: float = 30) -> Json:
        async def look() -> list[Json]:
            return [pod for pod in await self.pods() if not phase or pod["status"]["phase"] == phase]

        return (await self.wait(look, f"a Pod {phase}", seconds))[0]

    async def delete_pod(self, **options: object) -> None:
        """Deletes the Pod as `kubectl delete pod` does."""
        name = (await self.the_pod())["metadata"]["name"]
        await self.place.control_plane.admin("DELETE", self.pods_path(name), options or None)

    async def held(self, reason: str, seconds: float = 60) -> None:
        await steps.held(self.dispatcher, reason, 1, seconds)

    @overload
    async def wait(self, predicate: Callable[[], Awaitable[T]], what: str, seconds: float) -> T: ...
    @overload
    async def wait(self, predicate: Callable[[], T], what: str, seconds: float) -> T: ...
    async def wait(self, predicate: waiting.Predicate[T], what: str, seconds: float) -> T:
        return await wait_for(predicate, what, seconds, check=self.dispatcher.check)


@asynccontextmanager
async def real(place: Place, *names: str, **settings: object) -> AsyncIterator[tuple[Real, list[Node]]]:
    """Nodes of real processes, one by default, and a dispatcher for them."""
    dispatcher = QuickDispatcher(place, **{"TOMBSTONE_SECONDS": 1, **settings})
    async with nodes(place, *(names or ("one",))) as made, dispatcher:
        yield Real(place, dispatcher), made


def is_alive(pid: int) -> bool:
    """True while the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wrapper_of(pid: int) -> int:
    """The pid of the `dispatcher exec` that runs this CMD: the parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def crash(node: Node) -> None:
    """A power failure: kills every process of the node at once. No status is written."""
    shims = [int(alive.read_text()) for alive in node.folder.glob("pods/*/containers/*/alive")]
    for pid in [one for shim in shims for one in (shim, *descendants(shim))]:
        os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """Pids of all descendants. Must be read before the first kill: an orphan has another parent."""
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [one for child in children for one in descendants(child)]
