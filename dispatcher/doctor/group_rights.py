"""The rights that the group roles of our programs have in the schema of this version, with those of PUBLIC.

A test compares this table with a migrated database. Containers and teams have roles of their own, which are left out: a
program of ours that has their login lacks its rights.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from dispatcher.doctor.verbs import JANITOR, RUN

READER: Final = "dispatch_reader"
ROLE_OF_JANITOR: Final = "dispatch_janitor"
OF_PROGRAM: Final[Mapping[str, str]] = {RUN: READER, JANITOR: ROLE_OF_JANITOR}
"""Group role of each program with a login."""
Right = tuple[str, str, str, str]
"""Kind and name of an object, column (empty: the whole object), privilege."""
EVERY: Final = ("",)
"""The right on the whole table, so on each of its columns."""
COLUMNS: Final = (
    "id", "queue", "priority", "run_at", "timeout_seconds", "max_failures", "template", "env", "spec", "cache_key",
    "dedupe_key", "status", "attempt", "launch", "failures", "job_uid", "submitted_by", "created_at", "started_at",
    "heartbeat_at", "finished_at", "cancel_requested_at", "node_name", "pod_name", "error", "kind", "batch", "labels",
    "progress", "note",
)  # fmt: skip
"""Columns of tasks, without the payload and the digests of tokens."""
LAUNCHES: Final = (
    "task_id", "attempt", "launch", "job_uid", "node_name", "pod_name", "started_at", "ended_at", "outcome", "error",
    "exit_code", "reason", "queue",
)  # fmt: skip


class Group(Struct, frozen=True):
    """The rights of one group role.

    reads: columns that it may SELECT, by table.
    calls: functions that it may EXECUTE.
    """

    reads: Mapping[str, tuple[str, ...]]
    calls: tuple[str, ...] = ()

    @property
    def rights(self) -> set[Right]:
        columns = {("relation", table, column, "SELECT") for table, names in self.reads.items() for column in names}
        calls = {("function", one, "", "EXECUTE") for one in self.calls}
        return columns | calls | {("schema", "dispatch", "", "USAGE")}


GROUPS: Final[Mapping[str, Group]] = {
    READER: Group({
        "queues": EVERY,
        "schema_version": EVERY,
        "secrets": ("generation", "start_inner", "start_outer"),
        "task_launches": LAUNCHES,
        "tasks": COLUMNS,
        "templates": EVERY,
    }),
    ROLE_OF_JANITOR: Group(
        {
            "queues": EVERY,
            "schema_version": EVERY,
            "task_launches": LAUNCHES,
            "task_reasons": EVERY,
            "tasks": (*COLUMNS, "run_digest"),
        },
        (
            "janitor_cancel(bigint, integer, bytea)",
            "janitor_delete(integer, integer)",
            "janitor_end(bigint, integer, integer, text, text, text)",
            "janitor_ended(jsonb)",
            "janitor_return(bigint, integer, integer, bytea, integer, text)",
            "janitor_tell(jsonb)",
            "janitor_templates(jsonb, boolean)",
        ),
    ),
}  # fmt: skip


def group_of(roles: Iterable[str], program: str | None = None) -> str:
    """The group role that a login is to have.

    roles: those that it is a member of.
    program: the program that has the login; None: not known, so a member of the janitor's role alone is the janitor's.
    """
    if found := OF_PROGRAM.get(program or ""):
        return found
    members = set(roles)
    return ROLE_OF_JANITOR if ROLE_OF_JANITOR in members and READER not in members else READER
