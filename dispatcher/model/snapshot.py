"""Views of one moment: the cluster, the first query of the rows, and the pauses that the API server asked for."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from dispatcher.model.cluster import Node, Pod, PodRefusal
from dispatcher.model.jobs import Job
from dispatcher.model.needs import PodNeeds
from dispatcher.model.tasks import Queue
from dispatcher.model.verdicts import Hold


class ClusterView(Struct, frozen=True):
    """The cluster at one moment.

    now: the API server's clock.
    jobs: Jobs by name.
    pods: Pods by name.
    nodes: nodes by name.
    jobs_version: resourceVersion up to which the Jobs are known; empty: not known.
    stale: the part of the view that is too old or missing; empty: none.
    refusals: Jobs whose Pods are refused, by UID.
    made: what Pods of each shape need of a node, as the API server makes them.
    suspensions: why Jobs are suspended, in the words of others, by UID.
    """

    now: datetime
    jobs: Mapping[str, Job]
    pods: Mapping[str, Pod]
    nodes: Mapping[str, Node]
    jobs_version: str = ""
    stale: str = ""
    refusals: Mapping[str, PodRefusal] = {}
    made: Mapping[str, PodNeeds] = {}
    suspensions: Mapping[str, str] = {}

    def has_seen(self, resource_version: str) -> bool:
        """Whether the view is at least as new as a write with this version (KEP-5504: versions are integers)."""
        ours, theirs = self.jobs_version, resource_version
        return ours.isdigit() and theirs.isdigit() and int(ours) >= int(theirs)


class StoreAge(Struct, frozen=True):
    """The age of something that decisions or answers rest on.

    age: seconds since the last sign of life; infinite before the first.
    most: an older one is stale.
    fault: why it must not be used; empty: nothing is known.
    """

    store: str
    age: float
    most: float
    fault: str = ""


class Frame(Struct, frozen=True):
    """The first query of every snapshot of the rows.

    queues: declared queues.
    held: ids of rows that a container holds or held.
    next_due: the next `run_at` in the future; None: no row has one.
    tasks_refused: why no login of containers could report; empty: nothing is known against it.
    """

    queues: Sequence[Queue]
    held: Sequence[int]
    next_due: datetime | None
    tasks_refused: str = ""


class CreatePauses(Struct, frozen=True):
    """Pauses of all creates that the API server's answers ask for.

    api: the hold after throttling, a lost answer or a missing right; None: no pause.
    quota: the hold after an exceeded quota; None: no pause.
    is_probing: a create failed and none has succeeded since, so that one create at a time is sent.
    under_way: number of creates whose answers are awaited.
    """

    api: Hold | None = None
    quota: Hold | None = None
    is_probing: bool = False
    under_way: int = 0

    def places(self, batch: int) -> int:
        """Number of creates that a cycle may begin, at most `batch`."""
        return max(0, 1 - self.under_way) if self.is_probing else batch
