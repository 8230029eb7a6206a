"""Finds out whether the API server would accept the Job of a row, without making the Job.

The janitor does not see the answers that a dispatcher got. So the janitor sends a GET of the name, then the POST of a
dispatcher with `dryRun=All`. Only answers about the row itself count. A full quota, an outage or a missing right does
not count.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from dispatcher.jobs.answers import Meaning, is_absent, read_create
from dispatcher.jobs.manifest import Site, build_job
from dispatcher.jobs.memory import is_ours
from dispatcher.jobs.policy import check_job
from dispatcher.jobs.templates import Template
from dispatcher.model.identity import name_of
from dispatcher.model.jobs import ApiAnswer, Manifest
from dispatcher.model.launches import Order
from dispatcher.model.verdicts import Hold, HoldReason

OF_THE_ROW: Final = frozenset({Meaning.POISON, Meaning.DENIED})


class Jobs(Protocol):
    """The calls of the Jobs API that `Trial` needs."""

    async def get(self, name: str) -> ApiAnswer: ...
    async def try_create(self, manifest: Manifest) -> ApiAnswer: ...


class Trial:
    """Tries one row at a time."""

    def __init__(self, jobs: Jobs, site: Site) -> None:
        self._jobs = jobs
        self._site = site

    async def refusal(self, order: Order, templates: Mapping[str, Template | str]) -> Hold | None:
        """Why no Job can be made of this row as it is; None: a Job can be made, or it is not known."""
        template = templates[order.task.template]
        assert isinstance(template, Template)  # a faulty template has no offer
        manifest = build_job(order, template, self._site)
        if violation := check_job(manifest, order, template, self._site):
            return Hold(HoldReason.POLICY_DENIED, violation)
        name = name_of(order, self._site.installation)
        found = await self._jobs.get(name)
        if found.status == 200 and not (found.job and is_ours(order, found.job)):
            return Hold(HoldReason.NAME_COLLISION, f"Job {name} exists and is not this task's")
        if not is_absent(found):
            return None
        answer = await self._jobs.try_create(manifest)
        if read_create(answer) in OF_THE_ROW:
            return Hold(HoldReason.POISON, f"{answer.status} {answer.message}")
        return None
