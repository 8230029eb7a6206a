"""Creates of this process that the watch has not shown yet.

They count against the caps until the watch has shown them, and a row has one unanswered create at a time
(docs/protocol.md, section 4). That is what keeps a cap while the watch lags.
"""

import msgspec
from msgspec import Struct

from dispatcher.model.jobs import LaunchGroup
from dispatcher.model.launches import Launch
from dispatcher.model.snapshot import ClusterView
from dispatcher.model.tasks import Task
from dispatcher.model.verdicts import Hold, HoldReason


class Unseen(Struct, frozen=True):
    """One create.

    sent_at: when the POST was sent, in seconds of this process's clock.
    resource_version: version of the Job that the answer gave; None: there is no answer that says the Job exists.
    is_under_way: an answer may still come.
    """

    name: str
    task_id: int
    attempt: int
    group: LaunchGroup
    submitted_by: str
    sent_at: float
    resource_version: str | None = None
    is_under_way: bool = False

    @property
    def queue(self) -> str:
        return self.group.queue

    @property
    def is_answered(self) -> bool:
        return self.resource_version is not None

    @property
    def is_awaited(self) -> bool:
        """Its answer will come, or the watch will show it: nothing about the row is decided before."""
        return self.is_under_way or self.is_answered


def plan_create(launch: Launch, unseen: Unseen | None, name: str) -> Launch | Hold:
    """A launch that the table of outcomes asks for, as far as this process's last create of the row allows it.

    An unanswered create is repeated under its name, and only while the row, read anew, still asks for that name.
    """
    if unseen is None:
        return launch
    if unseen.is_under_way:
        return Hold(HoldReason.LAUNCHED, "its create is under way")
    if unseen.is_answered:
        return Hold(HoldReason.LAUNCHED, "Created")
    if unseen.name != name:
        return Hold(HoldReason.FINISHING, f"what became of {unseen.name} is not known yet")
    return msgspec.structs.replace(launch, is_repeat=True)


class UnseenCreates:
    """All of them, by the name of the Job."""

    def __init__(self) -> None:
        self.by_name: dict[str, Unseen] = {}

    def begin(self, name: str, task: Task, group: LaunchGroup, now: float) -> None:
        """The create counts from here on. No second one of this name begins before `end`."""
        self.by_name[name] = Unseen(name, task.id, task.attempt, group, task.submitted_by, now, is_under_way=True)

    def sent(self, name: str, now: float) -> None:
        """The POST is sent only now: a question was put to the API server before."""
        if (unseen := self.by_name.get(name)) is not None:
            self.by_name[name] = msgspec.structs.replace(unseen, sent_at=now)

    def end(self, name: str) -> None:
        """Its answer came, or none will come."""
        if (unseen := self.by_name.get(name)) is not None:
            self.by_name[name] = msgspec.structs.replace(unseen, is_under_way=False)

    def answered(self, name: str, resource_version: str) -> None:
        if (unseen := self.by_name.get(name)) is not None:
            self.by_name[name] = msgspec.structs.replace(unseen, resource_version=resource_version)

    def forget(self, name: str) -> None:
        """No Job was made."""
        self.by_name.pop(name, None)

    def under_way(self) -> list[Unseen]:
        return [unseen for unseen in self.by_name.values() if unseen.is_under_way]

    def unanswered(self) -> frozenset[str]:
        """Names of Jobs that may or may not exist."""
        return frozenset(unseen.name for unseen in self.by_name.values() if not unseen.is_answered)

    def observe(self, view: ClusterView) -> None:
        """Forgets creates that the view shows, or that it is newer than: those came and went."""
        for unseen in list(self.by_name.values()):
            version = unseen.resource_version
            if unseen.name in view.jobs or (version is not None and view.has_seen(version)):
                del self.by_name[unseen.name]
