"""The status: every waiting row is counted once, what is wrong is told, and the lines for people."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from dispatcher.admission.last_cycle import LastCycle, RowReason, held_since
from dispatcher.admission.snapshot import ClusterSnapshot, plan_load
from dispatcher.commands.explain import parked_only, status_in_words
from dispatcher.model.caches import CacheTotal
from dispatcher.model.jobs import LaunchGroup
from dispatcher.model.reasons import DETAILS, ReasonInWords, advice_of, cause_of
from dispatcher.model.tasks import QueueCount
from dispatcher.model.verdicts import PARKED as PARKED_REASONS
from dispatcher.model.verdicts import Hold, HoldReason, NotReady
from dispatcher.views.status import (
    MOST_PARKED,
    Counts,
    InstallationIdentity,
    InstallationStatus,
    ParkedRow,
    QueueHold,
    QueueStatus,
    ShapeDemand,
    build_status,
    count_reasons,
)
from tests.rig.builders import NOW, a_last_cycle, a_queue, a_snapshot, ago, later
from tests.unit.page_facts import FINE, QUIET

OURS = InstallationIdentity("dispatcher", "1.2.3", "jobs", "pod-1")
NEVER = Hold(HoldReason.DISPATCHER_NOT_READY, "Forbidden: create jobs")


def a_cycle(
    snapshot: ClusterSnapshot, held: Mapping[tuple[str, HoldReason], int] = {}, told: Mapping[int, RowReason] = {}
) -> LastCycle:
    return a_last_cycle(snapshot, told=told, held=held, since=held_since(held, snapshot, {}))


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
    whole = replace(cycle, whole={"default"})
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
    cycle = replace(a_cycle(a_snapshot(a_queue(), a_queue("new")), {("new", HoldReason.POISON): 1}), told=told)
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
    groups = frozenset(LaunchGroup("default", "build", image, "team_a") for image in ("app:2", "app:1"))
    snapshot = a_snapshot(not_ready=NEVER, is_probing=True, quota=quota, failing_groups=groups)
    found = status(a_cycle(snapshot), unhealthy={"access": "create jobs"})
    assert found.unhealthy == {"access": "create jobs"}
    assert found.not_ready is not None
    assert found.not_ready.message == "the dispatcher launches nothing now: Forbidden: create jobs"
    assert found.slowed == [
        "one create at a time, until the API server accepts one",
        "a ResourceQuota is used up: pods 3 of 3",
        "one launch at a time of image app:1 (template build, queue default, submitter team_a): no Pod starts",
        "one launch at a time of image app:2 (template build, queue default, submitter team_a): no Pod starts",
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
    groups = frozenset(LaunchGroup("default", "build", f"{n}-{'x' * 600}", "team_a") for n in range(90))
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
    cycle = replace(a_cycle(a_snapshot(a_queue(), a_queue("b")), {("default", hold.reason): 1}), told=told)
    found = status(cycle, QueueCount("default", 1), QueueCount("b"))
    assert [(one.queue, one.waiting, one.started) for one in found.queues] == [("b", 0, 1), ("default", 1, 1)]


PARKED = ParkedRow(
    task=4711, queue="builds", attempt=2, reason=HoldReason.POISON, message="the API server refuses its Job: image",
    since=ago(60),
)  # fmt: skip


def a_queue_status(name: str = "default", **changes: object) -> QueueStatus:
    return replace(QUIET, queue=name, **changes)


def a_status(*queues: QueueStatus, **changes: object) -> InstallationStatus:
    facts = {"version": "1.2.3", "replica": "pod-1", "in_flight": 3, "max_jobs": 100, "queues": queues}
    return replace(FINE, **facts, **changes)


def test_demand_is_told_shape_by_shape() -> None:
    ask = ShapeDemand(asks="cpu 4", pods=1, has_grown=False, since=None, answer="a Pod like it waits")
    asked = [ask, replace(ask, asks="", pods=1200, answer="")]
    told = status_in_words(replace(a_status(), demand=asked))
    assert "  demand: 1 Pod asks for cpu 4, a Pod like it waits\n  demand: 1,200 Pods ask for a node\n" in told


def test_healthy_installation_is_a_heading_and_a_table() -> None:
    long = a_queue_status(
        "builds", waiting=1204, reasons={"InLine": 4, "QueueCap": 1200}, oldest_wait_seconds=7300, in_flight=20,
        max_jobs=20, share=0.123, starts_per_minute=12.4, ends_per_minute=7.0,
    )  # fmt: skip
    assert status_in_words(a_status(a_queue_status(share=3.0, in_flight=3), long)).splitlines() == [
        "dispatcher 1.2.3: ready, 3 of 100 Jobs",
        "  pod-1 leads; as of 2026-03-14 12:00:00 UTC",
        "",
        "QUEUE    WAITING  JOBS      SHARE  START/END  OLDEST  WAITS FOR",
        "builds   1,204    20 of 20  12%    12.4/7     2 h     QueueCap 1,200, InLine 4",
        "default  0        3         3      0/0        -       -",
    ]


def test_caches_are_told_where_keepers_tell_them() -> None:
    assert "caches" not in status_in_words(a_status())
    assert "\n  caches: 1,340 on 12 nodes, 1.2 TiB\n" in status_in_words(
        a_status(caches=CacheTotal(12, 1340, 1_319_413_953_331))
    )
    assert "\n  caches: 1 on 1 node, 5 KiB\n" in status_in_words(a_status(caches=CacheTotal(1, 1, 5120)))


def test_faults_pauses_and_parked_rows_are_told_with_the_next_step() -> None:
    night = a_queue_status("night", paused_until=later(3600), paused_since=ago(5), note="upgrade")
    for_ever = a_queue_status("old", paused_until=later(3600).replace(year=9999), oldest_wait_seconds=59)
    told = status_in_words(
        a_status(
            night, for_ever, leads=False, unhealthy={"access": "create jobs"}, slowed=["one at a time"],
            templates_differ=['template "new": no'],
            not_ready=ReasonInWords(HoldReason.DISPATCHER_NOT_READY, "it launches nothing"), parked=9,
            parked_rows=[PARKED] * 6,
        )
    )  # fmt: skip
    assert "dispatcher 1.2.3: NOT READY, 3 of 100 Jobs\n  pod-1 does not lead" in told
    mend = "    operator's turn: mend what the message names; /readyz of the dispatcher tells whether that was all\n"
    assert f"  access: create jobs\n  DispatcherNotReady: it launches nothing\n{mend}  slowed: one at a time\n" in told
    assert '\n  template "new": no\n' in told
    assert "  paused until 2026-03-14 13:00:00 UTC, since 2026-03-14 11:59:55 UTC at the latest: upgrade" in told
    assert "  paused until somebody clears it\n" in told
    assert "9 parked rows: each waits for a person" in told
    assert told.count("task 4711") == 5
    assert told.endswith("and 4 more: dispatcher status --parked")


def test_installation_is_ready_without_what_launches_do_not_need() -> None:
    told = status_in_words(a_status(unhealthy={"rights": "create events", "removals": "delete x: 403"}))
    assert told.startswith("dispatcher 1.2.3: ready, ")
    assert "\n  rights: create events\n  removals: delete x: 403\n" in told


def test_parked_rows_alone_are_told_in_full() -> None:
    assert parked_only(a_status(parked=1, parked_rows=[PARKED])).splitlines()[1:] == [
        "1 parked row: it waits for a person",
        "  task 4711 (builds), attempt 2: Poison since 2026-03-14 11:59:00 UTC",
        "    the API server refuses its Job: image",
        "    author's turn: correct the template, or cancel the row and insert one whose Job the API server accepts",
    ]
    assert parked_only(a_status()) == "no row is parked"
    told = parked_only(a_status(parked=150, parked_rows=[PARKED] * 100))
    assert told.endswith("and 50 more: the pages list those of one reason, below /tasks?reason=")


@pytest.mark.parametrize(
    "hold",
    [Hold(reason, f"{detail}: more") for reason in sorted(PARKED_REASONS) for detail in DETAILS.get(reason, ())]
    + [Hold(reason) for reason in sorted(PARKED_REASONS)],
    ids=lambda hold: f"{hold.reason}: {hold.detail}",
)
def test_parked_row_has_the_turn_and_the_step_of_its_explanation(hold: Hold) -> None:
    told = {1: RowReason("default", 1, hold, NOW)}
    parked = status(a_cycle(a_snapshot(), {("default", hold.reason): 1}, told)).parked_rows
    advice = advice_of(hold)
    said = parked_only(a_status(parked=1, parked_rows=parked)).splitlines()[-1]
    assert said == f"    {advice.whose_turn}'s turn: {advice.next_step}"


@pytest.mark.parametrize("why", NotReady)
def test_status_tells_what_mends_a_dispatcher_that_launches_nothing(why: NotReady) -> None:
    hold = Hold(HoldReason.DISPATCHER_NOT_READY, f"{why}: more")
    advice = advice_of(hold)
    told = status_in_words(a_status(not_ready=cause_of(hold)))
    assert f"{why}: more\n    {advice.whose_turn}'s turn: {advice.next_step.removeprefix('nothing: ')}\n" in told


def test_texts_of_others_cannot_steer_a_terminal() -> None:
    hostile = a_queue_status(paused_until=later(60), note="\x1b[2Jgone")
    assert "\N{REPLACEMENT CHARACTER}[2Jgone" in status_in_words(a_status(hostile))
    parked = ParkedRow(task=1, queue="q", attempt=1, reason=HoldReason.POISON, message="\x9b2J", since=NOW)
    told = parked_only(a_status(parked=1, parked_rows=[parked]))
    assert "\x9b" not in told
    assert "\N{REPLACEMENT CHARACTER}2J" in told


def test_rows_that_wait_for_another_launch_are_told_beside_those_that_never_started() -> None:
    told = status_in_words(a_status(a_queue_status("spot", waiting=2, started=1200, reasons={"NoRoomNow": 2})))
    assert "spot   2 + 1,200  0" in told
