"""Ends objects: bounded, with preconditions, each outcome counted. A failed call is planned again, not retried."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from dispatcher.model.jobs import ApiAnswer, End
from dispatcher.runtime.clock import Clock, elapsed
from dispatcher.runtime.metrics import SWEEP_DELETES

log = structlog.get_logger(component="sweep.remove")

AT_A_TIME: Final = 8
AGAIN_SECONDS: Final = 10
"""An object is not ended again for so long, because the watch may still have to show the effect."""


class Ends(Protocol):
    """The call to the cluster that a remover needs."""

    async def end(self, end: End) -> ApiAnswer: ...


class Remover:
    """Ends objects."""

    def __init__(self, cluster: Ends, refused: Callable[[], None], clock: Clock = elapsed) -> None:
        """`refused` is called when our identity may not end objects any more."""
        self._cluster = cluster
        self._refused = refused
        self._clock = clock
        self._places = asyncio.Semaphore(AT_A_TIME)
        self._sent: dict[str, float] = {}

    async def remove(self, ends: Sequence[End]) -> int:
        """Ends each object unless it was tried within AGAIN_SECONDS. Returns the number of tries."""
        now = self._clock()
        self._sent = {uid: at for uid, at in self._sent.items() if now - at < AGAIN_SECONDS}
        wanted = {end.uid: end for end in ends if end.uid not in self._sent}
        self._sent |= dict.fromkeys(wanted, now)
        async with asyncio.TaskGroup() as group:
            for end in wanted.values():
                group.create_task(self._remove(end))
        return len(wanted)

    async def _remove(self, end: End) -> None:
        async with self._places:
            answer = await self._cluster.end(end)
        outcome = read_end(answer)
        SWEEP_DELETES.labels(outcome).inc()
        if outcome == "forbidden":
            self._refused()
        say = log.info if outcome in {"deleted", "gone"} else log.warning
        say("removed", outcome=outcome, kind=end.kind, job=end.name, cause=end.cause, message=answer.message)


def read_end(answer: ApiAnswer) -> str:
    """Outcome of the call. 404 is a success. 409: the object changed since it was judged, so it is judged anew."""
    if not answer.is_sent:
        return "not-sent"
    if 200 <= answer.status < 300:
        return "deleted"
    return {404: "gone", 409: "changed", 403: "forbidden", 0: "unknown"}.get(answer.status, "failed")
