"""Which waiting rows the API server would not take: the janitor asks with a dry run, and remembers the answers.

A refusal counts only once it has stood for a while and was said again: an admission webhook that fails for a minute
must not end anybody's rows.
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
    """What the API server said of a row: since when, and when it said so last. No hold: it would take it."""

    hold: Hold | None
    since: float
    said_at: float


class Trials:
    """Answers by (task, attempt)."""

    def __init__(self, trial: Trial, steady_seconds: float) -> None:
        """`steady_seconds`: how long a refusal has to stand."""
        self._trial = trial
        self._steady_seconds = steady_seconds
        self._tried: dict[tuple[int, int], Tried] = {}

    def forget(self, *, everything: bool) -> None:
        """Drops old answers, or all of them: the templates have changed."""
        now = elapsed()
        kept = {} if everything else self._tried
        self._tried = {key: tried for key, tried in kept.items() if now - tried.said_at < REMEMBERED_SECONDS}

    def is_due(self, row: IndexedRow) -> bool:
        """True: the row was not tried within the hour, or its refusal is to be heard again."""
        tried = self._tried.get((row.id, row.attempt))
        return tried is None or (tried.hold is not None and elapsed() - tried.since >= self._steady_seconds)

    async def ask(self, orders: Sequence[Order], templates: Mapping[str, Template | str]) -> None:
        for order in orders:
            key, now = (order.task.id, order.task.attempt), elapsed()
            hold, before = await self._trial.refusal(order, templates), self._tried.get(key)
            same = before is not None and before.hold is not None and hold is not None
            self._tried[key] = Tried(hold, before.since if before and same else now, now)

    def confirmed(self, orders: Sequence[Order], began: float) -> dict[int, Hold]:
        """Refusals that have stood for a while, and were said again since `began`."""
        answers = {order.task.id: self._tried[order.task.id, order.task.attempt] for order in orders}
        return {
            id_: tried.hold for id_, tried in answers.items()
            if tried.hold is not None and tried.said_at >= began and tried.said_at - tried.since >= self._steady_seconds
        }  # fmt: skip
