"""Makes an order for each launch: the inputs of its Job, with the history of its cache key."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from dispatcher.admission.gates import Candidate
from dispatcher.model.cache_history import CacheHistory, Use
from dispatcher.model.identity import NO_KEY, start_key
from dispatcher.model.launches import Launch, Offer, Order
from dispatcher.model.placement import Placement
from dispatcher.model.tasks import Request, Task

Key = tuple[str, str]
"""Queue and cache key."""


class Histories(Protocol):
    """The queries for requests, histories and the start secret."""

    database_id: str

    async def start_secret(self) -> tuple[bytes, bytes]: ...
    async def requests(self, ids: Sequence[int]) -> dict[int, Request]: ...
    async def histories(self, keys: Sequence[Key]) -> dict[Key, tuple[str, ...]]: ...


PlanPlacement = Callable[[str, Request, CacheHistory], Placement]


class PlacementPlanner(Struct, frozen=True):
    """How launches are placed. No call of it waits.

    plan: the placement of a row of a queue, by its cache history.
    uses: real use of earlier runs of a cache key.
    has_shown: whether the API server has shown a node of this name. Containers report names of nodes, and a reported
        name alone is not believed.
    """

    plan: PlanPlacement
    uses: Callable[[Key], tuple[Use, ...]]
    has_shown: Callable[[str], bool]


class OrderInputs(Struct, frozen=True):
    """Inputs that all Jobs of one cycle share.

    database_id: the database that the rows are from.
    secret: secret from which start keys are derived; None: no Job is made.
    plan: the placement of a row of a queue, by its cache history.
    claimed: claimed nodes, with the task of each. Pods of other rows avoid them.
    """

    database_id: str
    secret: tuple[bytes, bytes] | None
    plan: PlanPlacement
    claimed: Mapping[str, int] = {}


async def make_orders(
    rows: Histories,
    launches: Sequence[Candidate],
    requests: Mapping[int, Request],
    planner: PlacementPlanner,
    claimed: Mapping[str, int],
) -> list[Order]:
    """The orders of the launches. One query reads missing requests, and one query reads all histories.

    `claimed`: claimed nodes, with the task of each.
    """
    if not launches:
        return []
    missing = [one.task.id for one in launches if one.task.id not in requests]
    known = {**requests, **(await rows.requests(missing) if missing else {})}
    keys = cache_keys([one.task for one in launches], known)
    nodes = await rows.histories(sorted(set(keys.values()))) if keys else {}
    shown = {key: tuple(filter(planner.has_shown, names)) for key, names in nodes.items()}
    histories = {id_: CacheHistory(shown.get(key, ()), planner.uses(key)) for id_, key in keys.items()}
    inputs = OrderInputs(rows.database_id, await rows.start_secret(), planner.plan, claimed)
    return [order for one in launches if (order := order_of(one, known.get(one.task.id), histories, inputs))]


def cache_keys(tasks: Iterable[Task], requests: Mapping[int, Request]) -> dict[int, Key]:
    """(queue, cache key) by task, for tasks that have a cache key."""
    found = ((task, requests.get(task.id)) for task in tasks)
    return {
        task.id: (task.queue, request.cache_key)
        for task, request in found
        if request is not None and request.cache_key is not None
    }


def order_of(
    candidate: Candidate, request: Request | None, histories: Mapping[int, CacheHistory], inputs: OrderInputs
) -> Order | None:
    launch, offer = candidate.jobs.verdict, candidate.offer
    if request is None or not isinstance(launch, Launch) or not isinstance(offer, Offer):
        return None
    history = histories.get(candidate.task.id, CacheHistory())
    return make_order(candidate.task, request, (launch, offer), history, inputs)


def make_order(
    task: Task, request: Request, launch: tuple[Launch, Offer], history: CacheHistory, inputs: OrderInputs
) -> Order:
    """The order for one launch of a row: all inputs of its Job."""
    placement = avoiding(inputs.plan(task.queue, request, history), task.id, inputs.claimed)
    key = start_key(inputs.secret, task.id, task.created_at) if inputs.secret else NO_KEY
    return Order(task, request, *launch, inputs.database_id, placement, key)


def avoiding(placement: Placement, task_id: int, claimed: Mapping[str, int]) -> Placement:
    """The placement of a Pod that should not take a node which is claimed for another row."""
    avoided = tuple(sorted(node for node, other in claimed.items() if other != task_id))
    if not avoided:
        return placement
    preferred = tuple(node for node in placement.preferred if node not in avoided)
    return msgspec.structs.replace(placement, preferred=preferred, avoided=avoided)
