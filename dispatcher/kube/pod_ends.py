"""Reads how a Pod failed, and what a Pod waits for, in the words of kubelet and kube-scheduler.

A container writes its termination message itself. So the message is cut, and has no control characters.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from dispatcher.kube.wire import Container, ContainerState, ContainerStatus, WirePod
from dispatcher.model.cluster import LONG_AGO, PodEnd
from dispatcher.model.texts import printable

TASK: Final = "task"
MOST_OUTPUT: Final = 2048
"""Bytes. kubelet keeps as much of a log."""
LONGEST_WORDS: Final = 300


def end_of(wire: WirePod) -> PodEnd | None:
    """How the Pod failed; None: it has not failed."""
    if wire.status.phase != "Failed":
        return None
    status, ended = failed_container(wire)
    is_known = status is not None and ended is not None
    return PodEnd(
        reason=words(wire.status.reason) or disruption(wire),
        message=words(wire.status.message),
        container=status.name if status is not None and is_known else "",
        exit_code=ended.exit_code if ended is not None else None,
        cause=words(ended.reason) if ended is not None else "",
        output=tail(ended.message) if ended is not None else "",
        memory_limit=memory_limit(wire.spec.containers, status.name) if status is not None else "",
        started_at=ended.started_at if ended and ended.started_at and ended.started_at > LONG_AGO else None,
        ended_at=ended.finished_at if ended and ended.finished_at and ended.finished_at > LONG_AGO else None,
    )


def failed_container(wire: WirePod) -> tuple[ContainerStatus | None, ContainerState | None]:
    """The container `task` if it failed, otherwise the first one that failed; init containers come first."""
    found = list(failed([*(wire.status.init_container_statuses or ()), *(wire.status.container_statuses or ())]))
    return next((one for one in found if one[0].name == TASK), found[0] if found else (None, None))


def failed(statuses: Iterable[ContainerStatus]) -> Iterator[tuple[ContainerStatus, ContainerState]]:
    for status in statuses:
        ended = status.state.terminated or status.last_state.terminated
        if ended is not None and ended.exit_code:
            yield status, ended


def disruption(wire: WirePod) -> str:
    """The reason of its condition DisruptionTarget, such as PreemptionByScheduler; empty: it was not disrupted."""
    found = (one for one in wire.status.conditions if one.type == "DisruptionTarget" and one.status == "True")
    return next((words(one.reason) for one in found), "")


def memory_limit(containers: Sequence[Container], name: str) -> str:
    limits = (one.resources.limits or {} for one in containers if one.name == name)
    return next((one.get("memory", "") for one in limits), "")


def waiting_message(wire: WirePod) -> str:
    """What the first waiting container says, or why kube-scheduler finds no node."""
    statuses = (*(wire.status.init_container_statuses or ()), *(wire.status.container_statuses or ()))
    said = [one.state.waiting.message for one in statuses if one.state.waiting is not None]
    unplaced = [one.message for one in wire.status.conditions if one.type == "PodScheduled" and one.status == "False"]
    return next((words(message) for message in (*said, *unplaced) if message), "")


def words(text: str) -> str:
    """The beginning of a message, without control characters."""
    return printable(text[:LONGEST_WORDS])


def tail(output: str) -> str:
    """The end of an output, without control characters."""
    return printable(output).encode()[-MOST_OUTPUT:].decode(errors="ignore")
