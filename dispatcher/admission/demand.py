"""Demand: Pods of ours that wait although no node has room for them, so that an autoscaler adds nodes. Pure.

    Pods without room, nodes, answers ─▶ Demands.update ─▶ Demand: the rule of one moment
                                                            └─▶ why_not_ask(pod, waiting, bounds)

`Demand`: of each shape one Pod waits. If that brought a node, or an announcement of one, the whole need of the shape
goes out. When nothing more comes for QUIET, or the autoscaler refuses, it is one Pod again.

`in_turns`: shapes that nothing has come for share few places. A shape that has had its grace gives its place to one
that has none, and asks again after a pause, which grows. So shapes that fit nowhere hide no other shape from the
autoscaler.

`FirstPods`: a LimitRange, a webhook or a RuntimeClass changes the requests of Pods. The first Pods of a shape show what
the API server makes of them, so only a few go out before one is seen. Judged by its template, a burst of such rows
would take all places within a second, and most of its Pods would wait.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.admission.room_view import may_come
from dispatcher.admission.windows import AGREES, Contradictions
from dispatcher.model.cluster import LONG_AGO, Node, Pod, ScaleAnswer
from dispatcher.model.errors import doubled
from dispatcher.model.launches import PodKind, Probe
from dispatcher.model.needs import PodNeeds

K = TypeVar("K")
QUIET: Final = timedelta(minutes=10)
"""Time after the last node or announcement, after which a shape falls back to one Pod. Some machines start as
slowly.
"""
AFTER_START: Final = timedelta(minutes=1)
"""Time in which a new process takes nothing back: it must first read the nodes and announcements before it."""
LOOK: Final = timedelta(seconds=1)
"""Time between two updates."""
AHEAD: Final = timedelta(minutes=1)
"""An Event whose time lies further in the future is a mistake or a forgery."""
NEWS: Final = timedelta(minutes=1)
"""A new node is seen, and has its size, within this time."""
MOST_NODES: Final = 200
"""Nodes that one update compares with each shape, at most. Each takes about a microsecond."""
LATE: Final = timedelta(minutes=15)
"""A node that comes later than this after the Pod came for somebody else (the default of `max-node-provision-time`)."""
SEEN: Final = timedelta(minutes=1)
"""`DemandRecord.seen_at` is written again after this time."""
LATELY: Final = 2 * SEEN
"""A shape whose Pod waited within this time counts as waiting."""
FORGOTTEN: Final = timedelta(hours=2)
"""A shape is forgotten this time after its last Pod. The longest pause is shorter."""
FIRST_PAUSE_SECONDS: Final = 120
"""Pause of a shape after it gave its place back for the first time. Each further one is twice as long."""
LONGEST_PAUSE_SECONDS: Final = 1800
"""The longest of these pauses."""
MOST_ASKING: Final = 10
"""Places of shapes that nothing has come for, at most."""
MOST_OF_TEAMS: Final = 100
"""Places of such shapes with one for each submitter, at most."""
MOST_SHAPES: Final = 10_000
"""Shapes that are remembered, at most. Rows can ask for any amount, so there is no end of shapes."""


class DemandRecord(Struct, frozen=True):
    """Our knowledge of the demand of one shape.

    known_at: when this process saw it first.
    seen_at: when a Pod of it waited last, about.
    began_at: creation of the oldest Pod that asks, or that asked last.
    needs: what its Pods need of a node; None: not known.
    since: since when kube-scheduler finds no node for the Pods that ask; None: no Pod asks.
    came_at: when a node for it, or an announcement, came last; None: nothing came.
    unanswered_since: since when the shape asks, with pauses, and nothing has come; None: it asks for nothing.
    words: why kube-scheduler finds no node for its oldest Pod, in its words of the last minute.
    refused: why the autoscaler adds no node; empty: it has not said so since.
    tries: how often it gave its place back.
    next_at: when it asks again; None: at any time.
    """

    known_at: datetime
    seen_at: datetime
    began_at: datetime
    needs: PodNeeds | None = None
    since: datetime | None = None
    came_at: datetime | None = None
    unanswered_since: datetime | None = None
    words: str = ""
    refused: str = ""
    tries: int = 0
    next_at: datetime | None = None


class Demand(Struct, frozen=True):
    """The rule of one moment.

    mode: `auto`; `all`: the whole need at once; `one`: a cluster that never grows.
    grown: shapes whose whole need goes out.
    resting: shapes that ask again later.
    asked: what is known of each shape.
    contradicted: windows of shapes, where they are not one, and the shapes in doubt.
    """

    mode: str = "auto"
    grown: frozenset[str] = frozenset()
    resting: frozenset[str] = frozenset()
    asked: Mapping[str, DemandRecord] = {}
    contradicted: Contradictions = AGREES

    def has_grown(self, shape: str) -> bool:
        return self.mode == "all" or shape in self.grown

    def is_answered(self, shape: str) -> bool:
        """Whether nodes come for its Pods, or kube-scheduler gives them nodes that have no room by our count."""
        return self.has_grown(shape) or self.contradicted.sizes.get(shape, 1) > 1

    def most(self, shape: str, most: int) -> int:
        """How many Pods of the shape may wait. `most`: MAX_PENDING."""
        return most if self.has_grown(shape) else min(self.contradicted.sizes.get(shape, 1), most)

    def waited_lately(self, now: datetime) -> frozenset[str]:
        """The shapes of which a Pod waits, or waited a moment ago. Pods that are taken back do not wait."""
        return frozenset(shape for shape, one in self.asked.items() if now - one.seen_at <= LATELY)

    def unanswered_since(self) -> datetime | None:
        """The time since which the longest unanswered shape asks; None: there is none."""
        if self.mode == "one":
            return None
        since = (one.unanswered_since for one in self.asked.values())
        return min((one for one in since if one is not None), default=None)

    def answer(self, shape: str) -> str:
        """What became of the demand of the shape, in words. Empty: nothing yet."""
        one = self.asked.get(shape)
        if one is None or not (one.refused or one.came_at):
            return ""
        if one.refused:
            return f"the autoscaler says: {one.refused}"
        return f"a node for it, or the announcement of one, came at {one.came_at:%H:%M:%S %Z}"

    def told(self, shape: str) -> str:
        """Why no Pod of the shape has room, and what became of its demand. Empty: not known."""
        one, words = self.asked.get(shape), list[str]()
        if shape in self.contradicted.doubted:
            words.append(
                f"kube-scheduler finds no node for it, where our count has room: {self.contradicted.doubted[shape]}"
            )
        elif window := self.contradicted.sizes.get(shape):
            words.append(f"kube-scheduler has nodes for it that our count does not see: {window} of its Pods may wait")
        elif one is not None and one.words:
            words.append(f"kube-scheduler says: {one.words}")
        if one is None:
            return "; ".join(words)
        words += filter(None, [self.answer(shape)])
        if shape in self.resting and one.next_at is not None:
            words.append(f"its Pods asked {times(one.tries)} for a node in vain, next at {one.next_at:%H:%M:%S %Z}")
        elif one.since is not None:
            words.append(f"a Pod like it waits for a node since {one.since:%H:%M:%S %Z}")
        return "; ".join(words)


AUTO: Final = Demand()


class DemandPods(Struct, frozen=True):
    """Numbers of our Pods that wait as demand.

    demand: the rule. Shapes without an answer share places.
    every: all, by kind.
    by_shape: by shape, over all queues.
    by_queue: by (queue, shape).
    asking: Pods of shapes without an answer, by submitter.
    """

    demand: Demand = AUTO
    every: Mapping[PodKind, int] = {}
    by_shape: Mapping[str, int] = {}
    by_queue: Mapping[tuple[str, str], int] = {}
    asking: Mapping[str, int] = {}

    @property
    def total(self) -> int:
        return sum(self.every.values())

    def with_pods(self, pod: PodKind, count: int = 1) -> "DemandPods":
        return DemandPods(
            self.demand,
            more(self.every, pod, count),
            more(self.by_shape, pod.shape, count),
            more(self.by_queue, (pod.queue, pod.shape), count),
            self.asking if self.demand.is_answered(pod.shape) else more(self.asking, pod.submitted_by, count),
        )


class DemandBounds(Struct, frozen=True):
    """The bounds of demand.

    most: MAX_PENDING.
    of_queue: `max_pending` of the queue; None: it has none of its own.
    max_jobs: MAX_JOBS.
    """

    most: int
    of_queue: int | None
    max_jobs: int

    @property
    def places(self) -> int:
        """Places of shapes that nothing has come for."""
        return max(1, min(MOST_ASKING, self.max_jobs // 10))

    @property
    def with_teams(self) -> int:
        """The places, with one more for each submitter that has none."""
        return max(self.places, min(MOST_OF_TEAMS, self.max_jobs // 4))


ENOUGH: Final = "enough Pods like it wait for a node"
NONE_ASKS: Final = "no Pod asks for a node: MAX_PENDING, or max_pending of its queue, is 0"
RESTS: Final = "it asks for a node again later"
IN_TURN: Final = "it asks for a node after Pods of other shapes"


def why_not_ask(pod: PodKind, waiting: DemandPods, bounds: DemandBounds) -> str:
    """Why no further Pod of this kind may wait as demand; empty: it may."""
    demand, shape = waiting.demand, pod.shape
    most = bounds.most if bounds.of_queue is None else bounds.of_queue
    if not most:
        return NONE_ASKS
    is_full = waiting.by_shape.get(shape, 0) >= demand.most(shape, bounds.most)
    if is_full or waiting.by_queue.get((pod.queue, shape), 0) >= most:
        return ENOUGH
    if demand.is_answered(shape):
        return ""
    if shape in demand.resting:
        return RESTS
    own, every = waiting.asking.get(pod.submitted_by, 0), sum(waiting.asking.values())
    if own >= max(1, bounds.places // 3) or every >= (bounds.places if own else bounds.with_teams):
        return IN_TURN
    return ""


class Demands:
    """Our knowledge of all shapes, from cycle to cycle. A restart asks again from the beginning."""

    def __init__(self, mode: str, grace_seconds: float) -> None:
        """`grace_seconds`: time for which a shape keeps its place without an answer."""
        self.current = Demand(mode)
        self.asking: Sequence[Pod] = ()
        """The first and the newest Pod of each shape: what autoscalers say of them counts for the shape."""
        self.looked_at = LONG_AGO
        self._grace = timedelta(seconds=grace_seconds)

    def forget(self) -> None:
        """Begins anew, as after a restart."""
        self.current, self.asking, self.looked_at = Demand(self.current.mode), (), LONG_AGO

    def update(
        self, waiting: Sequence[Probe], young: Iterable[Node], answers: Mapping[str, ScaleAnswer], now: datetime,
        contradicted: Contradictions = AGREES,
    ) -> None:  # fmt: skip
        """Learns what came since the last update.

        waiting: our Pods for which kube-scheduler found no node.
        young: the nodes that have come lately.
        answers: what autoscalers said, by UID of the Pod.
        now: the API server's clock.
        contradicted: see `Demand`.
        """
        if contradicted is not self.current.contradicted:
            self.current = replace(self.current, contradicted=contradicted)
        # A clock that went back must not stop the looks: one replica of the API server may be ahead.
        if abs(now - self.looked_at) < LOOK or not (waiting or self.current.asked):
            return
        news, self.looked_at = self.looked_at - NEWS, now
        pods = by_shape(waiting)
        nodes = sorted((one for one in young if one.created_at > news), key=lambda one: one.created_at)[-MOST_NODES:]
        self.asking = [pod for probes in pods.values() for pod in first_and_newest(probes)]
        known = {
            shape: asks_no_more(one, now) for shape, one in self.current.asked.items()
            if shape not in pods and now - one.seen_at <= FORGOTTEN
        }  # fmt: skip
        known |= {shape: asking(self.current.asked.get(shape), probes, now) for shape, probes in pods.items()}
        said = {uid: one for uid, one in answers.items() if one.at - now <= AHEAD}
        asked = {
            shape: heard(one, nodes, [said[probe.pod.uid] for probe in pods.get(shape, ()) if probe.pod.uid in said])
            for shape, one in known.items()
        }
        newest = sorted(asked.items(), key=lambda each: each[1].seen_at)[-MOST_SHAPES:]
        self._keep(dict(newest), now)

    def given_back(
        self, waiting: Sequence[Probe], wanting: Iterable[PodKind], outdated: Container[str] = ()
    ) -> list[tuple[Probe, str]]:
        """The Pods that give their places back, each with the cause.

        wanting: kinds of Pods that found no place.
        outdated: shapes that only admission keeps from every node.
        """
        now, asked = self.looked_at, self.current.asked
        every = by_shape(probe for probe in waiting if probe.job.shape in asked)
        going = {shape for shape in every if shape in self.current.resting and not self.current.has_grown(shape)}
        pods = {shape: [one for one in probes if not one.job.is_unplaced] for shape, probes in every.items()}
        back = [(probe, FELL_BACK) for shape, probes in pods.items() for probe in self._beyond(shape, probes, now)]
        late = {one: since for one in pods.keys() - going if (since := self._gives_up(one, now)) is not None}
        asking = {
            shape: probes[0].job.submitted_by for shape, probes in every.items() if not self.current.is_answered(shape)
        }
        shapes = in_turns(asking, late, wanting, going & asking.keys())
        back += [(probe, GAVE_UP) for shape in (*sorted(going), *shapes) for probe in pods[shape]]
        sure = late.keys() - self.current.contradicted.sizes.keys()
        old = [shape for shape in sorted(sure) if shape in outdated and now - late[shape] >= QUIET]
        back += [(probe, OUTDATED) for shape in old if shape not in shapes for probe in pods[shape]]
        if shapes := list(dict.fromkeys([*shapes, *old])):
            self._keep({**asked, **{shape: rested(asked[shape], now) for shape in shapes}}, now)
        return back

    def _beyond(self, shape: str, probes: Sequence[Probe], now: datetime) -> Sequence[Probe]:
        """Pods of the shape beyond its allowed number, the newest last. Empty while the shape may still get an
        answer.
        """
        one, window = self.current.asked[shape], self.current.contradicted.sizes.get(shape)
        waits = now - one.known_at < AFTER_START if one.came_at is None else now - one.came_at < QUIET
        if self.current.has_grown(shape) or (window is None and waits):
            return ()
        return sorted(probes, key=lambda probe: (probe.job.created_at, probe.job.name))[window or 1 :]

    def _gives_up(self, shape: str, now: datetime) -> datetime | None:
        """If the shape may give its place away: since when it has asked. None: it keeps its place."""
        one = self.current.asked[shape]
        if self.current.is_answered(shape) or one.since is None:
            return None
        return one.since if one.refused or now - one.since >= self._grace else None

    def _keep(self, asked: Mapping[str, DemandRecord], now: datetime) -> None:
        """Sets the rule. It stays the same object while nothing has changed, so that other values stay, too."""
        mode = self.current.mode
        grown = (
            frozenset(shape for shape, one in asked.items() if has_grown(one, now)) if mode == "auto" else frozenset()
        )
        resting = frozenset(shape for shape, one in asked.items() if one.next_at is not None and now < one.next_at)
        found = Demand(mode, grown, resting, asked, self.current.contradicted)
        if found != self.current:
            self.current = found


GAVE_UP: Final = "no node came for it in its grace, and other shapes ask, too"
FELL_BACK: Final = "no more nodes come for its shape"
OUTDATED: Final = "what admission added to it keeps it from every node, and may be another by now"


def in_turns(
    asking: Mapping[str, str], late: Mapping[str, datetime], wanting: Iterable[PodKind], going: Iterable[str] = ()
) -> list[str]:
    """The shapes that give their places away. The shapes of one submitter take turns among themselves.

    A submitter without a place takes one from the submitter with the most, among those with a shape in `late`.

    asking: by shape of which a Pod asks and for which nothing came: its submitter.
    late: shapes that may give their places away, with the time since which they ask.
    wanting: kinds of Pods that find no place.
    going: shapes whose Pods are being taken back. Their places are free in a moment.
    """
    places, given, freed = Counter(asking.values()), list[str](), Counter(asking[shape] for shape in going)
    wanted = {pod.shape: pod.submitted_by for pod in wanting if pod.shape not in asking}
    for who in wanted.values():
        able = {asking[shape] for shape in late if shape not in given} | {one for one in freed if freed[one]}
        giver = who if places[who] else max(able, key=lambda one: (places[one], one), default=who)
        own = [shape for shape in late if asking[shape] == giver and shape not in given]
        if freed[giver]:
            freed[giver] -= 1
        elif own:
            given.append(min(own, key=lambda shape: (late[shape], shape)))
    return given


def asks_no_more(one: DemandRecord, now: datetime) -> DemandRecord:
    """Our knowledge of a shape without a waiting Pod. While the shape rests, it still counts as asking."""
    rests = one.next_at is not None and now < one.next_at
    return replace(one, since=None, unanswered_since=one.unanswered_since if rests else None)


def asking(one: DemandRecord | None, probes: Sequence[Probe], now: datetime) -> DemandRecord:
    """Our knowledge of a shape whose Pods wait."""
    began = min(probe.pod.created_at for probe in probes)
    since = min(probe.pod.unschedulable_since or now for probe in probes)
    needs = next((probe.needs for probe in probes if probe.needs is not None), None)
    if one is None:
        return DemandRecord(now, now, began, needs, since, unanswered_since=now, words=words_of(probes))
    if now - one.seen_at > SEEN:
        one = replace(one, seen_at=now, words=words_of(probes))
    return replace(one, began_at=began, needs=needs, since=since, unanswered_since=one.unanswered_since or now)


def words_of(probes: Sequence[Probe]) -> str:
    """What kube-scheduler says about the oldest Pod, without its words about preemption."""
    oldest = min(probes, key=lambda probe: probe.pod.created_at).pod
    return oldest.waiting_message.partition(" preemption:")[0]


def heard(one: DemandRecord, nodes: Sequence[Node], answers: Sequence[ScaleAnswer]) -> DemandRecord:
    """Our knowledge of a shape after these nodes and answers. If its need is large, nodes come in waves."""
    came = [answer.at for answer in answers if answer.comes]
    if one.needs is not None:
        after, until = one.came_at or one.began_at, max(one.began_at, one.came_at or one.began_at) + LATE
        came += [node.created_at for node in nodes if after < node.created_at <= until and may_come(one.needs, node)]
    came_at = max([*came, *([one.came_at] if one.came_at else [])], default=None)
    refusals = [answer for answer in answers if not answer.comes and (came_at is None or answer.at > came_at)]
    refused = max(refusals, key=lambda answer: answer.at).words if refusals else ""
    if came_at == one.came_at:
        return replace(one, refused=refused or (one.refused if not answers else ""))
    return replace(one, came_at=came_at, refused=refused, tries=0, next_at=None, unanswered_since=None)


def has_grown(one: DemandRecord, now: datetime) -> bool:
    return one.came_at is not None and now - one.came_at < QUIET and not one.refused


def rested(one: DemandRecord, now: datetime) -> DemandRecord:
    """Our knowledge of a shape after it gave its place back."""
    pause = doubled(FIRST_PAUSE_SECONDS, one.tries, LONGEST_PAUSE_SECONDS)
    return replace(one, tries=one.tries + 1, next_at=now + timedelta(seconds=pause))


def first_and_newest(probes: Sequence[Probe]) -> list[Pod]:
    pods = sorted((probe.pod for probe in probes), key=lambda pod: (pod.created_at, pod.name))
    return pods if len(pods) < 2 else [pods[0], pods[-1]]


def by_shape(probes: Iterable[Probe]) -> dict[str, list[Probe]]:
    found: dict[str, list[Probe]] = {}
    for probe in probes:
        found.setdefault(probe.job.shape, []).append(probe)
    return found


def more(counts: Mapping[K, int], key: K, count: int) -> dict[K, int]:
    return {**counts, key: counts.get(key, 0) + count}


def times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


FIRST: Final = 5
"""Launches of a shape that go out before one of its Pods is seen, at most."""
PATIENCE: Final = timedelta(seconds=3)
"""Time for which a first Pod is awaited. A Job has its Pod within tenths of a second, unless its controller is away."""


class FirstPods(Struct, frozen=True):
    """Our knowledge of the first Pods of each shape.

    made: shapes of which a Pod was seen, with what it needs.
    late: shapes of which none was seen within PATIENCE.
    under_way: numbers of launches of the other shapes.
    """

    made: Mapping[str, PodNeeds] = {}
    late: frozenset[str] = frozenset()
    under_way: Mapping[str, int] = {}

    def must_wait(self, shape: str) -> bool:
        """Whether the shape must wait for its first Pod, because enough launches of it are under way."""
        return self.under_way.get(shape, 0) >= FIRST

    def with_launch(self, shape: str) -> "FirstPods":
        if shape in self.made or shape in self.late:
            return self
        return FirstPods(self.made, self.late, {**self.under_way, shape: self.under_way.get(shape, 0) + 1})


class Patience:
    """Since when the first Pods of shapes are awaited, from cycle to cycle."""

    def __init__(self) -> None:
        self._since: Mapping[str, datetime] = {}

    def look(self, unplaced: Mapping[PodKind, int], made: Mapping[str, PodNeeds], now: datetime) -> FirstPods:
        """What is known now. `unplaced`: launches whose Pods have no node. `now`: the API server's clock."""
        awaited = Counter[str]()
        for pod, count in unplaced.items():
            if pod.shape not in made:
                awaited[pod.shape] += count
        self._since = {shape: self._since.get(shape, now) for shape in awaited}
        late = frozenset(shape for shape, since in self._since.items() if now - since >= PATIENCE)
        return FirstPods(made, late, {shape: count for shape, count in awaited.items() if shape not in late})
