"""Launches, orders and verdicts: the values between judging a row and making its Job."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from dispatcher.model.amounts import Amounts
from dispatcher.model.cluster import Pod
from dispatcher.model.jobs import End, Job
from dispatcher.model.needs import PodNeeds
from dispatcher.model.placement import Placement
from dispatcher.model.tasks import Request, Task
from dispatcher.model.verdicts import Hold


class Offer(Struct, frozen=True):
    """The offer of a template to a kind of row that keeps the template's bounds.

    image: image of the task's container.
    shape: digest of resources and placement constraints.
    template: name of the template.
    needs: what its Pods need of a node; None: not known.
    """

    image: str
    shape: str
    template: str
    needs: PodNeeds | None = None


class PodKind(Struct, frozen=True):
    """What Pods of launches have in common. `shape`, `needs`: those of their offer."""

    queue: str
    submitted_by: str
    shape: str
    needs: PodNeeds | None


class InFlight(Struct, frozen=True):
    """How many unfinished Jobs and unseen creates there are of each kind.

    every: all of them.
    unplaced: those whose Pods have no node yet, and need one.
    ended: those whose Pods have ended, so that they hold no room.
    unseen: number of creates that the view does not show yet.
    podless: number of unfinished Jobs that should have a Pod and have none.
    """

    every: Mapping[PodKind, int] = {}
    unplaced: Mapping[PodKind, int] = {}
    ended: Mapping[PodKind, int] = {}
    unseen: int = 0
    podless: int = 0

    @property
    def with_room(self) -> Mapping[PodKind, int]:
        """Those that hold room on nodes, or ask for it."""
        return {pod: left for pod, count in self.every.items() if (left := count - self.ended.get(pod, 0))}


class ToCome(Struct, frozen=True):
    """How many Jobs and Pods of each kind ResourceQuotas may not count yet.

    pods: Pods of Jobs that have none yet.
    jobs: Jobs, each with its Pod, that the view does not show yet.
    """

    pods: Mapping[PodKind, int] = {}
    jobs: Mapping[PodKind, int] = {}


class Probe(Struct, frozen=True):
    """A Job whose Pod waits for a node."""

    job: Job
    pod: Pod


class Run(Struct, frozen=True):
    """A Pod of ours on a node.

    asks: its requests.
    ends_at: when its run limit ends it at the latest, by the API server's clock.
    """

    node: str
    asks: Amounts
    ends_at: datetime


class Ask(StrEnum):
    """The question to the API server before a launch, because a view may lag (docs/protocol.md, section 4)."""

    NOTHING = "nothing"
    THAT_JOB = "that-job"
    ALL_JOBS = "all-jobs"


class Launch(Struct, frozen=True):
    """The next launch of a row.

    number: number of the launch within its attempt.
    unstarted: earlier launches of the attempt that never started.
    disrupted: earlier launches of the attempt that were disrupted.
    ask: the question to ask before the create.
    is_repeat: the same POST was sent before, and its answer never came.
    unplaced: earlier launches of the attempt that got no node and were taken back.
    """

    number: int
    unstarted: int = 0
    disrupted: int = 0
    ask: Ask = Ask.NOTHING
    is_repeat: bool = False
    unplaced: int = 0


class Order(Struct, frozen=True):
    """One launch of one row, with all inputs of its Job.

    task: the row.
    request: the row's own values for the container.
    launch: the launch.
    offer: the offer of the row's template.
    database_id: the database that the row is from.
    placement: the choice of nodes.
    start_key: key by which the container proves that it belongs to the row.
    """

    task: Task
    request: Request
    launch: Launch
    offer: Offer
    database_id: str
    placement: Placement = Placement()
    start_key: str = ""


class JobsVerdict(Struct, frozen=True):
    """The verdict of the table of outcomes about a row and its Jobs (docs/protocol.md, section 6).

    verdict: the next launch, or a hold; None: there is nothing to do.
    ends: objects to delete.
    seen: states that have no timestamp of their own. Cycles remember when each was seen first.
    """

    verdict: Launch | Hold | None
    ends: tuple[End, ...] = ()
    seen: tuple[str, ...] = ()
