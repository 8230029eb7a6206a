"""Judges the plans of the queries that programs run often: whether each uses its indexes, and reads no whole table."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dispatcher.doctor.finding import Finding, fault, good, unchecked
from dispatcher.doctor.group_rights import READER, ROLE_OF_JANITOR

Plan = Mapping[str, Any]
Indexes = frozenset[str]
READY: Final = frozenset({"tasks_ready", "tasks_ready_of_submitter"})
DUE: Final = frozenset({"tasks_due", "tasks_due_of_submitter"})
BY_ID: Final = frozenset({"tasks_pkey"})
PROCESSING: Final = frozenset({"tasks_processing"})
HISTORY: Final = frozenset({"tasks_history"})
FINISHED: Final = frozenset({"tasks_finished"})
FAILED: Final = frozenset({"tasks_failed"})
OF_SUBMITTER: Final = frozenset({"tasks_of_submitter"})
OF_BATCH: Final = frozenset({"tasks_of_batch"})
LABELS: Final = frozenset({"tasks_labels"})
ENDED: Final = frozenset({"tasks_finished_of_queue"})
LAUNCHES: Final = frozenset({"task_launches_pkey"})
STARTS: Final = frozenset({"task_launches_starts"})
OF_EACH_CYCLE: Final[Mapping[str, tuple[Indexes, ...]]] = {
    "queries/frame": (DUE, PROCESSING),
    "queries/submitters": (READY, DUE),
    "queries/candidates_of": (READY, DUE),
    "queries/tasks": (BY_ID,),
    "queries/requests": (BY_ID,),
}
"""Queries of `run` and of the janitor."""
OF_RUN: Final[Mapping[str, tuple[Indexes, ...]]] = {
    **OF_EACH_CYCLE,
    "queries/candidates": (READY, DUE),
    "queries/contenders": (BY_ID,),
    "queries/kinds": (BY_ID,),
    "queries/histories": (HISTORY,),
    "queries/runs": (HISTORY,),
    # Counts of all queues, every 30 s. The others answer people, who may ask at any time.
    "queries/counts": (READY, DUE, STARTS, FINISHED),
    "queries/line": (READY, DUE),
    "queries/starts": (STARTS, BY_ID),
    "queries/launches": (LAUNCHES,),
    "queries/page": (BY_ID,),
    "queries/marks": (BY_ID,),
    "queries/statuses": (BY_ID,),
    "queries/sources": (BY_ID,),
    "queries/matching": (BY_ID,),
    "queries/matching_among": (BY_ID,),
    "queries/matching_of_submitter": (OF_SUBMITTER,),
    "queries/matching_of_batch": (OF_BATCH,),
    "queries/owners_of_batch": (OF_BATCH,),
    "queries/batches": (OF_BATCH,),
    "queries/few_of_batch": (OF_BATCH,),
    "queries/few_with_labels": (LABELS,),
    "queries/few_of_status": (PROCESSING, FAILED),
    "queries/newest_waiting": (READY, DUE),
    "queries/failed": (FAILED,),
    "queries/failed_of_batch": (OF_BATCH, BY_ID),
    "queries/templates": (),
    "queries/queue_settings": (),
    "queries/queue_starts": (STARTS, BY_ID),
    "queries/queue_ends": (ENDED,),
    "queries/queue_times": (ENDED,),
    "queries/warm_keys": (FINISHED,),
}
OF_JANITOR: Final[Mapping[str, tuple[Indexes, ...]]] = {
    **OF_EACH_CYCLE,
    "janitor/run_digests": (BY_ID | PROCESSING,),
    "janitor/with_cause": (LAUNCHES,),
    "janitor/old": (FINISHED,),
}
INDEXES: Final[Mapping[str, Mapping[str, tuple[Indexes, ...]]]] = {READER: OF_RUN, ROLE_OF_JANITOR: OF_JANITOR}
"""Indexes that the plan of each frequent query uses, one of each set. By group role, and by file in sql/."""
ONE_ROW: Final = frozenset({"queries/ping", "queries/start_secret", "queries/statement_timeout"})
"""Queries that read at most one row of a table of a few."""
SMALL_TABLE: Final = 100
"""Pages. In a small table every index is as good as another, and Postgres may take any."""
SMALL: Final = frozenset({"queues", "templates", "schema_version", "pg_index", "pg_class"})
"""Tables that a plan may read completely."""


def judge_plans(
    group: str, plans: Mapping[str, Plan | str], pages: Mapping[str, int], database: str
) -> Iterator[Finding]:
    """`group`: the role whose queries these are. `plans`: a text says why there is none. `pages`: by table."""
    for name, plan in plans.items():
        where = f"sql/{name}.sql"
        if isinstance(plan, str):
            yield unchecked("PlanWithoutIndex", where, plan)
        elif told := [*unused(INDEXES[group][name], plan, pages), *read_completely(plan)]:
            yield fault("PlanWithoutIndex", where, f"its plan {' and '.join(told)}", database=database)
        else:
            yield good("PlanWithoutIndex", where)


def unused(indexes: tuple[Indexes, ...], plan: Plan, pages: Mapping[str, int]) -> Iterator[str]:
    used = {node.get("Index Name", "") for node in nodes_of(plan)}
    names = [
        " or ".join(sorted(each)) for each in indexes if not each & used and pages.get(table_of(each), 0) > SMALL_TABLE
    ]
    if names:
        yield f"does not use {', '.join(names)}"


def read_completely(plan: Plan) -> Iterator[str]:
    tables = {node["Relation Name"] for node in nodes_of(plan) if node["Node Type"] == "Seq Scan"} - SMALL
    if tables:
        yield f"reads all of {', '.join(sorted(tables))}"


def table_of(indexes: Indexes) -> str:
    return "task_launches" if indexes <= LAUNCHES | STARTS else "tasks"


def nodes_of(plan: Plan) -> Iterator[Plan]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes_of(child)
