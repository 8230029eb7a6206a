"""What is asked of kube-scheduler for one launch, from its row, its settings and what is known of earlier runs."""

from dispatcher.model.cache_history import CacheHistory
from dispatcher.model.identity import HISTORY_NODES, REAL_RESOURCES
from dispatcher.model.placement import Placement
from dispatcher.model.tasks import Request
from dispatcher.placement.cache import cache_path
from dispatcher.placement.history import MOST_NODES, write_history
from dispatcher.placement.pools import choose_pool
from dispatcher.placement.usage import write_uses
from dispatcher.settings.definition import PlacementSettings


def plan_placement(queue: str, request: Request, past: CacheHistory, settings: PlacementSettings) -> Placement:
    """Without a cache key there is no past. Preferences are written only where no scheduler of ours reads the notes."""
    key, notes = request.cache_key, dict[str, str]()
    if past.nodes:
        notes[HISTORY_NODES] = write_history(past.nodes)
    if past.uses:
        notes[REAL_RESOURCES] = write_uses(past.uses)
    return Placement(
        pool=choose_pool(request.spec, settings),
        preferred=() if settings.scheduler_name else past.nodes[:MOST_NODES],
        notes=notes,
        cache_path=cache_path(settings.cache_root, queue, key) if settings.cache_root and key is not None else "",
    )
