"""The view of one dispatcher: a prefix of the events of Jobs, Pods and nodes, each at its own pace.

A view is stale before its first list, and after MOST_SECONDS without an event or a bookmark. No watch of Kubernetes is
known to lose an event. The tests lose events all the same; `View.hidden` says which Jobs are missing then.
"""

from collections.abc import Iterator
from typing import Any, Final

from dispatcher.model.cluster import ClusterView, Node, Pod
from dispatcher.model.jobs import Job
from tests.property.cluster import Cluster, Event
from tests.property.timing import Timeline

MOST_SECONDS: Final = 100
KINDS: Final = ("jobs", "pods", "nodes")
NOT_LISTED: Final = "jobs: not listed in this term"


class Watched:
    """The watch of one kind, up to a position in the history."""

    def __init__(self, cluster: Cluster, kind: str) -> None:
        self._cluster = cluster
        self._kind = kind
        self.position = 0
        self.version = 0
        self.known: dict[str, Any] = {}

    def next(self) -> Event | None:
        """The next event of this kind, or None. The watch moves on to it."""
        history = self._cluster.history
        while self.position < len(history):
            event = history[self.position]
            self.position += 1
            if event.kind == self._kind:
                return event
        self.version = self._cluster.version  # a bookmark
        return None

    def deliver(self, most: int) -> None:
        for _ in range(most):
            if (event := self.next()) is None:
                return
            self.apply(event)

    def apply(self, event: Event) -> None:
        self.version = event.version
        if event.found is None:
            self.known.pop(event.name, None)
        else:
            self.known[event.name] = event.found

    def relist(self) -> None:
        self.position, self.version = len(self._cluster.history), self._cluster.version
        self.known = dict(self._cluster.objects(self._kind))


class View:
    """The three watches of one dispatcher.

    is_cut: the watches get neither events nor bookmarks.
    has_gap: a watch has lost an event since the last list.
    """

    def __init__(self, cluster: Cluster, clock: Timeline) -> None:
        self._cluster = cluster
        self._clock = clock
        self._watched = {kind: Watched(cluster, kind) for kind in KINDS}
        self._is_listed = False
        self._proven_at = clock()
        self.is_cut = False
        self.has_gap = False

    def deliver(self, kind: str, most: int) -> None:
        if self._is_listed and not self.is_cut:
            self._watched[kind].deliver(most)
            self._proven_at = self._clock()

    def lose_event(self, kind: str) -> None:
        """Loses the next event of a kind. The view lacks it until the next list."""
        if self._is_listed and not self.is_cut and self._watched[kind].next() is not None:
            self.has_gap = True

    def catch_up(self) -> None:
        for kind in KINDS:
            self.deliver(kind, self._cluster.version)

    def relist(self) -> None:
        if self.is_cut:
            return
        for watched in self._watched.values():
            watched.relist()
        self._is_listed, self.has_gap, self._proven_at = True, False, self._clock()

    def begin_term(self) -> None:
        """Begins a term: the view is stale until it is listed in this term."""
        self._is_listed = False

    def receive_bookmark(self) -> None:
        """Receives a bookmark, also without new events."""
        if not self.is_cut:
            self._proven_at = self._clock()

    @property
    def stale(self) -> str:
        if not self._is_listed:
            return NOT_LISTED
        age = self._clock() - self._proven_at
        return f"jobs: no sign of life for {age:.0f} s" if age > MOST_SECONDS else ""

    @property
    def jobs(self) -> dict[str, Job]:
        return self._watched["jobs"].known

    def hidden(self) -> Iterator[Job]:
        """Unfinished Jobs that the view lacks, although they were made before its version."""
        version, made_at = self._watched["jobs"].version, self._cluster.made_at
        return (job for job in self._cluster.unfinished() if job.name not in self.jobs and made_at[job.name] <= version)

    def picture(self) -> ClusterView:
        nodes: dict[str, Node] = dict(self._watched["nodes"].known)
        pods: dict[str, Pod] = dict(self._watched["pods"].known)
        version = str(self._watched["jobs"].version)
        made = {pod.shape: pod.needs for pod in pods.values() if pod.needs is not None}
        return ClusterView(self._clock.of_cluster, dict(self.jobs), pods, nodes, version, self.stale, made=made)
