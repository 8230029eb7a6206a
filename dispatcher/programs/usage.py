"""Joins rows, Prometheus and memory to learn the real use of cache keys. Without a Prometheus URL it does nothing."""

from collections.abc import Mapping, Sequence

from dispatcher.model.cache_history import Run, Use
from dispatcher.pg.connect import Session
from dispatcher.pg.tasks import look
from dispatcher.placement.uses import Key, Uses
from dispatcher.prometheus.client import Prometheus
from dispatcher.runtime.rounds import Rounds, Wake


class Usage:
    """`session`: a database session of its own, so that its queries do not delay a cycle."""

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
        """The known uses of a key, from memory. Empty: not known yet."""
        return self._uses.of(key) if self._prometheus else ()

    async def _runs(self, keys: Sequence[Key]) -> Mapping[Key, Sequence[Run]]:
        async with look(self._session) as rows:
            return await rows.runs(keys)

    async def _ask(self, run: Run) -> Use | None:
        assert self._prometheus is not None  # the rounds run only with a Prometheus
        return await self._prometheus.use_of(self._namespace, run.pod, run.began, run.ended)
