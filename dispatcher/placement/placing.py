"""The placement of one launch, from its row, the settings and its cache key's earlier runs."""

from dispatcher.model.cache_history import CacheHistory
from dispatcher.model.identity import HISTORY_NODES, REAL_RESOURCES
from dispatcher.model.placement import Placement
from dispatcher.model.tasks import Request
from dispatcher.placement.cache import cache_path
from dispatcher.placement.history import MOST_NODES, write_history
from dispatcher.placement.pools import choose_pool
from dispatcher.placement.usage import write_uses
from dispatcher.settings.definition import PlacementSettings


def plan_placement(queue: str, request: Request, history: CacheHistory, settings: PlacementSettings) -> Placement:
    """`history` is empty for a row without a cache key.

    Preferred nodes are only set without a scheduler of our own: then no extender reads the annotations.
    """
    key, notes = request.cache_key, dict[str, str]()
    if history.nodes:
        notes[HISTORY_NODES] = write_history(history.nodes)
    if history.uses:
        notes[REAL_RESOURCES] = write_uses(history.uses)
    return Placement(
        pool=choose_pool(request.spec, settings),
        preferred=() if settings.scheduler_name else history.nodes[:MOST_NODES],
        notes=notes,
        cache_path=cache_path(settings.cache_root, queue, key) if settings.cache_root and key is not None else "",
    )
