"""`dispatcher cache drop`: an order to the cache keepers, in the ConfigMap {INSTALLATION}-cache-orders."""

from dispatcher.kube.client import KubeClient
from dispatcher.kube.config_maps import ConfigMaps
from dispatcher.kube.credentials import log_in
from dispatcher.model.cache_orders import LASTS, order_entry, over
from dispatcher.model.node_caches import ORDERS
from dispatcher.placement.cache import cache_digest, cache_path
from dispatcher.settings.definition import Settings


async def drop(settings: Settings, which: tuple[str, str], node: str | None, namespace: str | None) -> str:
    """Writes the order, and removes the orders that are over. Returns what was ordered, in words.

    which: queue and key. namespace: of our programs; None: that of the account. Raises ClusterError.
    """
    installation = settings.kube.installation
    digest = cache_digest(installation, *which)
    client = KubeClient(await log_in(settings.kube))
    try:
        maps = ConfigMaps(client, namespace or client.own_namespace or client.namespace, installation)
        known = await maps.read_all(ORDERS)  # the answer sets the clock, too
        name, value = order_entry(digest, node, client.now())
        await maps.change(ORDERS, {**dict.fromkeys(over(known, client.now())), name: value})
    finally:
        await client.close()
    path = cache_path(settings.placement.cache_root or "CACHE_ROOT", installation, digest)
    where = f"on node {node}" if node else "on every node"
    return f"ordered: {path} goes {where} as soon as no Pod uses it, within {LASTS.days} days"
