"""The ports of a cycle: the cluster, the rows, the Jobs stage, the lease."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol, TypeVar

from msgspec import Struct

from dispatcher.admission.claims import Claim
from dispatcher.admission.heads import Index, Offers
from dispatcher.admission.last_cycle import AskedPicture, LastCycle
from dispatcher.admission.orders import Histories, PlacementPlanner
from dispatcher.admission.room_view import RoomView
from dispatcher.model.jobs import End, LaunchGroup
from dispatcher.model.launches import InFlight, JobsVerdict, Order, Probe, Run, ToCome
from dispatcher.model.quotas import Quota
from dispatcher.model.snapshot import Brakes, ClusterView, Frame
from dispatcher.model.tasks import Request, Task
from dispatcher.runtime.clock import Clock, elapsed


class Rows(Index, Histories, Protocol):
    """The rows in one snapshot of the database."""

    now: datetime
    frame: Frame

    async def tasks(self, ids: Sequence[int]) -> dict[int, Task]: ...
    async def still_waiting(self, ids: Sequence[int]) -> list[int]: ...
    async def waiting(self, ids: Sequence[int]) -> tuple[dict[int, Task], dict[int, Request]]: ...


class RestingRow(Protocol):
    """A row that need not be read."""

    @property
    def attempt(self) -> int: ...
    @property
    def queue(self) -> str: ...
    @property
    def is_waiting(self) -> bool: ...


class Picture(Offers, AskedPicture, Protocol):
    """The Jobs stage's immutable picture of one cycle: judges rows by their Jobs."""

    @property
    def brakes(self) -> Brakes: ...
    def rows_to_read(self) -> set[int]: ...
    def resting(self) -> Mapping[int, RestingRow]: ...
    def in_flight(self) -> InFlight: ...
    def to_come(self) -> ToCome: ...
    def probes(self) -> Iterable[Probe]: ...
    def runs(self) -> Iterable[Run]: ...
    def launch_groups(self, tasks: Mapping[int, Task]) -> tuple[frozenset[LaunchGroup], frozenset[LaunchGroup]]: ...


P = TypeVar("P", bound=Picture)
"""The type of picture that the Jobs stage makes and gets back."""


class Jobs(Protocol[P]):
    """The Jobs stage: makes the picture of a cycle, and sends the orders that were decided by it."""

    def picture(self, view: ClusterView, now: datetime, database_id: str) -> P: ...
    async def launch(self, picture: P, judged: Sequence[tuple[Task, JobsVerdict]], orders: Sequence[Order]) -> int: ...


class Lead(Protocol):
    """The lease, as far as a cycle uses it."""

    def term(self) -> int: ...
    def vacancy(self) -> str: ...


class ClaimObjects(Protocol):
    """Claims as objects of the cluster, so that other people's Pods keep away from the nodes, too."""

    def known(self) -> Mapping[int, str]: ...
    async def keep(self, claims: Sequence[Claim]) -> int: ...


class DispatchPorts(Struct, frozen=True):
    """The adapters that a cycle uses.

    view: the view of the cluster.
    rows: a snapshot of the rows. Its argument bounds the number of rows that a container holds or held.
    not_allowed: rights that our account lacks; empty: none.
    is_listening: whether the database notifies us of new rows.
    lead: the lease.
    remove: deletes objects; returns the number of writes.
    planner: placement of launches.
    room: nodes and their free amounts now; None: room is not judged.
    quotas: the ResourceQuotas of the namespace of Jobs; none if they are not known.
    claims: the claims as NodeReservations; None: nobody enforces them.
    tell: hears of each cycle after it has acted.
    clock: this process's clock, in seconds.
    """

    view: Callable[[], ClusterView]
    rows: Callable[[int], AbstractAsyncContextManager[Rows]]
    not_allowed: Callable[[], str]
    is_listening: Callable[[], bool]
    lead: Lead
    remove: Callable[[Sequence[End]], Awaitable[int]]
    planner: PlacementPlanner
    room: Callable[[], RoomView | None] = lambda: None
    quotas: Callable[[], tuple[Quota, ...]] = tuple
    claims: ClaimObjects | None = None
    tell: Callable[[LastCycle], None] = lambda _: None
    clock: Clock = elapsed
