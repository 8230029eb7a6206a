"""The five surfaces that tell why a row waits: SQL, command, HTTP, ConfigMaps and metric."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from dispatcher.model.verdicts import PARKED
from tests.controlplane.api import KubeFault
from tests.controlplane.waiting import wait_for
from tests.rig.commands import command
from tests.rig.dispatching import Dispatcher, Place

SECONDS = 60


class Surfaces:
    """What each surface tells of the rows of one installation."""

    def __init__(self, place: Place, dispatcher: Dispatcher) -> None:
        self._place = place
        self.dispatcher = dispatcher
        self._row: dict[str, Any] = {}

    async def tell(self, task_id: int, reason: str, words: str = "") -> dict[str, Any]:
        """Waits until every surface tells this reason, with these words. Returns the explanation over HTTP."""
        self._row = dict(await self._place.database.task(task_id))
        surfaces = {
            "HTTP": self._http, "the command": self._command, "the ConfigMaps": self._config_maps,
            "the metric": self._metric, "SQL": self._sql,
        }  # fmt: skip
        async with asyncio.TaskGroup() as group:
            waits = [
                group.create_task(self._until(name, surface, task_id, reason, words))
                for name, surface in surfaces.items()
            ]
        found: dict[str, Any] = waits[0].result()
        assert found["whose_turn"]
        assert found["next_step"]
        return found

    async def _until(
        self, name: str, surface: Callable[[int, str, str], Awaitable[Any]], task_id: int, reason: str, words: str
    ) -> Any:
        what = f"{name} tells {reason} {words!r} of task {task_id}"
        try:
            return await wait_for(lambda: surface(task_id, reason, words), what, SECONDS, check=self.dispatcher.check)
        except TimeoutError as late:
            _, told = await self.dispatcher.explain(task_id)
            raise TimeoutError(f"{late}; over HTTP: {told}") from late

    async def _http(self, task_id: int, reason: str, words: str) -> dict[str, Any] | None:
        status, found = await self.dispatcher.explain(task_id)
        return found if status == 200 and found["reason"] == reason and words in found["message"] else None

    async def _command(self, task_id: int, reason: str, words: str) -> bool:
        _, said = await command(self.dispatcher, "explain", task_id)
        return f"  {reason}: " in said and words in said

    async def _config_maps(self, task_id: int, reason: str, words: str) -> bool:
        """The row itself, or its reason among those of its queue."""
        reasons, status = [await self._config_map(name) for name in ("reasons", "status")]
        rows = [row for row in reasons.get("rows", ()) if row[0] == task_id]
        if rows:
            return bool(rows[0][2] == reason and words in reasons["messages"][rows[0][4]])
        queues = [one for one in status.get("queues", ()) if one["queue"] == self._row["queue"]]
        return any(reason in one["reasons"] for one in queues)

    async def _config_map(self, name: str) -> dict[str, Any]:
        path = f"/api/v1/namespaces/{self._place.namespace}/configmaps/dispatcher-{name}"
        try:
            found = await self._place.control_plane.admin("GET", path)
        except KubeFault:
            return {}
        text: dict[str, Any] = json.loads(found["data"][f"{name}.json"])
        return text

    async def _metric(self, _: int, reason: str, __: str) -> bool:
        """Rows that wait are counted by queue. Parked rows that have started are counted as parked, others not."""
        if self._row["status"] == "processing" and reason not in PARKED:
            return True
        waiting = await self.dispatcher.metric("dispatcher_waiting_tasks", queue=self._row["queue"], reason=reason)
        return waiting >= 1 or await self.dispatcher.metric("dispatcher_parked_tasks", reason=reason) >= 1

    async def _sql(self, task_id: int, reason: str, words: str) -> bool:
        team = await self._place.database.session("team_a")
        row = await team.fetchrow("SELECT reason, message FROM dispatch.task_explain WHERE id = $1", task_id)
        return row is not None and row["reason"] == reason and words in row["message"]
