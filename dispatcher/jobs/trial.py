"""Whether the API server would take the Job of a row, found out without making one.

The janitor knows nothing of what a dispatcher was answered; so it asks itself: a GET of the name, then the same POST
with `dryRun=All`. Only what speaks of the row itself is believed; a full quota, an outage or a missing right says
nothing of it.
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
    """What it needs of the cluster."""

    async def get(self, name: str) -> ApiAnswer: ...
    async def try_create(self, manifest: Manifest) -> ApiAnswer: ...


class Trial:
    """Asks for one row at a time."""

    def __init__(self, jobs: Jobs, site: Site) -> None:
        self._jobs = jobs
        self._site = site

    async def refusal(self, order: Order, templates: Mapping[str, Template | str]) -> Hold | None:
        """Why no Job can be made of this row as it is; None: one can, or it is not known."""
        template = templates[order.task.template]
        assert isinstance(template, Template)  # it was offered
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
