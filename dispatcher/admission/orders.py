"""Makes an order for each launch: the inputs of its Job, with the history of its cache key."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from dispatcher.admission.drawing import Draw, Key
from dispatcher.admission.drawing import Order as NodeOrder
from dispatcher.admission.gates import Candidate
from dispatcher.admission.room import Room
from dispatcher.model.cache_history import CacheHistory, Use
from dispatcher.model.identity import NO_KEY, start_key
from dispatcher.model.launches import Launch, Offer, Order
from dispatcher.model.needs import PodNeeds
from dispatcher.model.placement import Placement
from dispatcher.model.tasks import Request, Task


class Histories(Protocol):
    """The queries for requests, histories and the start secret."""

    database_id: str

    async def start_secret(self) -> tuple[bytes, bytes]: ...
    async def requests(self, ids: Sequence[int]) -> dict[int, Request]: ...
    async def histories(self, keys: Sequence[Key]) -> dict[Key, dict[str, float]]: ...


PlanPlacement = Callable[[str, Request, CacheHistory], Placement]


class PlacementPlanner(Struct, frozen=True):
    """How launches are placed. No call of it waits.

    plan: the placement of a row of a queue, by its cache history.
    uses: real use of earlier runs of a cache key.
    warm: the warm nodes of a cache key, the best first. Given: the nodes where it succeeded, the newest first, as
        containers reported them, with the seconds since then. A reported name alone is not believed.
    order: all nodes, in an order of the cache key.
    copies: to how many nodes a cache key is drawn at most.
    """

    plan: PlanPlacement
    uses: Callable[[Key], tuple[Use, ...]]
    warm: Callable[[Key, Mapping[str, float]], tuple[str, ...]]
    order: NodeOrder
    copies: int


class NodesNow(Struct, frozen=True):
    """The nodes in one cycle.

    room: the room at its beginning; None: it is not judged.
    claimed: claimed nodes, with the task of each.
    """

    room: Room | None = None
    claimed: Mapping[str, int] = {}


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
    now: NodesNow,
) -> list[Order]:
    """The orders of the launches. One query reads missing requests, and one query reads all histories."""
    if not launches:
        return []
    missing = [one.task.id for one in launches if one.task.id not in requests]
    known = {**requests, **(await rows.requests(missing) if missing else {})}
    keys = cache_keys([one.task for one in launches], known)
    nodes = await rows.histories(sorted(set(keys.values()))) if keys else {}
    warm = {key: planner.warm(key, nodes.get(key, {})) for key in set(keys.values())}
    draw = Draw(now.room, planner.order, planner.copies)
    histories = {
        one.task.id: history_of(draw.nodes(key, warm[key], needs_of(one)), warm[key], planner.uses(key))
        for one in launches if (key := keys.get(one.task.id))
    }  # fmt: skip
    inputs = OrderInputs(rows.database_id, await rows.start_secret(), planner.plan, now.claimed)
    return [order for one in launches if (order := order_of(one, known.get(one.task.id), histories, inputs))]


def history_of(drawn: tuple[str, ...], warm: Sequence[str], uses: tuple[Use, ...]) -> CacheHistory:
    """The history of a launch. `drawn`: its nodes, the best first; `warm`: those that have the cache."""
    return CacheHistory(drawn, uses, tuple(node for node in drawn if node not in warm))


def cache_keys(tasks: Iterable[Task], requests: Mapping[int, Request]) -> dict[int, Key]:
    """(queue, cache key) by task, for tasks that have a cache key."""
    found = ((task, requests.get(task.id)) for task in tasks)
    return {
        task.id: (task.queue, request.cache_key)
        for task, request in found
        if request is not None and request.cache_key is not None
    }


def needs_of(candidate: Candidate) -> PodNeeds | None:
    return candidate.offer.needs if isinstance(candidate.offer, Offer) else None


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
