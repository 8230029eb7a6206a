"""Joins what is needed to know the real use of cache keys: rows, a Prometheus, a memory. Nothing without a URL."""

from collections.abc import Mapping, Sequence

from dispatcher.model.cache_history import Run, Use
from dispatcher.pg.connect import Session
from dispatcher.pg.tasks import look
from dispatcher.placement.uses import Key, Uses
from dispatcher.prometheus.client import Prometheus
from dispatcher.runtime.rounds import Rounds, Wake


class Usage:
    """`session` is its own: what it reads must not keep a cycle waiting."""

    def __init__(self, prometheus_url: str, session: Session, namespace: str) -> None:
        self._session = session
        self._namespace = namespace
        self._prometheus = Prometheus(prometheus_url) if prometheus_url else None
        wake = Wake()
        self._uses = Uses(self._runs, self._ask, wake.soon)
        self.rounds = (Rounds("usage", self._uses.run_once, wake),) if self._prometheus else ()

    async def close(self) -> None:
        await self._session.close()
        if self._prometheus:
            await self._prometheus.close()

    def of(self, key: Key) -> tuple[Use, ...]:
        """From memory; empty where nothing is known yet."""
        return self._uses.of(key) if self._prometheus else ()

    async def _runs(self, keys: Sequence[Key]) -> Mapping[Key, Sequence[Run]]:
        async with look(self._session) as rows:
            return await rows.runs(keys)

    async def _ask(self, run: Run) -> Use | None:
        assert self._prometheus is not None  # nobody else turns these rounds
        return await self._prometheus.use_of(self._namespace, run.pod, run.began, run.ended)
