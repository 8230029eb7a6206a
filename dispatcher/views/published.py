"""What the leader writes into ConfigMaps and Events, and what a later process reads of it. Pure.

    status.json: the status of the installation, at most 32 KiB
    reasons.json: the reasons of single rows, at most 256 KiB

etcd keeps every version of an object for some minutes. So both are small, and are written seldom.

`notices_of`: what people read below a Job in `kubectl describe`: that its row was launched again, or is parked.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dispatcher.admission.last_cycle import LastCycle, QueueReason, RowReason, in_turns
from dispatcher.jobs.observed import launch_end
from dispatcher.model.cluster import Pod
from dispatcher.model.jobs import Job, Notice
from dispatcher.model.launches import IN_NAME
from dispatcher.model.reasons import advice_of, cause_of
from dispatcher.model.verdicts import PARKED, HoldReason
from dispatcher.views.status import InstallationStatus, Moment

STATUS_BYTES: Final = 32 << 10
REASONS_BYTES: Final = 256 << 10
MOST_ROWS: Final = 2000
"""Rows in reasons.json, at most."""
NOT_OURS: Final = (msgspec.DecodeError, RecursionError, UnicodeEncodeError)
"""Faults of a text that another program has written."""
LONGEST_MESSAGE: Final = 300
"""Characters of a message, at most."""
Row = tuple[int, int, str, Moment, int]
"""Task, attempt, reason, since, and the index of the message in `messages`."""


class PublishedReasons(Struct, frozen=True):
    """Why single rows wait: parked rows, launched rows that have not started, and the first rows of the queues.

    as_of: time of the cycle, by the database's clock.
    left_out: number of further rows that were judged.
    since: since when rows of a queue have been held for a reason, by queue and reason.
    messages: the messages. Many rows have the same one.
    """

    as_of: Moment
    left_out: int
    rows: Sequence[Row]
    messages: Sequence[str]
    since: Mapping[str, Mapping[str, Moment]]


def status_json(status: InstallationStatus) -> bytes:
    """The status. Parked rows, and then idle queues, are left out if it would be too large."""
    shown = replace(status, parked_rows=status.parked_rows[:20])
    written = msgspec.json.encode(shown)
    if len(written) > STATUS_BYTES:
        busy = sorted(status.queues, key=lambda queue: (-queue.waiting, -queue.in_flight, queue.queue))
        shown = replace(shown, parked_rows=(), queues=busy)
        written = msgspec.json.encode(shown)
    while len(written) > STATUS_BYTES and shown.queues:
        most = max(0, len(shown.queues) * STATUS_BYTES // len(written) - 1)
        shown = replace(shown, queues=shown.queues[:most], queues_left_out=len(status.queues) - most)
        written = msgspec.json.encode(shown)
    return written


def what_matters(status: InstallationStatus) -> Any:
    """The part of the status whose change people want to see at once. Times change all the time."""
    queues = [replace(queue, oldest_wait_seconds=None) for queue in status.queues]
    return replace(status, as_of=None, counted_at=None, queues=queues)


def reasons_of(cycle: LastCycle, most: int = MOST_ROWS) -> PublishedReasons:
    """The holds of a cycle: parked rows first, then launched ones, then the others; each in turns of submitters."""
    ordered = in_turns(cycle.told, lambda one: rank(one.hold.reason))
    places: dict[str, int] = {}
    rows: list[Row] = []
    for id_, told in ordered[:most]:
        message = cause_of(told.hold).message[:LONGEST_MESSAGE]
        rows.append((id_, told.attempt, told.hold.reason.value, told.since, places.setdefault(message, len(places))))
    since: dict[str, dict[str, datetime]] = {}
    for (queue, reason), began in cycle.since.items():
        since.setdefault(queue, {})[reason.value] = began
    return PublishedReasons(cycle.at, len(ordered) - len(rows), rows, list(places), since)


def reasons_json(cycle: LastCycle) -> bytes:
    found = reasons_of(cycle)
    written = msgspec.json.encode(found)
    while len(written) > REASONS_BYTES:
        most = len(found.rows) * REASONS_BYTES // len(written) - 1
        if most < 0:
            return msgspec.json.encode(replace(found, rows=(), messages=(), since={}, left_out=len(cycle.told)))
        found = reasons_of(cycle, most)
        written = msgspec.json.encode(found)
    return written


def rank(reason: HoldReason) -> int:
    return 0 if reason in PARKED else 1 if reason is HoldReason.LAUNCHED else 2


def read_reasons(text: str) -> PublishedReasons | None:
    """The reasons that an earlier leader wrote. None: another program or another version wrote the text."""
    try:
        return msgspec.json.decode(text, type=PublishedReasons)
    except NOT_OURS:
        return None


def recalled(cycle: LastCycle, earlier: PublishedReasons) -> LastCycle:
    """The cycle with the times of an earlier leader, where the reason is still the same."""
    known = {(id_, attempt, reason): since for id_, attempt, reason, since, _ in earlier.rows}
    told = {id_: older(one, known.get((id_, one.attempt, one.hold.reason.value))) for id_, one in cycle.told.items()}
    since: dict[QueueReason, datetime] = {}
    for (queue, reason), began in cycle.since.items():
        since[queue, reason] = min(began, earlier.since.get(queue, {}).get(reason.value, began))
    return replace(cycle, told=told, since=since)


def older(told: RowReason, since: datetime | None) -> RowReason:
    return told if since is None or since >= told.since else replace(told, since=since)


RELAUNCHED, PARKED_ROW = "Relaunched", "Parked"
YOUNG: Final = timedelta(minutes=2)
"""Only a younger launch gets an Event when another replica begins to lead."""


def notices_of(cycle: LastCycle, namespace: str) -> Iterator[Notice]:
    """The notices about Jobs after this cycle. Most of them were already written after an earlier one."""
    yield from of_launches(cycle, namespace)
    yield from of_parked_rows(cycle, namespace)


def of_launches(cycle: LastCycle, namespace: str) -> Iterator[Notice]:
    """The notices that another launch follows, each about the Job of an ended launch."""
    pods, now = cycle.picture.cluster.pods, cycle.picture.cluster.cluster_now
    for jobs in cycle.picture.jobs.values():
        for job in jobs if len(jobs) > 1 else ():
            before = launch_before(job, jobs)
            if before is not None and now - job.created_at < YOUNG:
                words = f"launch {job.launch} of attempt {job.attempt} follows{why(before, pods)}"
                yield notice_about(before, namespace, RELAUNCHED, words)


def launch_before(job: Job, jobs: Sequence[Job]) -> Job | None:
    """The newest of the row's Jobs that came before this one."""
    earlier = [one for one in jobs if one.identity[:IN_NAME] == job.identity[:IN_NAME] and number(one) < number(job)]
    return max(earlier, key=number, default=None)


def number(job: Job) -> tuple[int, int]:
    return job.attempt, job.launch


def why(job: Job, pods: Mapping[str, Sequence[Pod]]) -> str:
    end = launch_end(job, pods.get(job.uid, ()))
    return f": {end.reason}" if end is not None else ""


def of_parked_rows(cycle: LastCycle, namespace: str) -> Iterator[Notice]:
    """The notices why rows are parked and what helps, each about the newest Job of the row."""
    for id_, told in cycle.told.items():
        if told.hold.reason not in PARKED:
            continue
        jobs = [one for one in cycle.picture.jobs.get(id_, ()) if one.attempt == told.attempt]
        job = max(jobs, key=number, default=None)
        if job is not None:
            words = f"{told.hold.reason}: {cause_of(told.hold).message}; {advice_of(told.hold).next_step}"
            yield notice_about(job, namespace, PARKED_ROW, words)


def notice_about(job: Job, namespace: str, reason: str, words: str) -> Notice:
    return Notice("Job", f"{namespace}/{job.name}", job.uid, reason, words, is_warning=True)
