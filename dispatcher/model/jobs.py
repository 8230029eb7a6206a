"""Jobs as decisions see them, what we write to the API server, and its answers. Times are by the API server's clock.

A notice about an object becomes an Event, which `kubectl describe` shows below the object.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Any, Final

from msgspec import Struct

from dispatcher.model.needs import PodNeeds

Manifest = dict[str, Any]
Json = Mapping[str, Any]
"""An object of the API server or of a manifest, only to read; a Manifest may be written."""


class LaunchGroup(Struct, frozen=True):
    """Launches that fail together: the same image under the same template for the same submitter in the same queue.

    A row may be the cause, by its command or by too little memory. So it must not hold the rows of another submitter.
    """

    queue: str
    template: str
    image: str
    submitted_by: str


class Phase(StrEnum):
    """Phase of a Job by its conditions. Counts of Pods are never used: Pods go, conditions stay."""

    ACTIVE = "active"
    FAILING = "failing"  # FailureTarget: its Pod is not gone yet
    COMPLETE = "complete"
    FAILED = "failed"


class EndedBy(StrEnum):
    """Who has ended the Pod of a launch.

    US: we deleted it before its container ran.
    LIMIT: we deleted it, because its container ran over the run limit.
    OTHERS: somebody else deleted it.
    NODE: no node took it: a kubelet rejected it, or somebody deleted it while it had none.
    ITSELF: its container ended with 0, and had not been told to stop.
    SIDECAR: we let its Job fail, because another container kept it after its own had failed.
    """

    US = "us"
    LIMIT = "limit"
    OTHERS = "others"
    NODE = "node"
    ITSELF = "itself"
    SIDECAR = "sidecar"


class LaunchCache(Struct, frozen=True, gc=False):
    """Where the cache of a launch was when its Job was made.

    nodes: the nodes that were preferred for it, the best first.
    cold: those of `nodes` that had no cache yet.
    """

    nodes: tuple[str, ...] = ()
    cold: tuple[str, ...] = ()


class Job(Struct, frozen=True, kw_only=True):
    """A batch/v1 Job of this installation.

    image: image of its task's container, as we asked for it.
    container: name of this container, by an annotation that can hold any text; empty: not known.
    reason, ended_at: reason and time of the condition that gives the phase.
    deleting_since: when its deletion began; None: it has not.
    suspended: `spec.suspend` is true, or `parallelism` is 0.
    suspended_by: who suspends it; empty: not known.
    kept_by: finalizers of others, if it is being deleted.
    unstarted, disrupted, unplaced_before: counts of the launches before it (docs/protocol.md, section 5).
    disrupted_at: times of the newest of these disruptions, in their order.
    is_unplaced: it was taken back, because its Pod got no node and is not wanted now.
    ended_by: who has ended its Pod; empty: nobody, or nobody has noted it.
    limit_seconds: run limit of its Pod; 0: not known.
    report: `sql`, or `exit-code` if the outcome of the Job is the report.
    final_codes: with `exit-code`, the statuses after which no second try helps.
    shape: digest of what its Pod needs of a node.
    needs: what its Pod needs of a node; None: not known.
    cache: where its cache was; None: its row has no cache key.
    lacks: labels of ours that somebody has changed or removed, and who; empty: none.
    size: bytes of env, command and args of its containers, if they are many; else 0.
    """

    name: str
    uid: str
    resource_version: str
    task_id: int
    attempt: int
    launch: int
    queue: str
    template: str
    image: str
    identity: str
    database_id: str
    submitted_by: str
    created_at: datetime
    container: str = ""
    phase: Phase = Phase.ACTIVE
    reason: str = ""
    ended_at: datetime | None = None
    deleting_since: datetime | None = None
    suspended: bool = False
    suspended_by: str = ""
    kept_by: tuple[str, ...] = ()
    unstarted: int = 0
    disrupted: int = 0
    disrupted_at: tuple[datetime, ...] = ()
    unplaced_before: int = 0
    is_unplaced: bool = False
    ended_by: str = ""
    limit_seconds: int = 0
    report: str = "sql"
    final_codes: frozenset[int] = frozenset()
    shape: str = ""
    needs: PodNeeds | None = None
    cache: LaunchCache | None = None
    lacks: str = ""
    size: int = 0

    @property
    def deleting(self) -> bool:
        return self.deleting_since is not None

    @property
    def is_finished(self) -> bool:
        """Whether its conditions say that it is over. A Job that is being deleted is not finished until it is gone."""
        return self.phase in {Phase.COMPLETE, Phase.FAILED}

    @property
    def was_disrupted(self) -> bool:
        """Whether its one podFailurePolicy rule, FailJob on DisruptionTarget, has failed it."""
        return self.phase is Phase.FAILED and self.reason == "PodFailurePolicy"

    @property
    def group(self) -> LaunchGroup:
        """The group for which a failure of this launch counts."""
        return LaunchGroup(self.queue, self.template, self.image, self.submitted_by)


class ObjectWrite(Struct, frozen=True):
    """An object to end, with the preconditions that make a late or repeated call harmless.

    kind `jobs`, `pods`: delete the object.
    kind `unplaced-pods`: delete the Pod only if it has no node.
    kind `deadline`: let the Job fail, and keep it as the memory of its launch.
    kind `mark`: mark the Job as unplaced.
    kind in EndedBy: note on the Job who ends its Pod.
    """

    kind: str
    name: str
    uid: str
    cause: str
    resource_version: str | None = None
    grace_seconds: int | None = None


class ApiAnswer(Struct, frozen=True):
    """Answer of the API server to one write or GET.

    status: HTTP status; 0 without an answer: a write may have been carried out.
    reason, message, causes: from the Status of a failure.
    retry_after: seconds to wait, as the server asks; 0 if it does not.
    job: the Job in a successful answer.
    is_sent: False if the request was held back.
    is_told: whether the API server itself answered; the answer of a proxy is not believed.
    changes: what somebody else changed in the Job of a successful create, in fields on which promises rest.
    is_compared: whether such changes were looked for.
    """

    status: int
    reason: str = ""
    message: str = ""
    causes: tuple[str, ...] = ()
    retry_after: float = 0
    job: Job | None = None
    is_sent: bool = True
    is_told: bool = True
    changes: tuple[str, ...] = ()
    is_compared: bool = False


MOST_NOTICES: Final = 1000
MOST_TRIES: Final = 10


class Notice(Struct, frozen=True, gc=False):
    """One notice.

    kind, name: the object; `name` is `namespace/name`, or `/name` of a Node.
    uid: tells the object from another one of the same name.
    reason, words: reason and message of the Event.
    is_warning: type Warning instead of Normal.
    """

    kind: str
    name: str
    uid: str
    reason: str
    words: str
    is_warning: bool = False


class Notices:
    """Notices that wait to be written, oldest first. Each object and reason has only its newest notice.

    Not guaranteed: that all are written. At most MOST_NOTICES wait, and further ones are dropped. A notice that could
    not be written MOST_TRIES times is dropped, too.
    """

    def __init__(self) -> None:
        self._due: dict[tuple[str, str], Notice] = {}
        self._tries: Counter[tuple[str, str]] = Counter()
        self.dropped: Counter[str] = Counter()
        """Number of dropped notices, by reason."""

    def say(self, notice: Notice) -> None:
        key = notice.uid, notice.reason
        if len(self._due) < MOST_NOTICES or key in self._due:
            self._due[key] = notice
        else:
            self.dropped[notice.reason] += 1

    def due(self, most: int) -> Sequence[Notice]:
        """The oldest notices, at most `most`. They stay until `told` removes them."""
        return list(islice(self._due.values(), most))

    def told(self, notice: Notice) -> None:
        """Removes a notice that was written, unless a newer one has replaced it."""
        key = notice.uid, notice.reason
        if self._due.get(key) is notice:
            del self._due[key]
            self._tries.pop(key, None)

    def put_off(self, notice: Notice) -> None:
        """Moves a notice that could not be written behind the others."""
        key = notice.uid, notice.reason
        self._tries[key] += 1
        newest = self._due.pop(key, notice)
        if self._tries[key] < MOST_TRIES:
            self._due[key] = newest
        else:
            del self._tries[key]
            self.dropped[notice.reason] += 1
