"""Unseen creates: creates of this process that the watch has not shown yet.

An unseen create counts against the caps, so a cap holds while the watch lags. A row has one unanswered create at a time
(docs/protocol.md, section 4).
"""

import msgspec
from msgspec import Struct

from dispatcher.model.jobs import LaunchGroup
from dispatcher.model.launches import Launch, Offer
from dispatcher.model.snapshot import ClusterView
from dispatcher.model.tasks import Task
from dispatcher.model.verdicts import Hold, HoldReason, Stage


class Unseen(Struct, frozen=True):
    """One create.

    name: name of the Job.
    task_id: the row.
    attempt: attempt of the row.
    queue: queue of the row.
    submitted_by: submitter of the row.
    offer: the offer that the Job was made by.
    sent_at: when the POST was sent, in seconds of this process's clock.
    resource_version: version of the Job in the answer; None: no answer has said that the Job exists.
    is_under_way: an answer may still come.
    """

    name: str
    task_id: int
    attempt: int
    queue: str
    submitted_by: str
    offer: Offer
    sent_at: float
    resource_version: str | None = None
    is_under_way: bool = False

    @property
    def group(self) -> LaunchGroup:
        """The launch group of the Job."""
        return LaunchGroup(self.queue, self.offer.template, self.offer.image)

    @property
    def is_waiting(self) -> bool:
        """Whether the row waits, as far as this process knows. Its container starts after the answer."""
        return True

    @property
    def is_answered(self) -> bool:
        return self.resource_version is not None

    @property
    def is_awaited(self) -> bool:
        """Whether an answer may come, or the watch will show the Job. Until then the row is not judged."""
        return self.is_under_way or self.is_answered


def plan_create(launch: Launch, unseen: Unseen | None, name: str) -> Launch | Hold:
    """The launch that the table of outcomes asks for, or a hold if the row's last create is not resolved.

    An unanswered create is repeated under its own name, and only while the row, read again, asks for that name.
    """
    if unseen is None:
        return launch
    if unseen.is_under_way:
        return Hold(HoldReason.LAUNCHED, Stage.ASKED)
    if unseen.is_answered:
        return Hold(HoldReason.LAUNCHED, Stage.CREATED)
    if unseen.name != name:
        return Hold(HoldReason.FINISHING, f"what became of {unseen.name} is not known yet")
    return msgspec.structs.replace(launch, is_repeat=True)


class UnseenCreates:
    """All unseen creates, by name of the Job."""

    def __init__(self) -> None:
        self.by_name: dict[str, Unseen] = {}

    def begin(self, name: str, task: Task, offer: Offer, now: float) -> None:
        """The create counts from now on. No second create of this name begins before `end`."""
        self.by_name[name] = Unseen(
            name, task.id, task.attempt, task.queue, task.submitted_by, offer, now, is_under_way=True
        )

    def sent(self, name: str, now: float) -> None:
        """Sets the time of the POST. A question to the API server may have come before it."""
        if (unseen := self.by_name.get(name)) is not None:
            self.by_name[name] = msgspec.structs.replace(unseen, sent_at=now)

    def end(self, name: str) -> None:
        """The answer came, or no answer will come."""
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
        """Forgets creates that the view shows, and creates older than the view: their Jobs came and went."""
        for unseen in list(self.by_name.values()):
            version = unseen.resource_version
            if unseen.name in view.jobs or (version is not None and view.has_seen(version)):
                del self.by_name[unseen.name]
