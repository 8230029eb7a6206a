"""Tells in few words how a launch ended, for the row, its history and `explain`. Pure."""

import signal
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from dispatcher.jobs.observed import CANNOT_START
from dispatcher.model.cluster import Pod, PodEnd
from dispatcher.model.jobs import Job

DEADLINE: Final = "DeadlineExceeded"
NEVER_BEGAN: Final = frozenset({"StartError", "ContainerCannotRun", "ContainerStatusUnknown"})
"""Causes whose message is the node's, not the container's."""
SIGNALS: Final = {128 + number: number.name for number in signal.Signals}
"""Exit codes of processes that a signal ended."""
UNITS: Final = (("d", 86_400), ("h", 3600), ("min", 60))


class LaunchEnd(Struct, frozen=True, kw_only=True):
    """How a launch ended.

    reason: in few words, such as `OOMKilled (limit 64Mi)`.
    exit_code: of its container; None: it never ran, or nobody knows.
    output: the end of what its container said; empty: nothing, or nobody knows.
    pod_name, node_name: empty: not known.
    started_at: when its container began; None: it never ran, or nobody knows.
    """

    reason: str
    exit_code: int | None = None
    output: str = ""
    pod_name: str = ""
    node_name: str = ""
    started_at: datetime | None = None


def launch_end(job: Job, pods: Sequence[Pod]) -> LaunchEnd | None:
    """How the launch of the Job ended, or why its container cannot start; None: it runs, or its Pod is gone."""
    pod = pods[0] if pods else None
    if pod is None:
        return LaunchEnd(reason="Disrupted: its Pod was evicted, preempted or deleted") if job.was_disrupted else None
    if pod.end is not None:
        end, output = pod.end, "" if pod.end.cause in NEVER_BEGAN else pod.end.output
        return LaunchEnd(
            reason=of_pod(end, job.limit_seconds), exit_code=end.exit_code, output=output, pod_name=pod.name,
            node_name=pod.node_name, started_at=end.started_at if pod.had_run else None,
        )  # fmt: skip
    if pod.waiting_reason in CANNOT_START:
        reason = with_words(pod.waiting_reason, pod.waiting_message)
        return LaunchEnd(reason=reason, pod_name=pod.name, node_name=pod.node_name)
    return None


def of_pod(end: PodEnd, limit_seconds: int) -> str:
    if end.reason == DEADLINE:
        return f"ran over its limit of {span(limit_seconds)}" if limit_seconds else "ran over its limit"
    if end.reason:
        return with_words(end.reason, end.message)
    if end.exit_code is None:
        return "its Pod failed"
    return of_container(end, end.exit_code)


def of_container(end: PodEnd, exit_code: int) -> str:
    whose = "" if end.container == "task" else f"container {end.container}: "
    if end.cause == "OOMKilled":
        return f"{whose}OOMKilled (limit {end.memory_limit})" if end.memory_limit else f"{whose}OOMKilled"
    if end.cause in NEVER_BEGAN:
        return whose + with_words(end.cause, end.output)
    return f"{whose}exit code {exit_code}" + (f" ({SIGNALS[exit_code]})" if exit_code in SIGNALS else "")


def with_words(reason: str, message: str) -> str:
    return f"{reason}: {message}" if message else reason


def span(seconds: int) -> str:
    """A duration in the largest unit that has a whole number of it: `90 s`, `2 h`."""
    return next((f"{seconds // length} {unit}" for unit, length in UNITS if seconds % length == 0), f"{seconds} s")
