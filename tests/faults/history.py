"""Checks a finished run against the laws of the protocol, by the records of the API server and of the database.

The module does not use the dispatcher's code. `history_reading` makes the records, and `violations` returns sentences.
Each check is a function; `violations` calls them all. A run with too little work, or without its faults, proves
nothing, so that is a violation, too.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias, TypeVar

from tests.faults.history_records import Bounds, History, Life, Row, Start, Window, Write

Words: TypeAlias = list[str]
T = TypeVar("T")
K = TypeVar("K")
TERMINAL = frozenset({"succeeded", "failed", "cancelled"})
STARTABLE_AGAIN = 2  # max_failures from which a started task may be started again


def violations(history: History, bounds: Bounds) -> Words:
    """All violations of a run. Empty if the run is correct."""
    return [
        *vacuous(history, bounds),
        *made_twice(history.writes, bounds.late_posts),
        *two_names(history.writes),
        *creates_fall(history.writes, bounds.late_posts),
        *two_at_once(history.lives, bounds.late_posts),
        *accepted_twice([*history.starts, *history.accepted]),
        *live_tokens(history.starts, history.rows),
        *starts_fall(history.starts),
        *rows_fall(history.starts, history.rows),
        *started_again(history.starts, history.rows, bounds.retried),
        *careless_deletes(history.writes),
        *writes_within(history.writes, bounds.quiet),
        *over_cap(history.lives, bounds.cap, bounds.over_cap),
        *forgotten(history.rows, bounds.reasons),
    ]


def vacuous(history: History, bounds: Bounds) -> Words:
    """The run did too little, or a planned fault never happened."""
    traffic = history.traffic()
    found = [f"vacuous: {traffic[what]} {what}, at least {n}" for what, n in bounds.least.items() if traffic[what] < n]
    found += [] if any(bounds.least.values()) else ["vacuous: no least traffic is asked for"]
    return found + [f"vacuous: the fault {name!r} never happened" for name, hits in bounds.faults.items() if not hits]


def made_twice(writes: Sequence[Write], late_posts: int = 0) -> Words:
    """I2: a name is created once. It is created again only after somebody else deleted the Job, or by a late POST."""
    removals = grouped(
        (w for w in writes if w.verb == "delete" and w.resource == "jobs" and w.is_done), lambda w: w.name
    )
    wrong, late = [], []
    for name, made in grouped(created(writes), lambda write: write.name).items():
        for first, second in pairwise(made):
            between = [w for w in removals[name] if first.answered_at <= w.answered_at <= second.answered_at]
            if not between:
                wrong.append(f"I2: {name} made twice: {first}; {second}")
            elif all(removal.is_ours for removal in between):
                late.append(f"I2: {name} made again after our own delete: {between[-1]}; {second}")
    return wrong + beyond(late, late_posts)


def two_names(writes: Sequence[Write]) -> Words:
    """I2: one launch has one name, and one name has one launch."""
    made = created(writes)
    names = {key: {write.name for write in some} for key, some in grouped(made, lambda write: write.key).items()}
    keys = {name: {write.key for write in some} for name, some in grouped(made, lambda write: write.name).items()}
    return [f"I2: launch {key} has several names: {sorted(some)}" for key, some in names.items() if len(some) > 1] + [
        f"I2: {name} names several launches: {some}" for name, some in keys.items() if len(some) > 1
    ]


def creates_fall(writes: Sequence[Write], late_posts: int = 0) -> Words:
    """Launches are created in the order of their numbers."""
    by_task = grouped(created(writes), lambda write: write.key and write.key[0])
    falls = [
        f"numbers fall: {second} after {first.key}"
        for made in by_task.values()
        for first, second in pairwise(made)
        if first.key and second.key and second.key < first.key
    ]
    return beyond(falls, late_posts)


def two_at_once(lives: Sequence[Life], late_posts: int = 0) -> Words:
    """I1: one unfinished Job per row, plus those of late POSTs."""
    found = []
    for of_task in grouped(sorted(lives, key=lambda life: life.began), lambda life: life.key[0]).values():
        for place, life in enumerate(of_task):
            others = [earlier.name for earlier in of_task[:place] if earlier.overlaps(life)]
            found += [f"I1: {life.name} made while {others} unfinished"] if others else []
    return beyond(found, late_posts)


def accepted_twice(starts: Sequence[Start]) -> Words:
    """S4: one Pod and one token per launch, and one launch per token."""
    takers = {key: {(s.pod, s.token) for s in some} for key, some in grouped(starts, lambda s: s.key).items()}
    launches = {token: {s.key for s in some} for token, some in grouped(starts, lambda s: s.token).items()}
    return [
        f"S4: launch {key} was started by several: {sorted(some)}" for key, some in takers.items() if len(some) > 1
    ] + [f"S4: a token of several launches: {sorted(some)}" for some in launches.values() if len(some) > 1]


def live_tokens(starts: Sequence[Start], rows: Sequence[Row]) -> Words:
    """S1: at most one live token per row. It is the row's token. A terminal row has none."""
    found, of_task = [], grouped(by_number(starts), lambda start: start.key[0])
    for some in of_task.values():
        for first, second in pairwise(some):
            if first.ended_at is None or first.ended_at > second.started_at:
                found.append(f"S1: {first.key} still held its token when {second.key} started")
    for row in rows:
        alive = [start.token for start in of_task[row.id] if start.ended_at is None]
        if alive != ([row.token] if row.token else []):
            found.append(f"S1: row {row.id} ({row.status}) holds {row.token}, alive are {alive}")
    return found


