"""Launches become orders: with what their Jobs are made from, and what earlier runs of their cache keys tell."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from dispatcher.admission.gates import Candidate
from dispatcher.model.cache_history import CacheHistory, Use
from dispatcher.model.identity import start_key
from dispatcher.model.launches import Launch, Offer, Order
from dispatcher.model.placement import Placement
from dispatcher.model.tasks import Request

Key = tuple[str, str]
"""Queue and cache key."""


class Histories(Protocol):
    """The rows, as far as they are asked here."""

    database_id: str

    async def start_secret(self) -> tuple[bytes, bytes]: ...
    async def requests(self, ids: Sequence[int]) -> dict[int, Request]: ...
    async def histories(self, keys: Sequence[Key]) -> dict[Key, tuple[str, ...]]: ...


class PlacementPlanner(Struct, frozen=True):
    """How launches are placed; nothing of it waits.

    plan: the placement of a row of a queue, by its past.
    uses: what earlier runs of a cache key really used.
    has_shown: whether the API server has shown a node of this name; a container's word alone is not believed.
    """

    plan: Callable[[str, Request, CacheHistory], Placement]
    uses: Callable[[Key], tuple[Use, ...]]
    has_shown: Callable[[str], bool]


class Means(Struct, frozen=True):
    """What all Jobs of one cycle are made with."""

    database_id: str
    secret: tuple[bytes, bytes]
    places: PlacementPlanner


async def make_orders(
    rows: Histories, launches: Sequence[Candidate], requests: Mapping[int, Request], places: PlacementPlanner
) -> list[Order]:
    """In the order of the launches; one query for those that were not read yet, and one for all histories."""
    if not launches:
        return []
    missing = [one.task.id for one in launches if one.task.id not in requests]
    known = {**requests, **(await rows.requests(missing) if missing else {})}
    keys = {
        one.task.id: (one.task.queue, key) for one in launches if (key := cache_key(known, one.task.id)) is not None
    }
    nodes = await rows.histories(sorted(set(keys.values()))) if keys else {}
    shown = {key: tuple(filter(places.has_shown, names)) for key, names in nodes.items()}
    pasts = {id_: CacheHistory(shown.get(key, ()), places.uses(key)) for id_, key in keys.items()}
    means = Means(rows.database_id, await rows.start_secret(), places)
    return [order for one in launches if (order := make_order(one, known.get(one.task.id), pasts, means))]


def cache_key(requests: Mapping[int, Request], task_id: int) -> str | None:
    request = requests.get(task_id)
    return None if request is None else request.cache_key


def make_order(
    candidate: Candidate, request: Request | None, pasts: Mapping[int, CacheHistory], means: Means
) -> Order | None:
    task, launch, offer = candidate.task, candidate.standing.verdict, candidate.offer
    if request is None or not isinstance(launch, Launch) or not isinstance(offer, Offer):
        return None
    placement = means.places.plan(task.queue, request, pasts.get(task.id, CacheHistory()))
    key = start_key(means.secret, task.id, task.created_at)
    return Order(task, request, launch, offer, means.database_id, placement, key)
