"""Every metric, by the names of INTERFACE 7. Base units; no label ever holds a task, Job or node name."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

LATENCY: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)

WAITING_TASKS: Final = Gauge("dispatcher_waiting_tasks", "Judged rows that are held", ["queue", "reason"])
PARKED_TASKS: Final = Gauge("dispatcher_parked_tasks", "Rows held until somebody acts", ["reason"])
JOBS: Final = Gauge("dispatcher_jobs", "Jobs of this installation", ["queue", "state"])
JOB_CREATES: Final = Counter("dispatcher_job_creates_total", "Creates by what their answer meant", ["outcome"])
INSERT_TO_JOB: Final = Histogram(
    "dispatcher_insert_to_job_seconds", "From a row's due time to its first Job", buckets=(*LATENCY, 60, 600)
)
CYCLE_SECONDS: Final = Histogram("dispatcher_cycle_seconds", "One look: rows, judgement, plan", buckets=LATENCY)
CYCLE_TASKS: Final = Gauge("dispatcher_cycle_tasks", "Rows judged in the last cycle, by verdict", ["verdict"])
SWEEP_DELETES: Final = Counter("dispatcher_sweep_deletes_total", "Deletes by outcome", ["outcome"])
LEADER: Final = Gauge("dispatcher_leader", "1: this replica may write now")
JANITOR_ROWS: Final = Counter(
    "dispatcher_janitor_rows_total", "Rows that the janitor moved on, by what it did", ["action"]
)
STORE_AGE: Final = Gauge("dispatcher_store_age_seconds", "Since the last proof of freshness", ["resource"])
RELISTS: Final = Counter("dispatcher_relists_total", "Full lists", ["resource", "cause"])
DATABASE_UP: Final = Gauge("dispatcher_database_up", "1: rows can be read from the primary")
KUBE_REQUESTS: Final = Counter(
    "dispatcher_kube_requests_total", "Requests to the API server", ["verb", "resource", "code"]
)
KUBE_SECONDS: Final = Histogram(
    "dispatcher_kube_request_seconds", "Time of requests to the API server", ["verb", "resource"], buckets=LATENCY
)
FAULTS: Final = Counter("dispatcher_faults_total", "Rounds of a component that ended in a fault", ["component"])
