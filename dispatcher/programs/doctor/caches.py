"""Reads what the API server tells of the cache keepers."""

from datetime import datetime, timedelta
from typing import Final

from dispatcher.doctor.caches import Facts, Keepers
from dispatcher.doctor.cluster import Unread
from dispatcher.doctor.verbs import CACHE_KEEPER, NODE_EVENTS, Site, account_of
from dispatcher.programs.cache_keeper import DISK_FULL
from dispatcher.programs.doctor.reading import Json, Reading, in_namespace

RECENT: Final = timedelta(hours=1)


async def look(reading: Reading, site: Site) -> Facts:
    """Raises ClusterAway."""
    return Facts(await keepers_of(reading, site), await full_disks(reading))


async def keepers_of(reading: Reading, site: Site) -> Keepers | Unread:
    name = account_of(CACHE_KEEPER, site)
    found = await reading.get(in_namespace("/apis/apps/v1", site.ours, "daemonsets", name))
    if isinstance(found, Unread):
        return found
    status = found.get("status", {})
    return Keepers(status.get("desiredNumberScheduled", 0), status.get("numberReady", 0))


async def full_disks(reading: Reading) -> dict[str, str] | Unread:
    found = await reading.each(in_namespace("/api/v1", NODE_EVENTS, "events"), fieldSelector=f"reason={DISK_FULL}")
    if isinstance(found, Unread):
        return found
    since = reading.client.now() - RECENT
    return {one["involvedObject"].get("name", ""): one.get("message", "") for one in found if last_of(one) >= since}


def last_of(event: Json) -> datetime:
    return datetime.fromisoformat(event.get("lastTimestamp") or event["metadata"]["creationTimestamp"])
