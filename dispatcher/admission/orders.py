"""Launches become orders: with what their Jobs are made from, and what earlier runs of their cache keys tell."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from dispatcher.admission.gates import Contender
from dispatcher.model import Launch, Offer, Order, Request
from dispatcher.past import Past, Placement, Use

Key = tuple[str, str]
"""Queue and cache key."""


class Histories(Protocol):
    """The rows, as far as they are asked here."""

    database_id: str

    async def requests(self, ids: Sequence[int]) -> dict[int, Request]: ...
    async def histories(self, keys: Sequence[Key]) -> dict[Key, tuple[str, ...]]: ...


class Places(Struct, frozen=True):
    """Where launches are placed, and what is remembered of a key's uses; asking for that never waits."""

    plan: Callable[[str, Request, Past], Placement]
    uses: Callable[[Key], tuple[Use, ...]]


async def make_orders(
    rows: Histories, launches: Sequence[Contender], requests: Mapping[int, Request], places: Places
) -> list[Order]:
    """In the order of the launches; one query for those that were not read yet, and one for all histories."""
    missing = [one.task.id for one in launches if one.task.id not in requests]
    known = {**requests, **(await rows.requests(missing) if missing else {})}
    keys = {
        one.task.id: (one.task.queue, key) for one in launches if (key := cache_key(known, one.task.id)) is not None
    }
    nodes = await rows.histories(sorted(set(keys.values()))) if keys else {}
    pasts = {id_: Past(nodes.get(key, ()), places.uses(key)) for id_, key in keys.items()}
    return [
        order for one in launches
        if (order := make_order(one, known.get(one.task.id), pasts, (rows.database_id, places)))
    ]  # fmt: skip


def cache_key(requests: Mapping[int, Request], task_id: int) -> str | None:
    request = requests.get(task_id)
    return None if request is None else request.cache_key


def make_order(
    contender: Contender, request: Request | None, pasts: Mapping[int, Past], where: tuple[str, Places]
) -> Order | None:
    task, launch, offer = contender.task, contender.standing.verdict, contender.offer
    if request is None or not isinstance(launch, Launch) or not isinstance(offer, Offer):
        return None
    database_id, places = where
    placement = places.plan(task.queue, request, pasts.get(task.id, Past()))
    return Order(task, request, launch, offer, database_id, placement)
