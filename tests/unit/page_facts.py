"""What the pages of the dashboard are made of, in tests."""

from __future__ import annotations

from msgspec.structs import replace

from dispatcher.model.history import EndedTask, Percentiles, QueueSettings
from dispatcher.model.reasons import Turn
from dispatcher.model.verdicts import HoldReason
from dispatcher.views.explanation import Estimate
from dispatcher.views.node_room import HeldRoom, NodeRoom, NodesPage
from dispatcher.views.queue import NextRow, QueuePage, QueueTimes
from dispatcher.views.server import Pages
from dispatcher.views.status import InstallationIdentity, InstallationStatus, QueueStatus
from tests.rig.builders import NOW, ago, later

PAGES = Pages(InstallationIdentity("dispatcher", "1", "jobs", "me"), "/proxy")
FINE = InstallationStatus(
    installation="dispatcher", version="1", jobs_namespace="jobs", replica="me", leads=True, as_of=NOW, counted_at=NOW,
    unhealthy={}, not_ready=None, slowed=[], in_flight=0, max_jobs=10, queues=[], parked=0, parked_rows=[],
)  # fmt: skip
QUIET = QueueStatus(
    queue="quiet", waiting=0, reasons={}, oldest_wait_seconds=None, in_flight=0, max_jobs=None, weight=1, share=0.0,
    paused_until=None, paused_since=None, note=None, starts_per_minute=0.0, ends_per_minute=0.0,
)  # fmt: skip
QUEUE = replace(QUIET, queue="default", waiting=1, reasons={HoldReason.JOB_CAP: 1}, oldest_wait_seconds=601.0)
HOSTILE = "</bdi><script>alert(1)</script>\u202e\U0001f600\"'{{ 7 * 7 }}&lt;" + "w" * 300
SETTINGS = QueueSettings(
    weight=1, max_jobs=None, max_jobs_per_submitter=None, max_pending=1, paused_until=None, owner_role=None,
    submit_role=None, max_waiting_per_submitter=None, fair_submitters=False, note=None, inherited=(),
)  # fmt: skip
EMPTY = QueuePage(
    queue="default", waiting=0, reasons={}, oldest_wait_seconds=None, in_flight=0, max_jobs=None, weight=1, share=0,
    paused_until=None, paused_since=None, note=None, starts_per_minute=0, ends_per_minute=0, as_of=NOW, leads=True,
    counted_at=NOW, settings=SETTINGS, next=(), ended=(), times=QueueTimes(1000, Percentiles(0), Percentiles(0)),
    hour=None, counted_since=None,
)  # fmt: skip
ROW = NextRow(
    task=2**62, place=1, priority=100, attempt=1, submitted_by=HOSTILE, template=HOSTILE, created_at=ago(60),
    reason=HoldReason.NO_ROOM_NOW, message=HOSTILE, since=None, whose_turn=Turn.CLUSTER,
    estimate=Estimate(later(60), later(120), 40),
)  # fmt: skip
ENDED = EndedTask(
    task=7, outcome="succeeded", attempt=1, submitted_by=HOSTILE, finished_at=NOW, run_seconds=2.5, node=HOSTILE
)
NODE = NodeRoom(
    name=HOSTILE, ready=False, cordoned=True, taints=(HOSTILE,), size={"cpu": "4", "memory": "8Gi", HOSTILE: "10"},
    others={"cpu": "1"}, ours={"cpu": "500m", HOSTILE: "2"}, coming={"cpu": "500m"}, reserved={"cpu": "1"},
    free={"cpu": "1", "memory": "8Gi", HOSTILE: "10"}, kept_for=2**62, rejects="",
    reservations=(HeldRoom(HOSTILE, HOSTILE, {"cpu": "1"}, later(60)),), warm={"maps": 3}, fits=2,
)  # fmt: skip
NODES = NodesPage(
    as_of=NOW, total=1, nodes=(NODE,), next_after=None, fits=None, reservations_are_watched=True, warm_ends=2000
)
