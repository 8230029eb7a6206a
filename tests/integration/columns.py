"""The columns of the views, as the interface has them."""

from __future__ import annotations

SUBMITTED = {
    *("queue", "priority", "run_at", "timeout_seconds", "max_failures", "template", "env", "spec", "payload"),
    *("cache_key", "dedupe_key", "batch", "labels"),
}
QUEUES = {
    *("name", "weight", "max_jobs", "max_jobs_per_submitter", "max_pending", "paused_until", "owner_role", "note"),
    *("submit_role", "max_waiting_per_submitter", "fair_submitters"),
}
