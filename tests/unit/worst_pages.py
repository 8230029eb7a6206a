"""Answers that are as large as answers can be: every list is full, and every text consists of one character."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from msgspec.structs import replace

from dispatcher.model.history import BatchStatus, LaunchFacts, ListedRow, Percentiles
from dispatcher.model.reasons import ReasonInWords, Turn
from dispatcher.model.tasks import Status
from dispatcher.model.verdicts import HoldReason
from dispatcher.settings.loading import SettingSource
from dispatcher.views.about import AboutPage, Freshness, ReadinessLine
from dispatcher.views.answers import Refusal
from dispatcher.views.explanation import Explanation
from dispatcher.views.failures import FailureGroup, FailuresPage
from dispatcher.views.first_page import (
    MINUTES,
    MOST_CELLS,
    EstimateRecord,
    NodeCell,
    OverviewPage,
    QueueHour,
    overview_page,
)
from dispatcher.views.launches import CacheNow
from dispatcher.views.node_room import HeldRoom, NodesPage
from dispatcher.views.nodes import FitSummary, NodeFit, NodeGroup
from dispatcher.views.row_page import CopyCommand, PreviewedJob, RowPage, Span, TimeKind
from dispatcher.views.rows import BatchesPage, RowsPage
from dispatcher.views.status import QueueHold
from tests.rig.builders import NOW
from tests.unit.page_facts import EMPTY, ENDED, FINE, NODE, NODES, QUEUE, ROW, SETTINGS

ID: Final = 2**63 - 1
DNS: Final = "n" * 253
QUEUE_NAME: Final = "q" * 63
REASONS: Final = dict.fromkeys(HoldReason, 12_345)
NUMBERS: Final = [1000.5 + 17 * (minute % 7) for minute in range(MINUTES)]
HOUR: Final = QueueHour(NUMBERS, NUMBERS[::-1], NUMBERS, 60.0)
STATUSES: Final = dict.fromkeys(("waiting", "processing", "succeeded", "failed", "cancelled"), 12_345)


def overview(sign: str) -> OverviewPage:
    names = [f"{number:04}{'q' * 59}" for number in range(1000)]
    queues = [replace(QUEUE, queue=name, waiting=9, reasons=REASONS, note=sign * 300) for name in names]
    faults = {f"check {number}": sign * 300 for number in range(20)}
    status = replace(FINE, queues=queues, unhealthy=faults, templates_differ=[sign * 300] * 20)
    cells = [NodeCell(DNS, 25, 0.5, 1)] * MOST_CELLS
    return overview_page(status, lambda _: HOUR, NOW, cells, EstimateRecord())


def tasks(sign: str, number: int = 500) -> RowsPage:
    row = ListedRow(
        task=ID, queue=QUEUE_NAME, status="failed", attempt=99, priority=1000, template=sign * 63,
        submitted_by=sign * 63, created_at=NOW, run_at=NOW, started_at=NOW, finished_at=NOW, reason=None, message=None,
        error=sign * 300, batch=sign * 200, progress=0.123, note=sign * 200,
    )  # fmt: skip
    return RowsPage(NOW, NOW, [replace(row, task=ID - place) for place in range(number)], ID - number + 1, 10_000, True)


def groups(sign: str) -> list[FailureGroup]:
    group = FailureGroup(
        key="f" * 16, status="parked", reason=HoldReason.EXITED_WITHOUT_REPORT, template=sign * 63, image=sign * 8192,
        message=sign * 200, example=f"{sign * 299}!", count=3000, first_seen=NOW, last_seen=NOW, by_hour=[125] * 24,
        tasks=[ID] * 3,
    )  # fmt: skip
    return [group] * 100


def failures(sign: str) -> FailuresPage:
    return FailuresPage(
        as_of=NOW, leads=True, groups=groups(sign), groups_left_out=2900, failed=3000, failed_since=NOW, parked=2000,
        parked_left_out=7,
    )  # fmt: skip


def batches(sign: str, number: int = 20) -> BatchesPage:
    one = BatchStatus(
        queue=QUEUE_NAME, submitted_by=sign * 63, batch=sign * 200, tasks=61_725, by_status=STATUSES,
        first_started_at=NOW, last_finished_at=NOW, is_whole=False,
    )  # fmt: skip
    return BatchesPage(as_of=NOW, batches=[one] * number, failures=groups(sign) if number == 1 else [])


def queue(sign: str) -> Any:
    row = replace(ROW, message=sign * 300, template=sign * 63, submitted_by=sign * 63)
    settings = replace(SETTINGS, note=sign * 2000, owner_role=sign * 63, submit_role=sign * 63)
    times = Percentiles(1000, 1.0, 3661.0, 86_400.0)
    return replace(
        EMPTY, settings=settings, next=(row,) * 50, ended=(replace(ENDED, node=sign * 253),) * 20, waiting=12_345,
        reasons=REASONS, hour=HOUR, counted_since=NOW, behind=QueueHold(HoldReason.QUEUE_CAP, sign * 300, NOW),
        times=replace(EMPTY.times, wait=times, run=times),
    )  # fmt: skip


def nodes(sign: str) -> NodesPage:
    size = {f"example.com/{number:02}{'r' * 50}": "123456789" for number in range(40)} | {"cpu": "1", "memory": "9Ei"}
    held = HeldRoom(DNS, DNS, size, NOW)
    node = replace(
        NODE, name=DNS, taints=(sign * 316,) * 50, size=size, others=size, ours=size, coming=size, reserved=size,
        free=size, reservations=(held,) * 50, warm={QUEUE_NAME + str(number): 2000 for number in range(9)},
    )  # fmt: skip
    answers = (NodeGroup(5000, sign * 300, (DNS,) * 3),) * 10
    fits = FitSummary(
        cpu=sign * 40, memory=sign * 40, pods=ID, nodes=5000, most=(NodeFit(DNS, ID),) * 20, answers=answers
    )
    return replace(NODES, nodes=(node,) * 500, fits=fits, total=5000)


def row(sign: str) -> RowPage:
    one = LaunchFacts(
        attempt=99, launch=3, job=DNS, pod=sign * 253, node=sign * 253, created_at=NOW, started_at=NOW, ended_at=NOW,
        outcome="failed", exit_code=255, reason=sign * 8192, error=f"{sign * 8191}!", logs=DNS,
        cache=f"cold: kube-scheduler did not choose {DNS} or {DNS} or {DNS}",
    )  # fmt: skip
    found = Explanation(
        task=ID, status=Status.WAITING, queue=QUEUE_NAME, attempt=99, reason=HoldReason.LAUNCHES_EXHAUSTED,
        message=sign * 8192, since=NOW, as_of=NOW, whose_turn=Turn.SUBMITTER, next_step=sign * 2000, position=10_000,
        position_of=10_000, before=REASONS, nodes=[NodeGroup(5000, sign * 300, (DNS,) * 3, NOW)] * 10,
        also=[ReasonInWords(HoldReason.NO_ROOM_NOW, sign * 2000)] * 8, launches=[one] * 400,
        cache=CacheNow(message="warm on 5,000 nodes", nodes=(DNS,) * 5000, bytes=2**60),
    )  # fmt: skip
    span = Span(step=TimeKind.RUNNING, began=NOW, ended=NOW + timedelta(hours=1), seconds=3600.0, attempt=99, launch=3)
    return RowPage(
        as_of=NOW, task=ID, queue=QUEUE_NAME, status=Status.WAITING, template=sign * 63, submitted_by=sign * 63,
        priority=1000, batch=sign * 200, labels={f"{number:02}{sign * 61}": sign * 200 for number in range(16)},
        progress=0.5, note=sign * 200, attempt=99, failures=99, max_failures=100, launches_used=3, max_launches=3,
        timeout_seconds=604_800, created_at=NOW, run_at=NOW, started_at=NOW, heartbeat_at=NOW, finished_at=NOW,
        cancel_requested_at=NOW, error=sign * 8192, explain=found, timeline=[span] * 800,
        preview=PreviewedJob({"env": [{"name": sign * 255}] * 256}),
        commands=[CopyCommand("what it does " * 5, f"kubectl describe -n {DNS} job {DNS}")] * 8,
    )  # fmt: skip


def about(sign: str) -> AboutPage:
    setting = SettingSource("DISPATCHER_" + "S" * 40, sign * 4000, sign * 300, sign * 300, "what it means " * 20)
    return AboutPage(
        as_of=NOW, installation="dispatcher", version="1", jobs_namespace="n" * 63, own_namespace="n" * 63, replica=DNS,
        leads=True, lease=DNS, leader=DNS, is_ready=False, checks=[ReadinessLine("a check", sign * 4000)] * 12,
        missing_rights=[sign * 1000] * 60, stores=[Freshness("a store", 12.5, 30.0, True, sign * 4000)] * 12,
        settings=[setting] * 80, docs={"docs/operator.md": "what it is for"},
    )  # fmt: skip


def refused(sign: str) -> Refusal:
    return Refusal(400, sign * 9000)


def filters(sign: str) -> Mapping[str, str]:
    """As many filters as an address may have."""
    return {"batch": sign * 200, "queue": "q" * 3000}
