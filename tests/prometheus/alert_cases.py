"""The causes of each alert as samples, and what is near to a cause and must stay silent. Each begins at minute 60."""

from typing import Final

from tests.prometheus.promtool import HEALTHY, Case, Firing

DAY: Final = 24 * 60


def page(alert: str) -> list[Firing]:
    return [Firing(f"Dispatcher{alert}", "page")]


def ticket(alert: str) -> list[Firing]:
    return [Firing(f"Dispatcher{alert}", "ticket")]


LEADER: Final = 'dispatcher_leader{instance="a"}'
UP: Final = 'dispatcher_database_up{instance="a"}'
CYCLES: Final = 'dispatcher_last_round_timestamp_seconds{instance="a",component="dispatch"}'
JANITOR: Final = 'dispatcher_last_round_timestamp_seconds{instance="j",component="janitor"}'
IN_LINE: Final = 'dispatcher_waiting_tasks{instance="a",queue="default",reason="InLine"}'
LAUNCHED: Final = 'dispatcher_waiting_tasks{instance="a",queue="default",reason="Launched"}'
UNANSWERED: Final = 'dispatcher_demand_unanswered_seconds{instance="a"}'
OLDEST: Final = 'dispatcher_oldest_wait_seconds{instance="a",queue="default"}'
FIRST: Final = 'dispatcher_launches_total{instance="a",launch="first"}'
AGAIN: Final = 'dispatcher_launches_total{instance="a",launch="again"}'
CREATED: Final = 'dispatcher_job_creates_total{instance="a",outcome="created"}'
FORBIDDEN: Final = 'dispatcher_job_creates_total{instance="a",outcome="forbidden"}'
DELETED: Final = 'dispatcher_sweep_deletes_total{instance="a",outcome="deleted"}'
KEPT_JOBS: Final = 'dispatcher_sweep_deletes_total{instance="a",outcome="failed"}'
STORE: Final = 'dispatcher_store_age_seconds{instance="a",resource="jobs"}'
LATE: Final = 'dispatcher_extender_request_seconds_count{instance="e",verb="filter",outcome="late"}'
QUICK: Final = 'dispatcher_extender_request_seconds_bucket{instance="e",le="0.5"}'
FAULT: Final = 'dispatcher_extender_config_faults{instance="e",fault="uncached"}'
CERTIFICATE: Final = 'dispatcher_credential_end_timestamp_seconds{instance="e",credential="server-certificate"}'
TOKEN: Final = 'dispatcher_credential_end_timestamp_seconds{instance="a",credential="token"}'
FOLLOWED: Final = 'dispatcher_store_age_seconds{instance="a",resource="nodereservations"}'
DISK: Final = 'dispatcher_cache_disk_used_ratio{instance="k"}'
KEPT: Final = 'dispatcher_last_round_timestamp_seconds{instance="k",component="cache-keeper"}'
ENDED: Final = 'dispatcher_tasks_ended_total{instance="a",queue="default",status="succeeded"}'
CANCELLED: Final = 'dispatcher_tasks_ended_total{instance="a",queue="default",status="cancelled"}'
FAILED: Final = 'dispatcher_tasks_ended_total{instance="a",queue="default",status="failed"}'
REJECTING: Final = 'dispatcher_rejecting_nodes{instance="a"}'
UNASKED: Final = " ".join(["NaN"] * 91)
GONE: Final = {name: values.replace("{samples}", "60") + " stale" for name, values in HEALTHY.items() if '"e"' in name}
"""The last sample of an extender is that of minute 60."""
HALTED: Final = {FIRST: "0+30x60 1800x{samples}", CREATED: "0+30x60 1800x{samples}"}
"""The last launch is that of minute 60."""


def waiting(reason: str) -> dict[str, str]:
    return {f'dispatcher_waiting_tasks{{instance="a",queue="default",reason="{reason}"}}': "3x{samples}"}


