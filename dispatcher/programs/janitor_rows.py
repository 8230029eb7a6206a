"""Reads the rows of a janitor's round: rows with Jobs, rows that a container holds, refused rows and untried rows.

Submitters take turns, so that the rows of one submitter never displace the rows of another.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import zip_longest
from typing import Final, TypeVar

from msgspec import Struct

from dispatcher.admission.kinds import learn_kinds
from dispatcher.admission.orders import OrderInputs, make_order
from dispatcher.jobs.catalog import Catalog
from dispatcher.jobs.observed import due_at
from dispatcher.jobs.picture import JobsPicture
from dispatcher.model.cache_history import CacheHistory
from dispatcher.model.launches import Launch, Offer, Order
from dispatcher.model.tasks import IndexedRow, Request, Task
from dispatcher.model.verdicts import Hold
from dispatcher.pg.tasks import Look
from dispatcher.placement.placing import Placing
from dispatcher.programs.janitor_trials import Trials

T = TypeVar("T")
CLOSED_AT_ONCE: Final = 200
TRIED_AT_ONCE: Final = 10
LOOKED_AT: Final = 50_000
"""Waiting rows that a round judges by their template, in equal parts for each submitter in a queue."""
OLDEST: Final = 200
"""Waiting rows without a Job that may be tried in a round, oldest first. Each row is tried at most once an hour."""


class Read(Struct, frozen=True):
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
    untried: Sequence[Order]


class RowReader:
    """Reads the rows of a round. Between rounds it keeps the ids of rows that another transaction had locked."""

    def __init__(self, catalog: Catalog, trials: Trials, placing: Placing, patience: timedelta) -> None:
        self._catalog = catalog
        self._trials = trials
        self._placing = placing
        self._patience = patience
        self._locked: frozenset[int] = frozenset()

    async def read(self, rows: Look, picture: JobsPicture, *, are_steady: bool) -> Read:
        """`are_steady`: the templates have been the same for long enough to fail rows by them."""
        queues = [queue.name for queue in rows.frame.queues if queue.name != "*"]
        keys = await rows.submitters(queues)
        waiting = await rows.indexed_rows_of(dict.fromkeys(keys, max(CLOSED_AT_ONCE, LOOKED_AT // max(1, len(keys)))))
        refused = await self._refused(rows, waiting) if are_steady else {}
        able = [row for row in waiting if self._trials.is_due(row) and self._is_offered(row)]
        oldest = [row.id for row in self.in_turn(able, id_and_submitter)[:OLDEST]]
        tasks = await rows.tasks(sorted({*rows.frame.held, *picture.jobs, *refused, *oldest}))
        untried = [task for task in map(tasks.get, oldest) if task and self._may_be_tried(picture, task)]
        requests = await rows.requests([task.id for task in untried[:TRIED_AT_ONCE]])
        orders = [order for task in untried if (order := self._order(task, requests, rows.database_id))]
        digests = await rows.run_digests(list(tasks))
        return Read(picture, tasks, digests, refused, orders)

    def in_turn(self, rows: Sequence[T], whose: Callable[[T], tuple[int, str]]) -> list[T]:
        """The rows in turns of their submitters, oldest rows first. `whose`: returns a row's (id, submitter).

        Rows that another transaction had locked come last, so that they do not hide other rows.
        """
        own = defaultdict(list)
        for row in sorted(rows, key=lambda row: (whose(row)[0] in self._locked, whose(row)[0])):
            own[whose(row)[1]].append(row)
        return [row for rank in zip_longest(*own.values()) for row in rank if row is not None]

    def note_lock(self, task_id: int, *, is_locked: bool) -> None:
        """Stores whether another transaction had locked the row when it was to be closed."""
        self._locked = self._locked - {task_id} | ({task_id} if is_locked else set())

    def _is_offered(self, row: IndexedRow) -> bool:
        return isinstance(self._catalog.known_offer(row.kind), Offer)

    async def _refused(self, rows: Look, found: Sequence[IndexedRow]) -> dict[int, Hold]:
        """Rows that their template refuses, with their holds. Oldest first, in turns of submitters."""
        unknown = {row.kind: row.id for row in found if self._catalog.known_offer(row.kind) is None}
        await learn_kinds(rows, self._catalog, list(unknown.values()))
        offers = {row.kind: self._catalog.known_offer(row.kind) for row in found}
        refused = self.in_turn([row for row in found if isinstance(offers[row.kind], Hold)], id_and_submitter)
        return {row.id: offer for row in refused[:CLOSED_AT_ONCE] if isinstance(offer := offers[row.kind], Hold)}

    def _may_be_tried(self, picture: JobsPicture, task: Task) -> bool:
        """Whether the row has no Job, and has been due for so long that a person could have acted."""
        return not picture.jobs_of(task) and picture.cluster.now - due_at(task) >= self._patience

    def _order(self, task: Task, requests: Mapping[int, Request], database_id: str) -> Order | None:
        request, offer = requests.get(task.id), self._catalog.known_offer(task.kind)
        if request is None or not isinstance(offer, Offer):
            return None
        inputs = OrderInputs(database_id, None, self._placing.plan)
        return make_order(task, request, (Launch(1), offer), CacheHistory(), inputs)


def id_and_submitter(row: IndexedRow) -> tuple[int, str]:
    return row.id, row.submitted_by
