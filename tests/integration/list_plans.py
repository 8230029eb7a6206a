"""The indexes that lists of rows are read from, and parameters of these lists."""

from datetime import datetime, timedelta

from tests.integration.plans import Plan

SMALL_INDEXES = {"pg_index_indexrelid_index", "queues_pkey", "schema_version_pkey"}
"""Indexes of small tables, and of the catalog, which is long in a database with many tables."""
EVERY = (2**60, None, None, None, None, None, None, 101, 100)
LISTS = {
    "page": {"tasks_pkey"},
    "sources": {"tasks_pkey"},
    "matching": {"tasks_pkey"},
    "matching_among": {"tasks_pkey"},
    "matching_of_submitter": {"tasks_of_submitter"},
    "matching_of_batch": {"tasks_of_batch"},
    "owners_of_batch": {"tasks_of_batch"},
    "batches": {"tasks_of_own_batch"},
    "few_of_batch": {"tasks_of_batch"},
    "few_with_labels": {"tasks_labels"},
    "few_of_status": {"tasks_processing", "tasks_failed"},
    "newest_waiting": {"tasks_ready", "tasks_due"},
    "failed": {"tasks_failed"},
    "failed_of_batch": {"tasks_of_own_batch", "tasks_pkey"},
}
"""Lists of rows, each with its indexes."""


def used(plan: Plan) -> set[str]:
    """The large indexes. In a list of all waiting rows, those by submitter are as good as those by queue."""
    return {
        name.removesuffix("_of_submitter") if name.startswith(("tasks_ready", "tasks_due")) else name
        for name in plan.indexes - SMALL_INDEXES
    }


def lists(now: datetime) -> dict[str, tuple[object, ...]]:
    """Parameters of each list."""
    of_batch = (2**60, "queue-1", None, "team-1", "april", None, None, 101, 100, 50_000)
    return {
        "page": ([1, 2],),
        "sources": ([1, 2],),
        "matching": (*EVERY, 50_000),
        "matching_among": (*EVERY, [1, 2]),
        "matching_of_submitter": (2**60, None, None, "team-1", *EVERY[4:], 50_000),
        "matching_of_batch": of_batch,
        "owners_of_batch": (None, None, "april", 20),
        "batches": (["queue-1"], ["team-1"], "april", 100),
        "few_of_batch": (None, "april", 100),
        "few_with_labels": ('{"a": "b"}', 100),
        "few_of_status": ("failed", 100),
        "newest_waiting": (2**60, ["queue-1"], 10_001, 100, None),
        "failed": (now - timedelta(days=1), 100),
        "failed_of_batch": ("queue-1", "april", "team-1", 100, 1000),
    }
