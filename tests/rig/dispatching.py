"""The dispatcher under test: the real program in a process of its own, as in production.

The process has a token of its own ServiceAccount with the rights of the chart, the SELECT-only login, and only PATH
from the environment of the tests.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from yarl import URL

from tests.controlplane.cluster import ControlPlane
from tests.controlplane.player import Player
from tests.controlplane.ports import free_ports
from tests.controlplane.waiting import wait_for
from tests.rig.deployed import rendered
from tests.rig.postgres import Database

ROOT = Path(__file__).parents[2]
STEER = "play.dispatcher.internal"
TASK = """
apiVersion: batch/v1
kind: Job
metadata:
  annotations: {annotations}
spec:
  template:
    metadata:
      annotations: {steer}
    spec:
      containers:
        - name: task
          image: registry.example/team/app:1
          resources: {{requests: {{cpu: 10m, memory: 16Mi}}, limits: {{cpu: 10m, memory: 16Mi}}}}
"""


def free_port() -> int:
    return free_ports(1)[0]


class Place:
    """A namespace, a database and a folder of templates for dispatchers."""

    def __init__(self, control_plane: ControlPlane, namespace: str, database: Database, folder: Path) -> None:
        self.control_plane = control_plane
        self.namespace = namespace
        self.database = database
        self.folder = folder
        self.templates = folder / "templates"
        self.templates.mkdir()
        self.template("default")

    def template(self, name: str, *, steer: Mapping[str, str] | None = None, **openings: str) -> None:
        """Writes a template.

        steer: annotations that tell kwok how its Pods behave.
        openings: annotations of the template, such as row_may_set="env,cpu".
        """
        annotations = {f"dispatcher.internal/{key.replace('_', '-')}": value for key, value in openings.items()}
        steering = {f"{STEER}/{key}": value for key, value in (steer or {}).items()}
        text = TASK.format(annotations=quoted(annotations), steer=quoted(steering))
        (self.templates / f"{name}.yaml").write_text(text)

    async def prepare(self) -> None:
        """Creates the dispatcher's ServiceAccount and rights, and writes a kubeconfig with its token."""
        await self.control_plane.apply(rendered("one-namespace", only="rbac"), namespace=self.namespace)
        token = await self.control_plane.service_account_token(self.namespace, "dispatcher")
        self.control_plane.kubeconfig(self.folder / "kubeconfig", token=token, namespace=self.namespace)

    def environment(self, **settings: object) -> dict[str, str]:
        values = {
            "DATABASE_URL": self.database.url("reader"),
            "KUBECONFIG": self.folder / "kubeconfig",
            "NAMESPACE": self.namespace,
            "TEMPLATES_DIR": self.templates,
            "POLL_SECONDS": 0.25,
            "LEASE_SECONDS": 3,
            "KUBE_WRITES_PER_SECOND": 500,
            **settings,
        }
        written = {f"DISPATCHER_{name}": str(value) for name, value in values.items() if value is not None}
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder), **written}

    async def jobs(self) -> list[dict[str, object]]:
        answer = await self.control_plane.admin("GET", f"/apis/batch/v1/namespaces/{self.namespace}/jobs")
        items: list[dict[str, object]] = answer["items"]
        return items

    async def rows(self, where: str = "true") -> list[dict[str, object]]:
        admin = await self.database.session("admin")
        return [dict(row) for row in await admin.fetch(f"SELECT * FROM dispatch.tasks WHERE {where} ORDER BY id")]

    async def end_term(self) -> None:
        """Deletes the lease of a killed leader, so that the test does not wait for its end."""
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
        await self.control_plane.admin("DELETE", leases)

    @asynccontextmanager
    async def playing(self) -> AsyncIterator[Player]:
        async with Player(self.control_plane, self.namespace, self.database.url("task")) as player:
            yield player


def quoted(pairs: Mapping[str, str]) -> str:
    return "{" + ", ".join(f'{key}: "{value}"' for key, value in pairs.items()) + "}"


