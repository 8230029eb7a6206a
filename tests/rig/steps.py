"""Shared steps of journeys and fault tests: rows, waits for rows, Jobs and metrics, a dispatcher behind a proxy."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from dispatcher.runtime.rounds import LONGEST_PAUSE_SECONDS
from tests.controlplane.api import Json
from tests.controlplane.audit import AuditEvent
from tests.controlplane.waiting import wait_for
from tests.faults.http_proxy import Asked, KubeProxy, Matches
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.postgres import Record

UNFINISHED = "SELECT count(*) FROM dispatch.tasks WHERE status <> 'succeeded'"

LET_GRACES_PASS = """
UPDATE dispatch_private.tasks SET cancel_requested_at = cancel_requested_at - interval '1 min',
                          finished_at = finished_at - interval '1 min'
"""
"""Both graces are 60 s by the clock of Postgres, counted from these columns."""


class Times:
    """A predicate for rules that records the times of its matches, in seconds of the loop's clock."""

    def __init__(self, matches: Matches) -> None:
        self.all: list[float] = []
        self._matches = matches

    def __call__(self, asked: Asked) -> bool:
        if self._matches(asked):
            self.all.append(asyncio.get_running_loop().time())
            return True
        return False

    def pauses(self, least: float) -> list[float]:
        """Pauses between matches that are longer than `least` seconds; shorter ones are within a burst."""
        return [later - before for before, later in pairwise(self.all) if later - before > least]


def behind(place: Place, proxy: KubeProxy, **settings: object) -> Dispatcher:
    """A dispatcher that reaches the API server through the proxy."""
    return Dispatcher(place, KUBECONFIG=proxy.kubeconfig(place.folder / "kubeconfig"), **settings)


async def insert(place: Place, count: int, **columns: object) -> list[int]:
    """New rows. If a janitor has written the table of templates, waits until it has this one."""
    if "template" in columns:
        await knows(place, str(columns["template"]))
    return [await place.database.insert_task("team_a", **columns) for _ in range(count)]


async def knows(place: Place, template: str) -> None:
    admin = await place.database.session("admin")

    async def is_known() -> bool:
        names = {row["name"] for row in await admin.fetch("SELECT name FROM dispatch.templates")}
        return not names or template in names

    await wait_for(is_known, f"INSERT knows the template {template}", 20)


async def has_jobs(place: Place, dispatcher: Dispatcher, count: int, seconds: float = 20) -> list[Json]:
    """The Jobs, once there are at least `count`."""

    async def are_there() -> list[Json]:
        jobs: list[Json] = await place.jobs()
        return jobs if len(jobs) >= count else []

    return await wait_for(are_there, f"{count} Jobs", seconds, check=dispatcher.check)


async def no_jobs(place: Place, dispatcher: Dispatcher, seconds: float = 20) -> None:
    async def are_gone() -> bool:
        return not await place.jobs()

    await wait_for(are_gone, "every Job is gone", seconds, check=dispatcher.check)


async def reaches(place: Place, program: Dispatcher, task_id: int, status: str, seconds: float = 20) -> Record:
    """The row, once it has this status."""

    async def is_there() -> bool:
        return bool((await place.database.task(task_id))["status"] == status)

    await wait_for(is_there, f"task {task_id} is {status}", seconds, check=program.check)
    return await place.database.task(task_id)


async def succeeded(place: Place, dispatcher: Dispatcher, count: int, seconds: float = 30) -> None:
    async def are_over() -> bool:
        return len(await place.rows("status = 'succeeded'")) >= count

    await wait_for(are_over, f"{count} rows succeeded", seconds, check=dispatcher.check)


async def all_done(place: Place, seconds: float, check: Callable[[], None]) -> None:
    """Waits until every row has succeeded and every Job is gone."""
    admin = await place.database.session("admin")

    async def are_done() -> bool:
        return not await admin.fetchval(UNFINISHED) and not await place.jobs()

    await wait_for(are_done, "every row succeeded and every Job is gone", seconds, check=check)


async def shows(dispatcher: Dispatcher, metric: str, least: float = 1, seconds: float = 20, **labels: str) -> None:
    """Waits until the metric is at least `least`."""

    async def is_so_much() -> bool:
        return await dispatcher.metric(metric, **labels) >= least

    await wait_for(is_so_much, f"{metric} {labels} is {least:g}", seconds, check=dispatcher.check)


