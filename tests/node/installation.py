"""The installed dispatcher: its rows, what they left in the table `trace`, and its Pods."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tests.controlplane.api import Json
from tests.node.install import JOBS, OURS, Shell, states
from tests.node.site import Site
from tests.rig.postgres import Database, Record

TRACE: Final = """
CREATE TABLE public.trace
    (task_id bigint, attempt int, launch int, pod text, what text, at timestamptz DEFAULT clock_timestamp());
CREATE TABLE public.released (task_id bigint);
GRANT INSERT ON public.trace TO dispatch_task;
GRANT SELECT ON public.released TO dispatch_task;
"""
ENDED: Final = ("succeeded", "failed", "cancelled")


class Installation:
    """`site`, `database` and `shell` are those that the dispatcher was installed with."""

    def __init__(self, site: Site, database: Database, shell: Shell) -> None:
        self.site = site
        self.shell = shell
        self.database = database

    async def prepare(self) -> None:
        admin = await self.database.session("admin")
        await admin.execute(TRACE)

    async def insert(
        self, *words: object, template: str = "python", spec: Mapping[str, str] | None = None, **columns: object
    ) -> int:
        """A row whose container runs the task program with these words. `spec`: more of what the row asks for."""
        asked = {"args": [str(word) for word in words], **(spec or {})}
        return await self.database.insert_task("team_a", template=template, spec=asked, **columns)

    async def ended(self, task_id: int, seconds: float = 60) -> Record:
        """The row, once it has ended."""

        async def is_over() -> Record | None:
            self.site.check()
            row = await self.database.task(task_id)
            return row if row["status"] in ENDED else None

        try:
            found = await self.site.plane.wait_for(is_over, f"the end of task {task_id}", seconds)
        except TimeoutError as late:
            late.add_note(await states(self.site, JOBS))
            late.add_note(await states(self.site, OURS))
            raise
        assert found is not None
        return found

    async def traces(self, task_ids: Iterable[int]) -> dict[int, Counter[str]]:
        """How often each task began and ended its work."""
        admin = await self.database.session("admin")
        rows = await admin.fetch("SELECT task_id, what FROM public.trace WHERE task_id = ANY ($1)", list(task_ids))
        found: dict[int, Counter[str]] = {task_id: Counter() for task_id in task_ids}
        for row in rows:
            found[row["task_id"]][row["what"]] += 1
        return found

    async def pods(self, namespace: str, **labels: str) -> list[Json]:
        return await self._listed(f"/api/v1/namespaces/{namespace}/pods", labels)

    async def jobs(self, namespace: str, **labels: str) -> list[Json]:
        return await self._listed(f"/apis/batch/v1/namespaces/{namespace}/jobs", labels)

    async def _listed(self, path: str, labels: Mapping[str, str]) -> list[Json]:
        selector = ",".join(f"{name.replace('_', '-')}={value}" for name, value in labels.items())
        found = await self.site.plane.api.request("GET", path, params={"labelSelector": selector})
        items: list[Json] = found["items"]
        return items

    async def history(self, task_id: int) -> list[dict[str, Any]]:
        """The launches of the row, as its submitter reads them."""
        team = await self.database.session("team_a")
        query = "SELECT * FROM dispatch.task_history WHERE task_id = $1 ORDER BY attempt, launch"
        return [dict(row) for row in await team.fetch(query, task_id)]
