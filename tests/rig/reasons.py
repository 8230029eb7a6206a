"""The reason of a row, on each surface that tells it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.controlplane.api import Json
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.janitoring import QuickJanitor
from tests.rig.steps import core_path, jobs_path
from tests.rig.surfaces import Surfaces

SILENT = {"container": {"env": [{"name": "PLAY", "value": "start-then-exit-0"}]}}
CRASHES = {"container": {"env": [{"name": "PLAY", "value": "start-then-exit-1"}]}}
HUGE: Json = {"container": {"resources": {"requests": {"cpu": "500"}, "limits": {"cpu": "500"}}}}


async def explained(dispatcher: Dispatcher, task_id: int, words: str, seconds: float = 30) -> dict[str, Any]:
    """The explanation of the row, once its message has the words."""
    found: dict[str, Any] = {}

    async def is_told() -> bool:
        nonlocal found
        status, found = await dispatcher.explain(task_id)
        return status == 200 and words in found["message"]

    try:
        await wait_for(is_told, f"row {task_id} is told {words!r}", seconds, check=dispatcher.check)
    except TimeoutError as late:
        raise TimeoutError(f"{late}; it is told {found}") from late
    return found


@asynccontextmanager
async def all_surfaces(place: Place, dispatcher: Dispatcher) -> AsyncIterator[Surfaces]:
    janitor = QuickJanitor(place, PARK_SECONDS=3600)
    async with dispatcher, janitor:
        await dispatcher.ready()
        await wait_for(lambda: knows_templates(place), "the janitor has written the templates", 40, check=janitor.check)
        yield Surfaces(place, dispatcher)


async def knows_templates(place: Place) -> bool:
    """Whether INSERT judges the names of templates. Until then it takes any name."""
    admin = await place.database.session("admin")
    return bool(await admin.fetchval("SELECT EXISTS (SELECT FROM dispatch.templates)"))


async def change(place: Place, task_id: int, resource: str, body: Json) -> None:
    """Changes the Job or the Pod of the row, as a person with kubectl does."""
    plane, where = place.control_plane, {"labelSelector": f"dispatcher.internal/task-id={task_id}"}
    path = jobs_path(place) if resource == "jobs" else core_path(place, resource)
    (found,) = (await plane.admin("GET", path, params=where))["items"]
    await plane.admin("PATCH", f"{path}/{found['metadata']['name']}", body)


async def reason(dispatcher: Dispatcher, task_id: int, wanted: str) -> dict[str, Any]:
    """The explanation, once it has this reason."""

    async def has_it() -> dict[str, Any] | None:
        status, found = await dispatcher.explain(task_id)
        return found if status == 200 and found["reason"] == wanted else None

    found: dict[str, Any] | None = await wait_for(has_it, f"{task_id} waits for {wanted}", check=dispatcher.check)
    assert found is not None
    return found
