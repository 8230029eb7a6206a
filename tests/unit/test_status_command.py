"""The status as lines for people."""

import msgspec

from dispatcher.commands.explain import parked_only, status_in_words
from dispatcher.model.caches import CacheTotal
from dispatcher.model.reasons import ReasonInWords
from dispatcher.model.verdicts import HoldReason
from dispatcher.views.status import InstallationStatus, ParkedRow, QueueStatus, ShapeDemand
from tests.rig.builders import NOW, ago, later

PARKED = ParkedRow(
    task=4711, queue="builds", attempt=2, reason=HoldReason.POISON, message="the API server refuses its Job: image",
    since=ago(60),
)  # fmt: skip


def a_queue_status(name: str = "default", **changes: object) -> QueueStatus:
    facts = {
        "queue": name, "waiting": 0, "reasons": {}, "oldest_wait_seconds": None, "in_flight": 0, "max_jobs": None,
        "weight": 1, "share": 0.0, "paused_until": None, "paused_since": None, "note": None,
        "starts_per_minute": 0.0, "ends_per_minute": 0.0,
    }  # fmt: skip
    return QueueStatus(**{**facts, **changes})  # type: ignore[arg-type] # facts of many types


def a_status(*queues: QueueStatus, **changes: object) -> InstallationStatus:
    facts = {
        "installation": "dispatcher", "version": "1.2.3", "jobs_namespace": "jobs", "replica": "pod-1", "leads": True,
        "as_of": NOW, "counted_at": NOW, "unhealthy": {}, "not_ready": None, "slowed": (), "in_flight": 3,
        "max_jobs": 100, "queues": queues, "parked": 0, "parked_rows": (),
    }  # fmt: skip
    return InstallationStatus(**{**facts, **changes})  # type: ignore[arg-type] # facts of many types


def test_demand_is_told_shape_by_shape() -> None:
    ask = ShapeDemand(asks="cpu 4", pods=1, has_grown=False, since=None, answer="a Pod like it waits")
    asked = [ask, msgspec.structs.replace(ask, asks="", pods=1200, answer="")]
    told = status_in_words(msgspec.structs.replace(a_status(), demand=asked))
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
    assert "  access: create jobs\n  DispatcherNotReady: it launches nothing\n  slowed: one at a time\n" in told
    assert '\n  template "new": no\n' in told
    assert "  paused until 2026-03-14 13:00:00 UTC, since 2026-03-14 11:59:55 UTC at the latest: upgrade" in told
    assert "  paused until somebody clears it\n" in told
    assert "9 parked rows: each waits for a person" in told
    assert told.count("task 4711") == 5
    assert told.endswith("and 4 more: dispatcher status --parked")


def test_parked_rows_alone_are_told_in_full() -> None:
    assert parked_only(a_status(parked=1, parked_rows=[PARKED])).splitlines()[1:] == [
        "1 parked row: it waits for a person",
        "  task 4711 (builds), attempt 2: Poison since 2026-03-14 11:59:00 UTC",
        "    the API server refuses its Job: image",
        "    author's turn: correct the template, or cancel the row and insert one whose Job the API server accepts",
    ]
    assert parked_only(a_status()) == "no row is parked"


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
