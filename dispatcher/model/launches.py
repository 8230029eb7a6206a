"""What a launch is made from, and what a row and its Jobs mean together."""

from enum import StrEnum

from msgspec import Struct

from dispatcher.model.jobs import End
from dispatcher.model.placement import Placement
from dispatcher.model.tasks import Request, Task
from dispatcher.model.verdicts import Hold


class Offer(Struct, frozen=True):
    """What a kind of row would get: the bounds of its template allow it."""

    image: str
    shape: str
    template: str


class Ask(StrEnum):
    """What has to be asked live before a launch, because a view may lag (docs/protocol.md, section 4)."""

    NOTHING = "nothing"
    THAT_JOB = "that-job"
    ALL_JOBS = "all-jobs"


class Launch(Struct, frozen=True):
    """The next launch of a row: its number, what its Job remembers of those before, what to ask first."""

    number: int
    unstarted: int = 0
    disrupted: int = 0
    ask: Ask = Ask.NOTHING
    is_repeat: bool = False  # the same POST was sent before, and its answer never came


class Order(Struct, frozen=True):
    """One launch of one row of one database; `start_key`: what its container proves itself with."""

    task: Task
    request: Request
    launch: Launch
    offer: Offer
    database_id: str
    placement: Placement = Placement()
    start_key: str = ""


class JobsVerdict(Struct, frozen=True):
    """What a row and its Jobs mean together (docs/protocol.md, section 6).

    verdict: the next launch, a hold, or None when there is nothing to do.
    ends: objects to delete.
    seen: states without a time of their own; their first sighting is remembered from cycle to cycle.
    """

    verdict: Launch | Hold | None
    ends: tuple[End, ...] = ()
    seen: tuple[str, ...] = ()
