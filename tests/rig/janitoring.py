"""The janitor under test: the real program in a process of its own, with its own ServiceAccount and login."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dispatcher.model.launches import job_name, task_identity
from tests.controlplane.audit import AuditEvent
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.steps import jobs_path, plain_job, reaches

ACCOUNT = "dispatcher-janitor"
AS_IF_DEAD = """
UPDATE dispatch_private.tasks SET heartbeat_at = now() - interval '10 min', started_at = now() - interval '10 min'
WHERE id = $1
"""


class Janitor(Dispatcher):
    """One process of `dispatcher janitor`. Use with `async with`, or start and kill it by hand."""

    def __init__(self, place: Place, **settings: object) -> None:
        login = {"DATABASE_URL": place.database.url("janitor"), "KUBECONFIG": place.folder / "janitor-kubeconfig"}
        super().__init__(place, **{"PARK_SECONDS": 1, **login, **settings})
        self._place = place
        self._log = place.folder / f"janitor-{self.port}.log"

    async def __aenter__(self) -> "Janitor":
        await super().__aenter__()
        return self

    async def start(self, *flags: str) -> None:
        plane, namespace = self._place.control_plane, self._place.namespace
        token = await plane.service_account_token(namespace, ACCOUNT)
        plane.kubeconfig(self._place.folder / "janitor-kubeconfig", token=token, namespace=namespace)
        self.arguments = ("janitor", *flags)
        await super().start()

    async def dry_run(self) -> int:
        """Runs one round with `--dry-run` and returns the exit code."""
        await self.start("--dry-run")
        async with asyncio.timeout(30):
            return await self.process.wait()

    def said(self, event: str) -> list[dict[str, Any]]:
        """Its log lines of this event."""
        lines = (json.loads(line) for line in self.log.splitlines() if line.startswith("{"))
        return [line for line in lines if line["event"] == event]

    async def moved(self, action: str) -> float:
        """Number of rows that it has moved by this action."""
        return await self.metric("dispatcher_janitor_rows_total", action=action)

    async def another_round(self) -> None:
        """Waits until a round that began after this call has ended: until the second new list of Pods."""
        lists = len(requests(self._place, "list", "pods"))

        def are_two() -> bool:
            return len(requests(self._place, "list", "pods")) >= lists + 2

        await wait_for(are_two, "another round of the janitor", 60, check=self.check)


class QuickJanitor(Janitor):
    """A janitor whose rounds begin each second, so that tests do not wait ten seconds for each round."""

    def __init__(self, place: Place, **settings: object) -> None:
        super().__init__(place, **settings)
        self.program = (sys.executable, "-m", "tests.rig.quick")


def requests(place: Place, verb: str, resource: str) -> list[AuditEvent]:
    """Requests of janitors to the API server."""
    user = f"system:serviceaccount:{place.namespace}:{ACCOUNT}"
    return place.control_plane.audit(user_prefix=user, verb=verb, resource=resource, namespace=place.namespace)


@asynccontextmanager
async def both(place: Place, **settings: object) -> AsyncIterator[tuple[Janitor, Dispatcher]]:
    """A janitor and a dispatcher with the same settings."""
    async with Dispatcher(place, **settings) as dispatcher, QuickJanitor(place, **settings) as janitor:
        yield janitor, dispatcher


async def is_over(place: Place, task_id: int, status: str) -> bool:
    return bool((await place.database.task(task_id))["status"] == status)


async def becomes(place: Place, task_id: int, status: str, janitor: Janitor, seconds: float = 60) -> None:
    await reaches(place, janitor, task_id, status, seconds)


async def falls_silent(place: Place, task_id: int) -> None:
    """Sets the row's heartbeat and start to ten minutes ago, so that the test does not wait for staleness."""
    await (await place.database.session("admin")).execute(AS_IF_DEAD, task_id)


async def delete_jobs(place: Place, task_id: int) -> None:
    """Deletes the Jobs of a task and their Pods, as a person would."""
    which = {"propagationPolicy": "Background", "labelSelector": f"dispatcher.internal/task-id={task_id}"}
    await place.control_plane.admin("DELETE", jobs_path(place), params=which)


async def take_name(place: Place, task_id: int, **parts: dict[str, str]) -> str:
    """Creates a foreign Job with the name of the row's first Job, and returns the name."""
    admin = await place.database.session("admin")
    database_id = str(await admin.fetchval("SELECT database_id FROM dispatch.schema_version LIMIT 1"))
    identity = task_identity(database_id, task_id, (await place.database.task(task_id))["created_at"])
    name = job_name("dispatcher", task_id, identity, 1, 1)
    await place.control_plane.admin("POST", jobs_path(place), plain_job(name, **parts))
    return name
