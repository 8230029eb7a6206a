"""A cluster that answers creates, and the site of an installation."""

from __future__ import annotations

from collections.abc import Sequence

from dispatcher.jobs.manifest import JobSite
from dispatcher.model.errors import ClusterAway
from dispatcher.model.jobs import ApiAnswer, Job, Manifest
from dispatcher.settings.definition import PlacementSettings

SITE = JobSite("dispatcher", "work", 3600, PlacementSettings(), {})
ABSENT = ApiAnswer(404, "NotFound")
LOST = ApiAnswer(0, message="timeout")


class Cluster:
    """Gives the listed answers to creates and GETs in turn, and repeats the last one. Records the calls."""

    def __init__(
        self,
        creates: Sequence[ApiAnswer] = (LOST,),
        gets: Sequence[ApiAnswer] = (ABSENT,),
        jobs: Sequence[Job] | None = (),
    ) -> None:
        self.created: list[str] = []
        self.asked: list[str] = []
        self.tried: list[str] = []
        self.trial = ApiAnswer(201)
        self._creates, self._gets, self._jobs = list(creates), list(gets), jobs

    async def create(self, manifest: Manifest) -> ApiAnswer:
        self.created.append(manifest["metadata"]["name"])
        return self._creates.pop(0) if len(self._creates) > 1 else self._creates[0]

    async def try_create(self, manifest: Manifest) -> ApiAnswer:
        self.tried.append(manifest["metadata"]["name"])
        return self.trial

    async def get(self, name: str) -> ApiAnswer:
        self.asked.append(name)
        return self._gets.pop(0) if len(self._gets) > 1 else self._gets[0]

    async def list_task(self, task_id: int) -> list[Job]:
        if self._jobs is None:
            raise ClusterAway("no answer")
        return list(self._jobs)