async def held(dispatcher: Dispatcher, reason: str, count: int = 1, seconds: float = 20, **labels: str) -> None:
    async def are_held() -> bool:
        return await dispatcher.metric("dispatcher_waiting_tasks", reason=reason, **labels) == count

    await wait_for(are_held, f"{count} rows held for {reason}", seconds, check=dispatcher.check)


async def waits_for(dispatcher: Dispatcher, task_id: object, reason: str, seconds: float = 60) -> None:
    """Waits until the row is explained by this reason. Metrics count rows whose status is `waiting` alone."""

    await dispatcher.ready()

    async def is_told() -> bool:
        status, found = await dispatcher.explain(task_id)
        return status == 200 and found["reason"] == reason

    await wait_for(is_told, f"row {task_id} waits for {reason}", seconds, check=dispatcher.check)


async def looks_again(dispatcher: Dispatcher, count: int = 5) -> None:
    """Waits until `count` more cycles have ended."""
    before = await dispatcher.metric("dispatcher_cycle_seconds_count")
    await shows(dispatcher, "dispatcher_cycle_seconds_count", before + count, 10 + 3 * count)


async def fails_again(dispatcher: Dispatcher, component: str, count: int) -> None:
    """Waits until `count` more rounds of the component have ended with a fault. Pauses between them become longer."""
    before, seconds = await dispatcher.metric("dispatcher_faults_total", component=component), 20 * count
    assert seconds > count * LONGEST_PAUSE_SECONDS
    await shows(dispatcher, "dispatcher_faults_total", before + count, seconds, component=component)


def creates(place: Place, code: int | None = 201) -> list[AuditEvent]:
    """Creates of Jobs by the dispatcher's account that the API server answered with `code`; None: any answer."""
    user = f"system:serviceaccount:{place.namespace}:dispatcher"
    told = place.control_plane.audit(user_prefix=user, verb="create", resource="jobs", namespace=place.namespace)
    return [event for event in told if code in (None, event.code)]


def made_twice(place: Place) -> list[str]:
    """Job names that were created more than once."""
    names = Counter(event.object_ref.name or (event.request_object or {})["metadata"]["name"]
                    for event in creates(place))  # fmt: skip
    return [name for name, count in names.items() if count > 1]


def jobs_path(place: Place, name: str = "") -> str:
    return f"/apis/batch/v1/namespaces/{place.namespace}/jobs" + (f"/{name}" if name else "")


def core_path(place: Place, resource: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{place.namespace}/{resource}" + (f"/{name}" if name else "")


def plain_job(
    name: str, *, labels: dict[str, str] | None = None, notes: dict[str, str] | None = None
) -> dict[str, Any]:
    """A foreign Job that is suspended for ever."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "x", "image": "registry.example/x:1"}]}
    metadata = {"name": name, "labels": labels or {}, "annotations": notes or {}}
    spec = {"suspend": True, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


async def limit(place: Place, hard: Mapping[str, str], scopes: Json | None = None) -> None:
    """Creates a quota and waits until it is counted. `scopes`: its scopeSelector."""
    spec: Json = {"hard": dict(hard), **({"scopeSelector": scopes} if scopes else {})}
    made = {"metadata": {"name": "limit"}, "spec": spec}
    await place.control_plane.admin("POST", core_path(place, "resourcequotas"), made)

    async def in_force() -> bool:
        found = await place.control_plane.admin("GET", core_path(place, "resourcequotas", "limit"))
        return set(hard) <= set(found["status"].get("used", {}))

    await wait_for(in_force, "the quota is counted")


def template_with(place: Place, name: str, pod: Mapping[str, Any]) -> Path:
    """Writes a template with these additional fields of the Pod. `container`: fields of its container."""
    place.template(name)
    path = place.templates / f"{name}.yaml"
    manifest = yaml.safe_load(path.read_text())
    inside = manifest["spec"]["template"]["spec"]
    (container,) = inside["containers"]
    inside |= {key: value for key, value in pod.items() if key != "container"}
    inside["containers"] = [container | dict(pod.get("container", {}))]
    path.write_text(yaml.safe_dump(manifest))
    return path
