"""All metrics, in base units. No label holds the name of a task or Job. docs/metrics.md is made from this file."""

from platform import python_version
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from dispatcher import __version__

LATENCY: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)

WAITING_TASKS: Final = Gauge(
    "dispatcher_waiting_tasks",
    "All waiting rows by reason, on the leader. The rows behind those that a cycle judges are counted every 30 s",
    ["queue", "reason"],
)
OLDEST_WAIT: Final = Gauge(
    "dispatcher_oldest_wait_seconds",
    "For how long the oldest due row whose container does not run has waited, on the leader",
    ["queue"],
)
PARKED_TASKS: Final = Gauge(
    "dispatcher_parked_tasks", "Rows that the last cycle judged and parked, on the leader", ["reason"]
)
DEMAND_PODS: Final = Gauge(
    "dispatcher_demand_pods",
    "Pods that wait as demand, on the leader: of shapes that ask, or that have grown",
    ["of"],
)
DEMAND_UNANSWERED: Final = Gauge(
    "dispatcher_demand_unanswered_seconds",
    "For how long a shape has asked for a node in vain, on the leader; 0: none asks",
)
TAKEN_BACK: Final = Counter(
    "dispatcher_taken_back_total", "Jobs taken back while their Pods waited; the log has the causes"
)
QUEUE_SHARE: Final = Gauge(
    "dispatcher_queue_share",
    "Largest part of any one resource of all nodes, or of MAX_JOBS where it is used up, that a queue has in flight, on "
    "the leader; a number of Jobs without CHECK_ROOM",
    ["queue"],
)
JOBS: Final = Gauge(
    "dispatcher_jobs",
    "Jobs of this installation. Each replica of the dispatcher shows all of them: take the max, not the sum",
    ["queue", "state"],
)
KEPT_OBJECTS: Final = Gauge(
    "dispatcher_kept_objects",
    "Deleted Jobs, and ended Pods of them, that a finalizer of others keeps, or one of Kubernetes for ten minutes. "
    "Each replica of the dispatcher shows all of them",
    ["finalizer"],
)
JOB_CREATES: Final = Counter(
    "dispatcher_job_creates_total", "Creates of Jobs, by the meaning of the answer", ["outcome"]
)
LAUNCHES: Final = Counter(
    "dispatcher_launches_total",
    "Jobs made for rows: first of their attempt, or again. A Job after one that got no node and was taken back is no "
    "second one",
    ["launch"],
)
JOBS_ENDED: Final = Counter(
    "dispatcher_jobs_ended_total",
    "Ends of Jobs by outcome. Each replica of the dispatcher counts all of them",
    ["outcome"],
)
INSERT_TO_JOB: Final = Histogram(
    "dispatcher_insert_to_job_seconds", "Time from a row's due time to its first Job", buckets=(*LATENCY, 60, 600)
)
CYCLE_SECONDS: Final = Histogram("dispatcher_cycle_seconds", "Time to read rows and to plan one cycle", buckets=LATENCY)
CYCLE_TASKS: Final = Gauge(
    "dispatcher_cycle_tasks", "Rows judged in the last cycle of the leader, by verdict", ["verdict"]
)
REFUSED_PODS: Final = Gauge("dispatcher_refused_pods", "Jobs without a Pod whose Pods are refused", ["cause"])
REJECTING_NODES: Final = Gauge(
    "dispatcher_rejecting_nodes", "Nodes whose kubelet has rejected our newest Pods there, as the leader sees it"
)
NODE_REJECTIONS: Final = Counter(
    "dispatcher_node_rejections_total", "Pods of ours that the kubelet of their node has rejected", ["node"]
)
TASKS_ENDED: Final = Counter(
    "dispatcher_tasks_ended_total",
    "Rows that have ended, by their status, on the leader, half a minute to a minute after their end",
    ["queue", "status"],
)
SWEEP_DELETES: Final = Counter("dispatcher_sweep_deletes_total", "Deletes of Jobs and Pods, by outcome", ["outcome"])
READY: Final = Gauge("dispatcher_ready", "1 if /readyz says that the program can do its work, else 0")
LEADER: Final = Gauge("dispatcher_leader", "1 if this replica may write now, else 0; of the dispatcher")
JANITOR_ROWS: Final = Counter("dispatcher_janitor_rows_total", "Rows that the janitor changed, by action", ["action"])
STORE_AGE: Final = Gauge(
    "dispatcher_store_age_seconds",
    "Age of the last proof that the store is current, at the time of the scrape",
    ["resource"],
)
UNREADABLE_AMOUNTS: Final = Counter(
    "dispatcher_unreadable_amounts_total", "Amounts of objects that are no quantities, by kind of object", ["resource"]
)
RELISTS: Final = Counter("dispatcher_relists_total", "Full lists, by their cause", ["resource", "cause"])
DATABASE_UP: Final = Gauge(
    "dispatcher_database_up",
    "1 if rows can be read from the primary, else 0; NaN before the first look; of the dispatcher and the janitor",
)
DATABASE_UP.set(float("nan"))  # a janitor looks at the cluster first: 0 would call somebody to the database for that
KUBE_REQUESTS: Final = Counter(
    "dispatcher_kube_requests_total", "Requests to the API server", ["verb", "resource", "code"]
)
KUBE_SECONDS: Final = Histogram(
    "dispatcher_kube_request_seconds", "Time of requests to the API server", ["verb", "resource"], buckets=LATENCY
)
FAULTS: Final = Counter("dispatcher_faults_total", "Rounds of a component that ended in a fault", ["component"])
LAST_ROUND: Final = Gauge(
    "dispatcher_last_round_timestamp_seconds",
    "Unix time at which a component last ended a round without a fault; 0: it has not yet",
    ["component"],
)
CREDENTIAL_END: Final = Gauge(
    "dispatcher_credential_end_timestamp_seconds",
    "Unix time at which a credential in use ends: token or client-certificate (for the API server), server-certificate "
    "or authority (of the extender)",
    ["credential"],
)
EXTENDER_SECONDS: Final = Histogram(
    "dispatcher_extender_request_seconds",
    "Time of answers to kube-scheduler: ok, late (a neutral answer), bad (refused request), busy (too many requests at "
    "once), unsynced (stores are not listed yet)",
    ["verb", "outcome"],
    buckets=(0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1),
)
EXTENDER_NODES: Final = Histogram(
    "dispatcher_extender_nodes", "Number of nodes in a request", ["verb"], buckets=(1, 10, 100, 500, 1000, 5000, 15000)
)
EXTENDER_REFUSED: Final = Counter(
    "dispatcher_extender_refused_nodes_total",
    "Nodes refused to a Pod: reserved (for another Pod), uncertain (the reservations are not known now)",
    ["cause"],
)
RESERVATIONS: Final = Gauge(
    "dispatcher_reservations",
    "NodeReservations, by the phase in their status. Each extender shows all of them",
    ["phase"],
)
ESTIMATE_HITS: Final = Counter(
    "dispatcher_estimate_hits_total",
    "Estimates of a start that somebody asked for: hit (it started in the range), early, late",
    ["outcome"],
)
EVENTS: Final = Counter(
    "dispatcher_events_total",
    "Events on Jobs, Pods and NodeReservations: written, refused (by the API server), dropped (too many at once)",
    ["reason", "outcome"],
)
EXTENDER_IGNORED: Final = Counter(
    "dispatcher_extender_ignored_total", "Parts of Pods that were ignored, because they are unreadable", ["part"]
)
EXTENDER_CONFIG_FAULTS: Final = Gauge(
    "dispatcher_extender_config_faults",
    "1 if requests of the last 10 minutes show a wrong configuration of kube-scheduler; see the log",
    ["fault"],
)
HISTORY_HITS: Final = Counter(
    "dispatcher_history_hits_total", "Pods with a history, by the best history rank among the offered nodes", ["rank"]
)
OLDEST_SNAPSHOT: Final = Gauge(
    "dispatcher_oldest_snapshot_seconds",
    "For how long the oldest snapshot of the database has been the same for the janitor. No dead row goes meanwhile",
)
CACHE_BYTES: Final = Gauge(
    "dispatcher_cache_bytes", "Bytes of the cache directories of this node: in_use (by a Pod), idle", ["state"]
)
CACHE_DIRECTORIES: Final = Gauge(
    "dispatcher_cache_directories", "Cache directories of this node: in_use (by a Pod), idle", ["state"]
)
CACHE_REMOVED: Final = Counter(
    "dispatcher_cache_removed_total",
    "Cache directories that were removed: order (somebody wanted it), age (not used for CACHE_MAX_AGE_DAYS), size "
    "(over CACHE_MAX_BYTES), disk (above CACHE_HIGH_PERCENT)",
    ["cause"],
)
CACHE_UNUSED: Final = Histogram(
    "dispatcher_cache_seconds_unused",
    "For how long removed cache directories had not been used. Short times mean that the disk is too small",
    buckets=(60, 600, 3600, 21_600, 86_400, 259_200, 604_800, 1_209_600, 2_592_000, 7_776_000),
)
CACHE_UNMEASURED: Final = Gauge(
    "dispatcher_cache_unmeasured",
    "Cache directories that were measured in part only: too many or too deep folders, or always changed",
)
CACHE_REFUSED: Final = Gauge("dispatcher_cache_refused", "Parts of cache directories that could not be removed")
CACHE_DISK_USED: Final = Gauge(
    "dispatcher_cache_disk_used_ratio", "Used part of the disk of the cache directories, or of its inodes if more"
)
CACHE_DISK_HIGH: Final = Gauge("dispatcher_cache_disk_high_ratio", "CACHE_HIGH_PERCENT, as a part of the disk")
BUILD_INFO: Final = Gauge("dispatcher_build_info", "Always 1; its labels are the versions", ["version", "python"])
BUILD_INFO.labels(__version__, python_version()).set(1)

OF_RUN: Final = (LEADER, CYCLE_SECONDS, INSERT_TO_JOB, DEMAND_UNANSWERED, TAKEN_BACK, REJECTING_NODES)
"""Metrics without labels that only `dispatcher run` sets. In another program they would stand at 0 for ever."""
OF_KEEPER: Final = (CACHE_UNUSED, CACHE_UNMEASURED, CACHE_REFUSED, CACHE_DISK_USED, CACHE_DISK_HIGH)
"""Metrics without labels that only `dispatcher cache-keeper` sets."""
OF_JANITOR: Final = (OLDEST_SNAPSHOT,)
"""Metrics without labels that only `dispatcher janitor` sets."""
OF_ROWS: Final = (DATABASE_UP,)
"""Metrics without labels that only programs set which read rows."""