class Dispatcher:
    """One process of `dispatcher run`. Use with `async with`, or start and kill it by hand."""

    def __init__(self, place: Place, **settings: object) -> None:
        self.port, self.api_port = free_ports(2)
        self.program: tuple[str, ...] = (sys.executable, "-m", "dispatcher")
        self.arguments: tuple[str, ...] = ("run",)
        self.folder = ROOT
        addresses = {"LISTEN_ADDRESS": f"127.0.0.1:{self.port}", "DASHBOARD_ADDRESS": f"127.0.0.1:{self.api_port}"}
        self._environment = place.environment(**{**addresses, **settings})
        self._log = place.folder / f"dispatcher-{self.port}.log"
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> "Dispatcher":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            await self.stop()

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self._process is not None
        return self._process

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    async def start(self) -> None:
        with self._log.open("a") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.program, *self.arguments, cwd=self.folder, env=self._environment, stdout=log, stderr=log
            )

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Sends the signal and returns the exit code. The process must end within 30 s."""
        self.process.send_signal(number)
        async with asyncio.timeout(30):
            return await self.process.wait()

    async def readiness(self) -> tuple[int, str]:
        """(status, body) of /readyz; (0, fault) without an answer."""
        return await self.get("/readyz")

    async def get(self, path: str) -> tuple[int, str]:
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
                session.get(f"http://127.0.0.1:{self.port}{path}") as answer,
            ):
                return answer.status, await answer.text()
        except (aiohttp.ClientError, TimeoutError) as fault:
            return 0, str(fault)

    async def explain(self, task_id: object) -> tuple[int, dict[str, Any]]:
        """Status and body of the API's explanation of a row."""
        return await self.api(f"tasks/{task_id}/explain")

    async def api(self, path: str) -> tuple[int, Any]:
        """Status and body of GET /api/v1/`path`."""
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
            session.get(f"http://127.0.0.1:{self.api_port}/api/v1/{path}") as answer,
        ):
            return answer.status, await answer.json()

    async def page(
        self, path: str, method: str = "GET", seconds: float = 5, **headers: str
    ) -> tuple[int, Mapping[str, str], str]:
        """Status, headers and text of a page of the dashboard. The path is sent as it is written."""
        url = URL(f"http://127.0.0.1:{self.api_port}{path}", encoded=True)
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=seconds)) as session,
            session.request(method, url, headers=headers) as answer,
        ):
            return answer.status, answer.headers, await answer.text()

    async def metric(self, name: str, **labels: str) -> float:
        """Sum of a metric's samples with these labels."""
        _, text = await self.get("/metrics")
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        samples = [line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in samples if all(part in line for part in wanted))

    async def ready(self) -> None:
        """Waits until it is ready. A right that was just granted may be refused once; then a list waits its pause."""

        async def is_ready() -> bool:
            return (await self.readiness())[0] == 200

        await wait_for(is_ready, "the dispatcher is ready", 60, check=self.check)

    async def leads(self) -> bool:
        return await self.metric("dispatcher_leader") == 1

    async def unready(self, words: str, seconds: float = 30) -> str:
        """Waits until /readyz answers 503 with `words`, and returns the whole body."""

        said = 0, ""

        async def names_it() -> str:
            nonlocal said
            said = status, body = await self.readiness()
            return body if status == 503 and words in body else ""

        try:
            return await wait_for(names_it, f"/readyz names {words!r}", seconds, check=self.check)
        except TimeoutError as fault:
            raise TimeoutError(f"{fault}; it said {said}; the end of its log:\n{self.log[-2000:]}") from fault

    def move_into_a_pod(self, variables: Mapping[str, str]) -> None:
        """Lets the process log in as in a Pod at its next start. `variables`: see `tests.rig.in_pod`."""
        self.program = (sys.executable, "-m", "tests.rig.in_pod")
        self._environment = {**self._environment, **variables}
        del self._environment["DISPATCHER_KUBECONFIG"]

    def check(self) -> None:
        code = self.process.returncode
        assert code is None, f"the dispatcher ended with {code}: {self.log[-3000:]}"


class QuickDispatcher(Dispatcher):
    """A dispatcher with short pauses, for tests of what follows them."""

    def __init__(self, place: Place, **settings: object) -> None:
        super().__init__(place, **settings)
        self.program = (sys.executable, "-m", "tests.rig.quick")


class TellingDispatcher(Dispatcher):
    """A dispatcher that tells reasons often, for tests of what people read."""

    def __init__(self, place: Place, **settings: object) -> None:
        super().__init__(place, **settings)
        self.program = (sys.executable, "-m", "tests.rig.quick", "telling")