HEALTH: Final = (
    Case("health", {}, {5: [], 60: [], 90: []}),
    Case("health for two days", {}, {DAY: [], 2 * DAY: []}, 2 * DAY, 5),
    Case("nothing to do", {**HALTED, IN_LINE: "", OLDEST: ""}, {80: [], 90: []}),
)
LAUNCHES: Final = (
    Case("rows in line, and no launch", HALTED, {70: [], 80: page("NothingLaunched"), 90: page("NothingLaunched")}),
    Case("a dispatcher that is not ready", {**HALTED, **waiting("NoRoomNow"), **waiting("DispatcherNotReady")},
         {70: [], 80: page("NothingLaunched")}),
    Case("a policy that changes the Jobs", {**HALTED, **waiting("JobChanged"), IN_LINE: ""},
         {70: [], 80: page("NothingLaunched")}),
    *(Case(f"rows in line behind {reason}", {**HALTED, **waiting(reason)}, {80: [], 90: []})
      for reason in ("NoRoomNow", "SubmitterCap", "QuotaExceeded")),
    Case("rows that are not due", {**HALTED, **waiting("NotDue"), IN_LINE: ""}, {90: []}),
    Case("cycles that do not end", {**HALTED, CYCLES: "0+60x60 3600x{samples}", IN_LINE: ""},
         {64: [], 80: page("NothingLaunched")}),
    Case("no cycle for want of a database",
         {**HALTED, CYCLES: "0+60x60 3600x{samples}", UP: "1x60 0x{samples}"}, {61: [], 80: page("DatabaseAway")}),
    Case("launches that are lost", {AGAIN: "0x60 0+10x{samples}"}, {65: [], 90: ticket("Relaunches")}),
    Case("few launches that are lost", {AGAIN: "0+1x{samples}"}, {60: [], 90: []}),
    Case("forbidden creates", {FORBIDDEN: "0x60 0+6x{samples}"}, {70: [], 75: ticket("CreateErrors")}),
    Case("three forbidden creates", {FORBIDDEN: "0x60 0+1x3 3x{samples}"}, {63: [], 75: []}),
    Case("deletes that a policy refuses", {KEPT_JOBS: "0x60 0+6x{samples}"}, {70: [], 85: ticket("DeleteErrors")}),
    Case("one Job that stays beside many that go", {KEPT_JOBS: "0+1x{samples}", DELETED: "0+30x{samples}"}, {90: []}),
    Case("one create in a thousand", {FORBIDDEN: "0+1x{samples}", CREATED: "0+1000x{samples}"}, {60: [], 90: []}),
)  # fmt: skip
WAITS: Final = (
    Case("a long wait in a new queue", {OLDEST: "_x60 1900+60x{samples}"}, {65: [], 75: ticket("OldestWait")}),
    Case("half an hour in a new queue", {OLDEST: "1700x{samples}"}, {60: [], 90: []}),
    Case("a wait longer than usual, for ten hours", {OLDEST: f"40x{DAY // 5} 2000+300x{{samples}}"},
         {DAY + 5: [], DAY + 20: ticket("OldestWait"), DAY + 600: ticket("OldestWait")}, DAY + 600, 5),
    Case("a usual wait", {OLDEST: "3000x{samples}"}, {DAY + 300: []}, DAY + 300, 5),
    Case("the batch of each night", {OLDEST: f"40x120 3000x12 40x{DAY // 5 - 13} 3000x{{samples}}"},
         {DAY + 610: [], DAY + 640: [], DAY + 780: ticket("OldestWait")}, DAY + 780, 5),
    Case("a paused queue", {OLDEST: "_x60 1900+60x{samples}", **waiting("Paused")}, {75: [], 90: []}),
    Case("demand without an answer", {UNANSWERED: "_x60 3000+60x{samples}"},
         {70: [], 80: ticket("DemandUnanswered")}),
    Case("demand that is answered", {UNANSWERED: "_x60 3000+60x9 0x{samples}"}, {85: []}),
    Case("a node that rejects Pods", {REJECTING: "0x60 1x{samples}"}, {63: [], 70: ticket("NodeRejects")}),
    Case("a node that rejects Pods for three minutes", {REJECTING: "0x60 1x2 0x{samples}"}, {64: [], 70: [], 90: []}),
    Case("a node that rejects Pods each time it is tried again", {REJECTING: "0x60 1x9 0x3 1x9 0x3 1x9 0x{samples}"},
         {68: ticket("NodeRejects"), 73: ticket("NodeRejects"), 88: ticket("NodeRejects"), 110: ticket("NodeRejects"),
          135: []}, 140),
    Case("a finalizer that nobody takes away",
         {'dispatcher_kept_objects{instance="a",finalizer="backup.example/copy"}': "_x60 3x{samples}"},
         {68: [], 75: ticket("ObjectsKept")}),
    Case("parked rows", {'dispatcher_parked_tasks{instance="a",reason="Poison"}': "_x60 2x{samples}"},
         {70: [], 80: ticket("ParkedRows")}),
    Case("one row of the night that fails", {FAILED: "0x60 1x{samples}", ENDED: "0x{samples}"},
         {60: [], 65: ticket("RowsFail"), 110: ticket("RowsFail"), 125: []}, 130),
    Case("one row of eleven that fails", {FAILED: "0+1x{samples}"}, {30: [], 90: []}),
    Case("one row of six that fails", {FAILED: "0x60 0+2x{samples}"}, {61: [], 125: ticket("RowsFail")}, 130),
    Case("failures beside many rows that are cancelled",
         {FAILED: "0x60 0+2x{samples}", CANCELLED: "0+100x{samples}"}, {61: [], 125: ticket("RowsFail")}, 130),
    Case("a leader that begins anew", {FAILED: "0+1x60 0+1x{samples}", ENDED: "0+10x60 0+10x{samples}"},
         {62: [], 90: []}),
)  # fmt: skip
PROGRAMS: Final = (
    Case("no replica that leads", {LEADER: "1x60 0x{samples}", IN_LINE: "5x60 stale", **HALTED},
         {61: [], 65: page("NoLeader")}),
    Case("another leader", {LEADER: "1x60 0x{samples}", 'dispatcher_leader{instance="b"}': "0x60 1x{samples}"},
         {61: [], 65: [], 90: []}),
    Case("no program at all", {name: values.replace("{samples}", "60") + " stale" for name, values in HEALTHY.items()},
         {61: [], 65: page("NoLeader"), 85: [*page("NoLeader"), *ticket("JanitorSilent")]}),
    Case("no database", {name: "1x60 0x{samples}" for name in HEALTHY if "database_up" in name},
         {61: [], 65: page("DatabaseAway")}),
    Case("no database for the janitor", {'dispatcher_database_up{instance="j"}': "1x60 0x{samples}"},
         {70: [], 80: ticket("DatabaseAway")}),
    Case("no database for a replica that does not lead", {'dispatcher_database_up{instance="b"}': "1x60 0x{samples}"},
         {70: [], 80: ticket("DatabaseAway")}),
    Case("no launch beside a replica without a database",
         {**HALTED, 'dispatcher_database_up{instance="b"}': "0x{samples}"},
         {10: [], 50: ticket("DatabaseAway"), 80: [*ticket("DatabaseAway"), *page("NothingLaunched")]}),
    Case("a leader without a database", {UP: "1x60 0x{samples}"}, {61: [], 65: page("DatabaseAway")}),
    Case("no look at rows, for want of an API server", {'dispatcher_database_up{instance="j"}': UNASKED, **HALTED},
         {65: [], 80: page("NothingLaunched")}),
    Case("a store without proof", {STORE: "20x60 20+60x{samples}"}, {63: [], 67: ticket("StoreStale")}),
    Case("a store that is proven each 90 s", {STORE: "90x{samples}"}, {90: []}),
    Case("a janitor that hangs", {JANITOR: "0+60x60 3600x{samples}"}, {74: [], 82: ticket("JanitorSilent")}),
    Case("a janitor that is gone", {JANITOR: "0+60x60 stale"}, {74: [], 82: ticket("JanitorSilent")}),
    Case("a janitor without one round", {JANITOR: "0x{samples}"}, {10: [], 25: ticket("JanitorSilent")}),
    Case("a janitor that begins anew", {JANITOR: "0+60x60 0 0 3720+60x{samples}"}, {62: [], 82: []}),
    Case("no janitor", {JANITOR: ""}, {60: [], 90: []}),
)  # fmt: skip
EXTENDER: Final = (
    Case("late answers", {LATE: "0+2x60 120+100x{samples}"}, {65: [], 80: page("ExtenderLate")}),
    Case("slow answers", {QUICK: "0+602x60 36120+590x{samples}"}, {65: [], 80: page("ExtenderLate")}),
    Case("an extender that is gone", GONE, {65: [], 80: page("ExtenderLate")}),
    Case("an extender that is gone while no row waits for a Pod", {**GONE, LAUNCHED: ""}, {80: [], 90: []}),
    Case("a scheduler that was taken out", {**GONE, FOLLOWED: "20x60 stale"}, {80: [], 90: []}),
    Case("an idle extender", {name: "7x{samples}" for name in HEALTHY if "extender_request" in name}, {90: []}),
    Case("whole nodes", {FAULT: "0x60 1x{samples}"}, {63: [], 70: ticket("ExtenderMisconfigured")}),
    Case("a mended configuration", {FAULT: "1x60 0x{samples}"}, {61: []}),
)  # fmt: skip
ENDS: Final = (
    Case("a certificate of another week", {CERTIFICATE: f"{604800 + 3600}x{{samples}}"},
         {70: [], 80: ticket("CertificateEnds")}),
    Case("a certificate of another day", {CERTIFICATE: f"{86400 + 3600}x{{samples}}"},
         {59: ticket("CertificateEnds"), 80: page("CertificateEnds")}),
    Case("a certificate that has ended", {CERTIFICATE: "3600x{samples}"}, {90: page("CertificateEnds")}),
    Case("a token that is not renewed", {TOKEN: "1000+60x60 4600x{samples}"}, {71: [], 75: page("TokenEnds")}),
    Case("a token of a program beside", {TOKEN.replace('"a"', '"k"'): "1000+60x60 4600x{samples}"},
         {71: [], 75: ticket("TokenEnds")}),
    Case("a token of one replica of two",
         {TOKEN: "1000+60x60 4600x{samples}", TOKEN.replace('"a"', '"b"'): "1000+60x{samples}"},
         {71: [], 75: ticket("TokenEnds")}),
    Case("a token that tells no end", {TOKEN: ""}, {90: []}),
)  # fmt: skip
CACHES: Final = (
    Case("a disk that stays full", {DISK: "0.7x60 0.81x{samples}"}, {119: [], 125: ticket("CacheDiskFull")}, 140),
    Case("a disk that is full for half an hour", {DISK: "0.7x60 0.95x30 0.7x{samples}"}, {89: [], 130: []}, 140),
    Case("a keeper that ends no round", {KEPT: "0+60x60 3600x{samples}"},
         {119: [], 140: ticket("CacheKeeperSilent")}, 150),
    Case("a keeper that is gone", {KEPT: "0+60x60", DISK: "0.7x60"}, {140: []}, 140),
)  # fmt: skip
CASES: Final = {
    "health": HEALTH, "launches": LAUNCHES, "waits": WAITS, "programs": PROGRAMS, "extender": EXTENDER, "ends": ENDS,
    "caches": CACHES,
}  # fmt: skip
