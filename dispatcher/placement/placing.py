"""The placement of one launch, from its row, the settings and its cache key's earlier runs."""

from msgspec import Struct

from dispatcher.model.cache_history import CacheHistory
from dispatcher.model.identity import COLD_NODES, HISTORY_NODES, REAL_RESOURCES
from dispatcher.model.placement import Placement
from dispatcher.model.tasks import Request
from dispatcher.placement.cache import cache_digest, cache_path
from dispatcher.placement.history import MOST_NODES, write_history
from dispatcher.placement.pools import choose_pool
from dispatcher.placement.usage import write_uses
from dispatcher.settings.definition import PlacementSettings


class Placing(Struct, frozen=True):
    """How an installation places its Pods."""

    installation: str
    settings: PlacementSettings

    def plan(self, queue: str, request: Request, history: CacheHistory) -> Placement:
        """`history` is empty for a row without a cache key.

        Preferred nodes are only set without a scheduler of our own: then no extender reads the annotations.
        """
        notes = dict[str, str]()
        if history.nodes:
            notes[HISTORY_NODES] = write_history(history.nodes)
        if cold := [node for node in history.nodes[:MOST_NODES] if node in history.cold]:
            notes[COLD_NODES] = write_history(cold)
        if history.uses:
            notes[REAL_RESOURCES] = write_uses(history.uses)
        return Placement(
            pool=choose_pool(request.spec, self.settings),
            preferred=() if self.settings.scheduler_name else history.nodes[:MOST_NODES],
            notes=notes,
            cache_path=self._cache_path(queue, request.cache_key),
        )

    def _cache_path(self, queue: str, key: str | None) -> str:
        root = self.settings.cache_root
        if not root or key is None:
            return ""
        return cache_path(root, self.installation, cache_digest(self.installation, queue, key))
