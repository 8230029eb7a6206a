"""Every waiting row is counted once, and the status tells what is wrong."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from dispatcher.admission.last_cycle import LastCycle, RowReason, held_since
from dispatcher.admission.snapshot import ClusterSnapshot, plan_load
from dispatcher.model.jobs import LaunchGroup
from dispatcher.model.tasks import QueueCount
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.views.status import (
    MOST_PARKED,
    Counts,
    InstallationIdentity,
    InstallationStatus,
    ParkedRow,
    QueueHold,
    build_status,
    count_reasons,
)
from tests.rig.builders import NOW, a_picture, a_queue, a_snapshot, ago, later

OURS = InstallationIdentity("dispatcher", "1.2.3", "jobs", "pod-1")
NEVER = Hold(HoldReason.DISPATCHER_NOT_READY, "Forbidden: create jobs")


def a_cycle(
    snapshot: ClusterSnapshot, held: Mapping[tuple[str, HoldReason], int] = {}, told: Mapping[int, RowReason] = {}
) -> LastCycle:
    return LastCycle(snapshot, a_picture(), told, frozenset(), held, held_since(held, snapshot, {}), leads=True)


def reasons(due: int, not_due: int = 0, held: Mapping[str, int] = {}, **snapshot: Any) -> Mapping[str, int]:
    """The reasons of queue default, by the last count and by the rows that a cycle held."""
    queue = snapshot.pop("queue", a_queue())
    by_queue = {("default", HoldReason(reason)): number for reason, number in held.items()}
    counts = [QueueCount("default", due, not_due)]
    found = count_reasons(counts, a_cycle(a_snapshot(queue, **snapshot), by_queue), ago(1))
    return {reason: number for (_, reason), number in found.items()}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (reasons(0), {}),
        (reasons(7), {"InLine": 7}),
        (reasons(7, 2, {"NoRoomNow": 5}), {"NoRoomNow": 5, "InLine": 2, "NotDue": 2}),
        (reasons(7, 3, {"Finishing": 8}), {"Finishing": 8, "NotDue": 2}),
        (reasons(7, 3, {"NotDue": 1, "Poison": 2}), {"Poison": 2, "InLine": 5, "NotDue": 3}),
        (reasons(0, held={"NoRoomNow": 9}), {"NoRoomNow": 9}),
        (reasons(7, queue=a_queue(paused_until=later(5))), {"Paused": 7}),
        (reasons(7, held={"Launched": 1}, queue=a_queue(max_jobs=0)), {"Launched": 1, "QueueCap": 6}),
        (reasons(7, max_jobs=0, queue=a_queue(max_jobs=0)), {"QueueCap": 7}),
        (reasons(7, max_jobs=0), {"JobCap": 7}),
        (reasons(7, max_jobs=0, not_ready=NEVER), {"DispatcherNotReady": 7}),
    ],
)
def test_rows_behind_the_judged_ones_wait_for_their_queue_or_their_turn(
    found: Mapping[str, int], expected: Mapping[str, int]
) -> None:
    assert found == expected


def test_count_older_than_the_cycle_adds_no_rows_to_a_queue_that_was_read_whole() -> None:
    """Four of six rows were launched since the count."""
    cycle = a_cycle(a_snapshot(a_queue()), {("default", HoldReason.JOB_CAP): 2})
    counts = [QueueCount("default", 6, 1)]
    whole = msgspec.structs.replace(cycle, whole={"default"})
    assert count_reasons(counts, whole, ago(1)) == {("default", "JobCap"): 2, ("default", "NotDue"): 1}
    assert count_reasons(counts, cycle, ago(1))["default", HoldReason.IN_LINE] == 4


def test_count_newer_than_the_cycle_has_all_rows_that_are_not_due() -> None:
    """The launched row has started since. No row that was not due can have been judged."""
    cycle = a_cycle(a_snapshot(a_queue()), {("default", HoldReason.LAUNCHED): 1})
    found = count_reasons([QueueCount("default", 0, 1)], cycle, later(1))
    assert found == {("default", "Launched"): 1, ("default", "NotDue"): 1}


def test_queues_are_counted_apart() -> None:
    held = {("x", HoldReason.POISON): 1, ("gone", HoldReason.POISON): 4}
    declared = a_snapshot(a_queue("x"), a_queue("y"))
    found = count_reasons([QueueCount("x", 3), QueueCount("y", 1)], a_cycle(declared, held), ago(1))
    assert found == {("x", "Poison"): 1, ("x", "InLine"): 2, ("y", "InLine"): 1}


def test_rows_of_an_undeclared_queue_wait_for_its_declaration() -> None:
    found = count_reasons([QueueCount("nobodys", 3)], a_cycle(a_snapshot()), ago(1))
    assert found == {("nobodys", "PolicyDenied"): 3}


def test_parked_rows_of_a_queue_that_was_declared_after_the_count_are_in_their_number() -> None:
    told = {3: RowReason("new", 1, Hold(HoldReason.POISON), NOW)}
    cycle = msgspec.structs.replace(
        a_cycle(a_snapshot(a_queue(), a_queue("new")), {("new", HoldReason.POISON): 1}), told=told
    )
    found = status(cycle, QueueCount("default", 5))
    assert (found.parked, [one.task for one in found.parked_rows]) == (1, [3])
    assert [one.queue for one in found.queues] == ["default", "new"]


def status(cycle: LastCycle, *counts: QueueCount, unhealthy: Mapping[str, str] = {}) -> InstallationStatus:
    return build_status(OURS, cycle, Counts(ago(9), counts), unhealthy)


def test_status_tells_of_a_queue_its_rows_its_jobs_and_its_pause() -> None:
    snapshot = a_snapshot(
        a_queue("night", weight=3, max_jobs=5, paused_until=later(60)), load=plan_load([("night", "team_a")] * 2)
    )
    (queue,) = status(a_cycle(snapshot), QueueCount("night", 4, 1, ago(50), "upgrade", 60, 10)).queues
    assert (queue.waiting, queue.reasons, queue.oldest_wait_seconds) == (5, {"NotDue": 1, "Paused": 4}, 50)
    assert (queue.in_flight, queue.max_jobs, queue.weight) == (2, 5, 3)
    assert (queue.paused_until, queue.paused_since, queue.note) == (later(60), NOW, "upgrade")
    assert (queue.starts_per_minute, queue.ends_per_minute) == (12, 2)
    assert queue.behind == QueueHold(HoldReason.PAUSED, "its queue is paused: until 2026-03-14 12:01:00 UTC", NOW)


def test_pause_that_is_over_and_a_queue_without_rows_are_told_as_such() -> None:
    snapshot = a_snapshot(a_queue("night", paused_until=ago(60)), a_queue("new"))
    new, night = status(a_cycle(snapshot), QueueCount("night"), QueueCount("new", 1, oldest=later(5))).queues
    assert (night.paused_until, night.paused_since, night.oldest_wait_seconds) == (None, None, None)
    assert (new.weight, new.max_jobs, new.oldest_wait_seconds) == (1, None, 0), "declared after the last cycle"


def test_status_tells_the_first_parked_rows_and_their_number() -> None:
    told = {n: RowReason("default", 1, Hold(HoldReason.POISON, "bad image"), ago(3)) for n in range(2 * MOST_PARKED)}
    told[7] = RowReason("default", 1, Hold(HoldReason.BACKOFF, "5 s"), ago(3))
    cycle = a_cycle(a_snapshot(), {("default", HoldReason.POISON): 300, ("default", HoldReason.BACKOFF): 1}, told)
    found = status(cycle, QueueCount("default", 400))
    assert (found.parked, len(found.parked_rows)) == (300, MOST_PARKED)
    assert found.parked_rows[7].task == 8, "row 7 is not parked"
    assert found.parked_rows[0] == ParkedRow(
        task=0, queue="default", attempt=1, reason=HoldReason.POISON, since=ago(3),
        message="the API server refuses its Job: bad image",
    )  # fmt: skip


def test_status_tells_what_is_missing_and_what_slows() -> None:
    quota = Hold(HoldReason.QUOTA_EXCEEDED, "pods 3 of 3")
    groups = frozenset({LaunchGroup("default", "build", "app:2"), LaunchGroup("default", "build", "app:1")})
    snapshot = a_snapshot(not_ready=NEVER, is_probing=True, quota=quota, failing_groups=groups)
    found = status(a_cycle(snapshot), unhealthy={"access": "create jobs"})
    assert found.unhealthy == {"access": "create jobs"}
    assert found.not_ready is not None
    assert found.not_ready.message == "the dispatcher launches nothing now: Forbidden: create jobs"
    assert found.slowed == [
        "one create at a time, until the API server accepts one",
        "a ResourceQuota is used up: pods 3 of 3",
        "one launch at a time of image app:1 (template build, queue default): no Pod starts",
        "one launch at a time of image app:2 (template build, queue default): no Pod starts",
    ]
    calm = status(a_cycle(a_snapshot()))
    assert (calm.not_ready, calm.slowed, calm.unhealthy, calm.parked) == (None, [], {}, 0)
    assert (calm.installation, calm.version, calm.jobs_namespace, calm.replica) == (
        "dispatcher",
        "1.2.3",
        "jobs",
        "pod-1",
    )


def test_long_texts_and_long_lists_are_cut() -> None:
    """A submitter chooses images, and an operator notes. The ConfigMap has room for so much."""
    groups = frozenset(LaunchGroup("default", "build", f"{n}-{'x' * 600}") for n in range(90))
    cycle = a_cycle(a_snapshot(a_queue(), failing_groups=groups))
    found = status(cycle, QueueCount("default", note="n" * 5000), unhealthy={"database": "f" * 5000})
    assert (len(found.slowed), found.slowed[-1]) == (21, "and 70 more")
    assert max(map(len, found.slowed)) == len(found.queues[0].note or "") == len(found.unhealthy["database"]) == 300


def test_rows_that_have_started_and_wait_again_are_counted_apart() -> None:
    hold = Hold(HoldReason.NO_ROOM_NOW)
    told = {
        1: RowReason("default", 1, hold, NOW, has_started=True), 2: RowReason("default", 1, hold, NOW),
        3: RowReason("b", 1, hold, NOW, has_started=True),
    }  # fmt: skip
    cycle = msgspec.structs.replace(
        a_cycle(a_snapshot(a_queue(), a_queue("b")), {("default", hold.reason): 1}), told=told
    )
    found = status(cycle, QueueCount("default", 1), QueueCount("b"))
    assert [(one.queue, one.waiting, one.started) for one in found.queues] == [("b", 0, 1), ("default", 1, 1)]
