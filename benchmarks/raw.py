"""The raw limit: a client that only posts Jobs, with the same bytes and connections as the dispatcher.

As a program it reads bodies from a file, one per line, posts them over 16 connections, and ends. It has a process of
its own and the same event loop as the dispatcher, so that the two differ only in their work. With a third argument it
also holds a watch of the Jobs and drops its events. Every program that has to know its Jobs needs that watch, so this
is the least load of such a program on the API server.
"""

import asyncio
import gc
import ssl
import sys
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import yaml
from msgspec import Struct

from benchmarks.servers import program
from dispatcher.commands.options import turn
from dispatcher.jobs.manifest import JobSite, build_job
from dispatcher.jobs.row_check import plan_shape
from dispatcher.jobs.submit import AT_A_TIME
from dispatcher.jobs.templates import Template, parse_template
from dispatcher.kube.job_api import SERVER_SECONDS, jobs_path
from dispatcher.kube.objects import encode
from dispatcher.model.launches import Launch, LaunchSpec, Offer
from dispatcher.model.tasks import Request, Status, Task
from dispatcher.settings.definition import PlacementSettings
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Place

PARAMS = {"fieldValidation": "Strict", "timeout": f"{SERVER_SECONDS}s"}


class Client:
    """Posts bodies to the server and with the token of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        namespace = config["contexts"][0]["context"]["namespace"]
        self._url = cluster["server"] + jobs_path(namespace)
        self._tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "Authorization": f"Bearer {user['token']}",
        }

    async def __aenter__(self) -> "Client":
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=AT_A_TIME, ssl=self._tls, keepalive_timeout=60), headers=self._headers
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def post(self, body: bytes) -> int:
        async with self._session.post(self._url, data=body, params=PARAMS) as answer:
            await answer.read()
            return answer.status

    async def allowed(self, body: bytes) -> None:
        """Waits until the API server knows the account's rights. Creates nothing."""

        async def is_allowed() -> bool:
            async with self._session.post(self._url, data=body, params=PARAMS | {"dryRun": "All"}) as answer:
                return answer.status == 201

        await wait_for(is_allowed, "the raw client may create Jobs")

    async def post_all(self, bodies: Iterable[bytes]) -> None:
        waiting = iter(bodies)
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_A_TIME):
                group.create_task(self._post_each(waiting))

    async def watch(self) -> None:
        """Reads the events of a watch, and drops them."""
        async with self._session.get(self._url, params={"watch": "1"}, timeout=aiohttp.ClientTimeout()) as answer:
            async for _ in answer.content.iter_any():
                pass

    async def _post_each(self, bodies: Iterator[bytes]) -> None:
        for body in bodies:
            status = await self.post(body)
            assert status == 201, status


class Row(Struct, frozen=True):
    """The parts of a row that go into its Job, if the row sets nothing else."""

    id: int
    created_at: datetime
    start_key: str


def bodies(place: Place, count: int) -> list[bytes]:
    """The bodies that the dispatcher would send for `count` rows of an imaginary database."""
    now = datetime.now(UTC)
    return bodies_of(place, [Row(number + 1, now, str(uuid.uuid4())) for number in range(count)], str(uuid.uuid4()))


def bodies_of(place: Place, rows: Iterable[Row], database_id: str) -> list[bytes]:
    """The bodies that the dispatcher would send for these rows, with the default template of the place."""
    template = parse_template("default", (place.templates / "default.yaml").read_text())
    site = JobSite("dispatcher", place.namespace, 3600, PlacementSettings(), {})
    return [encode(build_job(an_order(row, template, database_id), template, site)) for row in rows]


def an_order(row: Row, template: Template, database_id: str) -> LaunchSpec:
    task = Task(
        id=row.id, queue="default", priority=100, run_at=None, timeout_seconds=None, max_failures=3,
        template=template.name, status=Status.WAITING, attempt=1, launch=0, failures=0, job_uid=None, pod_name=None,
        submitted_by="team_a", created_at=row.created_at, started_at=None, heartbeat_at=None, finished_at=None,
        cancel_requested_at=None, kind=b"",
    )  # fmt: skip
    offer = Offer(str(template.task_container["image"]), plan_shape(template, {}), template.name)
    request = Request(row.id, 1, {}, {}, None)
    return LaunchSpec(task, request, Launch(1), offer, database_id, start_key=row.start_key)


class Poster:
    """The raw client in a process of its own. It has no connections yet."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")


@asynccontextmanager
async def running(place: Place, count: int, *extra: str) -> AsyncIterator[Poster]:
    """A client that is ready to post `count` bodies. `extra`: more arguments of the program."""
    made, file, kubeconfig = bodies(place, count), place.folder / "bodies", place.folder / "kubeconfig"
    file.write_bytes(b"\n".join(made))
    async with Client(kubeconfig) as client:
        await client.allowed(made[0])
    async with program("benchmarks.raw", kubeconfig, file, *extra) as process:
        yield Poster(process)


async def main(kubeconfig: Path, lines: list[bytes], is_watching: bool) -> None:
    gc.freeze()
    async with Client(kubeconfig) as client, asyncio.TaskGroup() as group:
        watching = [group.create_task(client.watch())] if is_watching else []
        print("ready", flush=True)
        sys.stdin.readline()
        await client.post_all(lines)
        sys.stdin.readline()  # waits for its end, so that its CPU time can still be read
        for task in watching:
            task.cancel()


if __name__ == "__main__":
    turn(main(Path(sys.argv[1]), Path(sys.argv[2]).read_bytes().splitlines(), len(sys.argv) > 3))
