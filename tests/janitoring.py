"""The janitor under test: the real program in a process of its own, with its own ServiceAccount and login."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dispatcher.model.identity import job_name, task_identity
from tests.controlplane.api import KubeFault
from tests.controlplane.audit import AuditEvent
from tests.controlplane.waiting import wait_for
from tests.dispatching import Dispatcher, Place

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
ACCOUNT = "dispatcher-janitor"
AS_IF_DEAD = """
UPDATE dispatch.tasks SET heartbeat_at = now() - interval '10 min', started_at = now() - interval '10 min' WHERE id = $1
"""


class Janitor(Dispatcher):
    """One process of `dispatcher janitor`. Use with `async with`, or start and kill it by hand."""

    def __init__(self, place: Place, **settings: object) -> None:
        login = {"DATABASE_URL": place.database.url("janitor"), "KUBECONFIG": place.folder / "janitor-kubeconfig"}
        super().__init__(place, **{"PARK_SECONDS": 1, **login, **settings})
        self._place = place
        self._log = place.folder / f"janitor-{self.port}.log"

    async def __aenter__(self) -> "Janitor":
        await self.start()
        return self

    async def start(self, *flags: str) -> None:
        plane, namespace = self._place.control_plane, self._place.namespace
        token = await plane.service_account_token(namespace, ACCOUNT)
        plane.kubeconfig(self._place.folder / "janitor-kubeconfig", token=token, namespace=namespace)
        with self._log.open("a") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.program, "janitor", *flags, cwd=self.folder, env=self._environment, stdout=log, stderr=log
            )

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
        self.program = (sys.executable, "-m", "tests.quick_janitor")


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
    async def has_become() -> bool:
        return await is_over(place, task_id, status)

    await wait_for(has_become, f"task {task_id} is {status}", seconds, check=janitor.check)


async def falls_silent(place: Place, task_id: int) -> None:
    """Sets the row's heartbeat and start to ten minutes ago, so that the test does not wait for staleness."""
    await (await place.database.session("admin")).execute(AS_IF_DEAD, task_id)


async def delete_jobs(place: Place, task_id: int) -> None:
    """Deletes the Jobs of a task and their Pods, as a person would."""
    jobs = f"/apis/batch/v1/namespaces/{place.namespace}/jobs"
    which = {"propagationPolicy": "Background", "labelSelector": f"dispatcher.internal/task-id={task_id}"}
    await place.control_plane.admin("DELETE", jobs, params=which)


@asynccontextmanager
async def denied(place: Place, template: str) -> AsyncIterator[None]:
    """An admission policy that denies the Jobs of one template, while the context lasts."""
    name = place.namespace
    rules = [{"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}]
    says = f"object.metadata.labels['dispatcher.internal/template'] != '{template}'"
    policy = {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": says, "message": "no gpus"}]}
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": place.namespace}}}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": here}
    kinds = {"validatingadmissionpolicies": policy, "validatingadmissionpolicybindings": binding}
    for plural, spec in kinds.items():
        await place.control_plane.admin("POST", f"{ADMISSION}/{plural}", {"metadata": {"name": name}, "spec": spec})
    try:
        await wait_for(lambda: is_denied(place, template), "the policy is in force", 30)
        yield
    finally:
        for plural in reversed(kinds):
            await place.control_plane.admin("DELETE", f"{ADMISSION}/{plural}/{name}")


async def is_denied(place: Place, template: str) -> bool:
    """Whether a Job of the template would be denied, by a dry run."""
    job = plain_job("probe", labels={"dispatcher.internal/template": template})
    try:
        path = f"/apis/batch/v1/namespaces/{place.namespace}/jobs"
        await place.control_plane.admin("POST", path, job, params={"dryRun": "All"})
    except KubeFault as refused:  # any other refusal is asked again
        return "no gpus" in str(refused)
    return False


def plain_job(
    name: str, *, labels: dict[str, str] | None = None, notes: dict[str, str] | None = None
) -> dict[str, Any]:
    """A foreign Job that is suspended for ever."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "x", "image": "registry.example/x:1"}]}
    metadata = {"name": name, "labels": labels or {}, "annotations": notes or {}}
    spec = {"suspend": True, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


async def take_name(place: Place, task_id: int, **parts: dict[str, str]) -> str:
    """Creates a foreign Job with the name of the row's first Job, and returns the name."""
    admin = await place.database.session("admin")
    database_id = str(await admin.fetchval("SELECT database_id FROM dispatch.schema_version LIMIT 1"))
    identity = task_identity(database_id, task_id, (await place.database.task(task_id))["created_at"])
    name = job_name("dispatcher", task_id, identity, 1, 1)
    jobs = f"/apis/batch/v1/namespaces/{place.namespace}/jobs"
    await place.control_plane.admin("POST", jobs, plain_job(name, **parts))
    return name
