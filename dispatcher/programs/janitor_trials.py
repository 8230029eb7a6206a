"""Tries waiting rows with a dry run, and remembers which rows the API server refused.

A refusal counts only if the API server repeats it after a while. An admission webhook that fails for a minute must not
end rows.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from dispatcher.jobs.templates import Template
from dispatcher.jobs.trial import Trial
from dispatcher.model.launches import Order
from dispatcher.model.tasks import IndexedRow
from dispatcher.model.verdicts import Hold
from dispatcher.runtime.clock import elapsed

REMEMBERED_SECONDS: Final = 3600


class Tried(Struct, frozen=True):
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
        self._tried: dict[tuple[int, int], Tried] = {}

    def forget(self, *, everything: bool) -> None:
        """Drops old answers. `everything`: drops all answers, because the templates changed."""
        now = elapsed()
        kept = {} if everything else self._tried
        self._tried = {key: tried for key, tried in kept.items() if now - tried.said_at < REMEMBERED_SECONDS}

    def is_due(self, row: IndexedRow) -> bool:
        """Whether to try the row: it has no answer, or its refusal is old enough to be repeated."""
        tried = self._tried.get((row.id, row.attempt))
        return tried is None or (tried.hold is not None and elapsed() - tried.since >= self._steady_seconds)

    async def ask(self, orders: Sequence[Order], templates: Mapping[str, Template | str]) -> None:
        for order in orders:
            key, now = (order.task.id, order.task.attempt), elapsed()
            hold, before = await self._trial.refusal(order, templates), self._tried.get(key)
            same = before is not None and before.hold is not None and hold is not None
            self._tried[key] = Tried(hold, before.since if before and same else now, now)

    def confirmed(self, orders: Sequence[Order], began: float) -> dict[int, Hold]:
        """Refusals by task that are older than `steady_seconds`, and were repeated since `began`."""
        answers = {order.task.id: self._tried[order.task.id, order.task.attempt] for order in orders}
        return {
            id_: tried.hold for id_, tried in answers.items()
            if tried.hold is not None and tried.said_at >= began and tried.said_at - tried.since >= self._steady_seconds
        }  # fmt: skip