def starts_fall(starts: Sequence[Start]) -> Words:
    """A launch starts after every lower one, or takes the row from a lower one while both wait for the row lock."""
    return [
        f"numbers fall: {low.key} started after {high.key}"
        for some in grouped(by_number(starts), lambda start: start.key[0]).values()
        for low, high in pairwise(some)
        if low.started_at > high.started_at and low.ended_at != high.started_at
    ]


def rows_fall(starts: Sequence[Start], rows: Sequence[Row]) -> Words:
    """A row's attempt and launch are never lower than those of a launch that started."""
    highest = {start.key[0]: start.key for start in by_number(starts)}
    return [
        f"numbers fall: row {row.id} stands at {(row.attempt, row.launch)}, {highest[row.id]} has started"
        for row in rows
        if row.id in highest and (row.id, row.attempt, row.launch) < highest[row.id]
    ]


def started_again(starts: Sequence[Start], rows: Sequence[Row], retried: Collection[int] = ()) -> Words:
    """S11: with max_failures 1 a task starts once. Its submitter may retry it: then once per attempt."""
    once = {row.id for row in rows if row.max_failures < STARTABLE_AGAIN}
    mine = [start for start in starts if start.key[0] in once]
    runs = grouped(mine, lambda start: start.key[:2] if start.key[0] in retried else start.key[:1])
    return [f"S11: started twice: {[s.key for s in some]}" for some in runs.values() if len(some) > 1]


def careless_deletes(writes: Sequence[Write]) -> Words:
    """Each delete of ours has the preconditions of the object that was judged, and for Jobs a propagationPolicy."""
    found = []
    for write in writes:
        if not write.is_ours or not write.verb.startswith("delete"):
            continue
        given, only_if = write.options, write.options.get("preconditions")
        sure = set(only_if) if isinstance(only_if, Mapping) else set()
        wanted = {"uid", "resourceVersion"} if write.resource == "jobs" else {"uid"}
        missing = [*sorted(wanted - sure)]
        missing += ["propagationPolicy"] if write.resource == "jobs" and not given.get("propagationPolicy") else []
        found += [f"careless: {write} without {', '.join(missing)}"] if missing else []
    return found


def writes_within(writes: Sequence[Write], quiet: Sequence[Window]) -> Words:
    """F1, I6: no writes of ours in a quiet window."""
    return [
        f"I6: {write} while {window.why}"
        for window in quiet
        for write in writes
        if write.is_ours and window.begin <= write.received_at <= window.end
    ]


def over_cap(lives: Sequence[Life], cap: int | None, allowance: int = 0) -> Words:
    """I5: never more unfinished Jobs than cap + allowance."""
    most = most_at_once(lives)
    if cap is None or most <= cap + allowance:
        return []
    return [f"I5: {most} unfinished Jobs at once; the cap is {cap}, {allowance} over it allowed"]


def most_at_once(lives: Sequence[Life]) -> int:
    ends = [(life.ended, -1) for life in lives if life.ended is not None]
    count = most = 0
    for _, change in sorted([(life.began, 1) for life in lives] + ends):  # at one moment the end comes first
        count += change
        most = max(most, count)
    return most


def forgotten(rows: Sequence[Row], reasons: Mapping[int, str]) -> Words:
    """I7: every row is terminal, or the test gives a reason why it is not."""
    return [
        f"forgotten: row {row.id} is {row.status} at {(row.attempt, row.launch)}"
        for row in rows
        if row.status not in TERMINAL and row.id not in reasons
    ]


def created(writes: Iterable[Write]) -> list[Write]:
    """Successful creates of Jobs, in the order of their answers."""
    made = [write for write in writes if (write.verb, write.resource) == ("create", "jobs") and write.is_done]
    return sorted(made, key=lambda write: write.answered_at)


def by_number(starts: Iterable[Start]) -> list[Start]:
    return sorted(starts, key=lambda start: start.key)


def beyond(found: Words, allowed: int) -> Words:
    """`found` if there are more than `allowed`, else nothing."""
    return found if len(found) > allowed else []


def grouped(many: Iterable[T], key: Callable[[T], K]) -> Mapping[K, list[T]]:
    groups: dict[K, list[T]] = defaultdict(list)
    for one in many:
        groups[key(one)].append(one)
    return groups
