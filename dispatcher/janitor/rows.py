"""Reads the rows of a janitor's round, and asks the API server by dry runs whether it would accept their Jobs.

`Trial`: the janitor does not see the answers that a dispatcher got. So it sends a GET of the name, then the POST of a
dispatcher with `dryRun=All`. Only answers about the row itself count. A full quota, an outage or a missing right does
not count.

`Trials`: remembers the refusals. A refusal counts only if the API server repeats it after a while. An admission webhook
that fails for a minute must not end rows.

`RowReader`: reads rows with Jobs, rows that a container holds, refused rows and untried rows. Submitters take turns, so
that the rows of one submitter never displace the rows of another.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import zip_longest
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from dispatcher.admission.heads import learn_kinds
from dispatcher.admission.launch_inputs import OrderInputs, make_order
from dispatcher.jobs.catalog import Catalog
from dispatcher.jobs.manifest import JobSite
from dispatcher.jobs.memory import is_ours, refusal_of
from dispatcher.jobs.observed import due_at
from dispatcher.jobs.picture import JobsPicture
from dispatcher.jobs.refusals import OF_THE_ROW, is_absent, read_create
from dispatcher.jobs.submit import build
from dispatcher.jobs.templates import Template
from dispatcher.model.caches import CacheHistory
from dispatcher.model.jobs import ApiAnswer, Manifest
from dispatcher.model.launches import Launch, LaunchSpec, Offer, name_of
from dispatcher.model.tasks import IndexedRow, Request, Task
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.pg.tasks import TaskSnapshot
from dispatcher.placement.placing import PlacementPolicy
from dispatcher.runtime.clock import elapsed


class TrialCalls(Protocol):
    """The calls of the Jobs API that `Trial` needs."""

    async def get(self, name: str) -> ApiAnswer: ...
    async def try_create(self, manifest: Manifest) -> ApiAnswer: ...


class Trial:
    """Tries one row at a time."""

    def __init__(self, jobs: TrialCalls, site: JobSite) -> None:
        self._jobs = jobs
        self._site = site

    async def refusal(self, order: LaunchSpec, templates: Mapping[str, Template | str]) -> Hold | None:
        """Why no Job can be made of this row as it is; None: a Job can be made, or it is not known."""
        template = templates[order.task.template]
        assert isinstance(template, Template)  # a faulty template has no offer
        manifest, violation = build(order, template, self._site)
        if violation:  # a bug of ours, which makes no Job, says nothing of the row
            return Hold(HoldReason.POLICY_DENIED, violation) if manifest else None
        name = name_of(order, self._site.installation)
        found = await self._jobs.get(name)
        if found.status == 200 and not (found.job and is_ours(order, found.job)):
            return Hold(HoldReason.NAME_COLLISION, f"Job {name} exists and is not this task's")
        if not is_absent(found):
            return None
        answer = await self._jobs.try_create(manifest)
        if (meaning := read_create(answer)) in OF_THE_ROW:
            return refusal_of(meaning, answer)
        return None


REMEMBERED_SECONDS: Final = 3600
"""Seconds for which an answer is remembered."""


class RowTrials(Struct, frozen=True):
    """The answers of the API server to the dry runs of one row.

    hold: the last refusal; None: the API server would accept the row.
    since: time of the first of these answers, in seconds of this process's clock.
    said_at: time of the last answer.
    """

    hold: Hold | None
    since: float
    said_at: float


class Trials:
    """Answers by (task, attempt)."""

    def __init__(self, trial: Trial, steady_seconds: float) -> None:
        """`steady_seconds`: time after which a refusal must be repeated to count."""
        self._trial = trial
        self._steady_seconds = steady_seconds
        self._tried: dict[tuple[int, int], RowTrials] = {}

    def forget(self, *, everything: bool) -> None:
        """Drops old answers. `everything`: drops all answers, because the templates changed."""
        now = elapsed()
        kept = {} if everything else self._tried
        self._tried = {key: tried for key, tried in kept.items() if now - tried.said_at < REMEMBERED_SECONDS}

    def is_due(self, row: IndexedRow) -> bool:
        """Whether to try the row: it has no answer, or its refusal is old enough to be repeated."""
        tried = self._tried.get((row.id, row.attempt))
        return tried is None or (tried.hold is not None and elapsed() - tried.since >= self._steady_seconds)

    async def ask(self, orders: Sequence[LaunchSpec], templates: Mapping[str, Template | str]) -> None:
        """Tries the rows, all at the same time: a webhook may be silent for one team, and the round is that of all."""
        await asyncio.gather(*(self._ask(order, templates) for order in orders))

    async def _ask(self, order: LaunchSpec, templates: Mapping[str, Template | str]) -> None:
        key, now = (order.task.id, order.task.attempt), elapsed()
        hold, before = await self._trial.refusal(order, templates), self._tried.get(key)
        same = before is not None and before.hold is not None and hold is not None
        self._tried[key] = RowTrials(hold, before.since if before and same else now, now)

    def confirmed(self, orders: Sequence[LaunchSpec], began: float) -> dict[int, Hold]:
        """Refusals by task that are older than `steady_seconds`, and were repeated since `began`."""
        answers = {order.task.id: self._tried[order.task.id, order.task.attempt] for order in orders}
        return {
            id_: tried.hold for id_, tried in answers.items()
            if tried.hold is not None and tried.said_at >= began and tried.said_at - tried.since >= self._steady_seconds
        }  # fmt: skip


T = TypeVar("T")
CLOSED_AT_ONCE: Final = 200
"""Refused rows that one round reads, at most."""
TRIED_AT_ONCE: Final = 10
"""Rows that one round tries, at most, at the same time."""
LOOKED_AT: Final = 50_000
"""Waiting rows that a round judges by their template, at most, in equal parts for each submitter in a queue."""
OLDEST: Final = 200
"""Waiting rows without a Job, the oldest ones, that may be tried in a round. Each is tried at most once an hour."""


class JanitorRows(Struct, frozen=True):
    """The rows as one round read them, after the cluster was seen.

    picture: the picture by which the rows are judged.
    tasks: the rows that may have to be closed.
    run_digests: digests of the rows' run tokens.
    refusals: why no Job can be made of a row, by task.
    untried: first launches to try with a dry run.
    """

    picture: JobsPicture
    tasks: Mapping[int, Task]
    run_digests: Mapping[int, bytes]
    refusals: Mapping[int, Hold]
    untried: Sequence[LaunchSpec]


class RowReader:
    """Reads the rows of a round.

    Between rounds it keeps the ids of rows that another transaction had locked, and since when it sees later attempts.
    """

    def __init__(self, catalog: Catalog, trials: Trials, placing: PlacementPolicy, patience: timedelta) -> None:
        self._catalog = catalog
        self._trials = trials
        self._placing = placing
        self._patience = patience
        self._locked: frozenset[int] = frozenset()
        self._seen_at: dict[tuple[int, int], float] = {}

    async def read(self, rows: TaskSnapshot, picture: JobsPicture, *, are_steady: bool) -> JanitorRows:
        """The rows. `are_steady`: the templates have been the same for long enough to fail rows by them."""
        queues = [queue.name for queue in rows.frame.queues if queue.name != "*"]
        keys = await rows.submitters(queues)
        windows = dict.fromkeys(keys, max(CLOSED_AT_ONCE, LOOKED_AT // max(1, len(keys))))
        waiting = self._known_for_long(await rows.indexed_rows_of(windows))
        refused = await self._refused(rows, waiting) if are_steady else {}
        able = [row for row in waiting if self._trials.is_due(row) and self._is_offered(row)]
        oldest = [row.id for row in self.in_turn(able, id_and_submitter)[:OLDEST]]
        tasks = await rows.tasks(sorted({*rows.frame.held, *picture.jobs, *refused, *oldest}))
        untried = [task for task in map(tasks.get, oldest) if task and self._may_be_tried(picture, task)]
        requests = await rows.requests([task.id for task in untried[:TRIED_AT_ONCE]])
        orders = [order for task in untried if (order := self._order(task, requests, rows.database_id))]
        digests = await rows.run_digests(list(tasks))
        return JanitorRows(picture, tasks, digests, refused, orders)

    def in_turn(self, rows: Sequence[T], whose: Callable[[T], tuple[int, str]]) -> list[T]:
        """The rows in turns of their submitters, oldest rows first. `whose`: returns a row's (id, submitter).

        Rows that another transaction had locked come last, so that they do not hide other rows.
        """
        own = defaultdict(list)
        for row in sorted(rows, key=lambda row: (whose(row)[0] in self._locked, whose(row)[0])):
            own[whose(row)[1]].append(row)
        return [row for rank in zip_longest(*own.values()) for row in rank if row is not None]

    def note_lock(self, task_id: int, *, is_locked: bool) -> None:
        """Remembers whether another transaction had locked the row when it was to be closed."""
        self._locked = self._locked - {task_id} | ({task_id} if is_locked else set())

    def _known_for_long(self, rows: Sequence[IndexedRow]) -> list[IndexedRow]:
        """The rows that may have waited for `patience`. Nothing in a row tells when somebody has retried it."""
        now, again = elapsed(), [(row.id, row.attempt) for row in rows if row.attempt > 1]
        self._seen_at = {key: self._seen_at.get(key, now) for key in again}
        fresh = {key for key, at in self._seen_at.items() if now - at < self._patience.total_seconds()}
        return [row for row in rows if (row.id, row.attempt) not in fresh]

    def _is_offered(self, row: IndexedRow) -> bool:
        return isinstance(self._catalog.known_offer(row.kind), Offer)

    async def _refused(self, rows: TaskSnapshot, found: Sequence[IndexedRow]) -> dict[int, Hold]:
        """Rows that their template refuses, with their holds. Oldest first, in turns of submitters."""
        unknown = {row.kind: row.id for row in found if self._catalog.known_offer(row.kind) is None}
        await learn_kinds(rows, self._catalog, list(unknown.values()))
        offers = {row.kind: self._catalog.known_offer(row.kind) for row in found}
        refused = self.in_turn([row for row in found if isinstance(offers[row.kind], Hold)], id_and_submitter)
        return {row.id: offer for row in refused[:CLOSED_AT_ONCE] if isinstance(offer := offers[row.kind], Hold)}

    def _may_be_tried(self, picture: JobsPicture, task: Task) -> bool:
        """Whether the row has no Job, and has been due for so long that a person could have acted."""
        return not picture.jobs_of(task) and picture.cluster.now - due_at(task) >= self._patience

    def _order(self, task: Task, requests: Mapping[int, Request], database_id: str) -> LaunchSpec | None:
        request, offer = requests.get(task.id), self._catalog.known_offer(task.kind)
        if request is None or request.fault or not isinstance(offer, Offer):
            return None
        inputs = OrderInputs(database_id, None, self._placing.plan)
        return make_order(task, request, (Launch(1), offer), CacheHistory(), inputs)


def id_and_submitter(row: IndexedRow) -> tuple[int, str]:
    return row.id, row.submitted_by
