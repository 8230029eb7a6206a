"""Decides what a node does next about one Pod, from the Pod and the states of its containers alone."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from dispatcher.local.facts import Seen
from dispatcher.local.statuses import DEADLINE, TERMINAL, Reasons, build_refusal, build_status, build_unstarted

Json = dict[str, Any]
GRACE_SECONDS = 30


class Step(Struct, frozen=True):
    """Acts of one round, in their order.

    start: start the containers that do not run yet.
    end_as: send SIGTERM; the text is the reason of the Pod's end. None: no SIGTERM.
    kill: kill the containers.
    status: the status to write, or None.
    delete: delete the Pod from the API server.
    """

    start: bool = False
    end_as: str | None = None
    kill: bool = False
    status: Json | None = None
    delete: bool = False


def plan_step(pod: Json, seen: Mapping[str, Seen | None], ending: Json, now: float) -> Step:
    """The next acts. `ending`: when SIGTERM was sent (`at`, seconds since 1970) and why (`reason`), or empty."""
    is_deleting = "deletionTimestamp" in pod["metadata"]
    known = [one for one in seen.values() if one is not None]
    is_whole = len(known) == len(seen)
    is_over = (is_whole or is_deleting) and all(one.is_over for one in known)
    if pod.get("status", {}).get("phase") in TERMINAL and all(one.is_over for one in known):
        return Step(delete=is_deleting)
    if not known and (is_deleting or is_late(pod, now)):
        refusal = build_unstarted(pod, now) if is_deleting else build_refusal(pod, *DEADLINE, now)
        return Step(status=refusal, delete=is_deleting)
    if not is_whole and not is_deleting:
        return Step(start=True)
    reasons = Reasons(ended=DEADLINE if ending.get("reason") == DEADLINE[0] else ("", ""))
    status = build_status(pod, seen, reasons, now)
    changed = None if status == pod.get("status") else status
    if is_over:
        return Step(status=changed, delete=is_deleting)
    if is_deleting or ending or is_late(pod, now):
        reason = DEADLINE[0] if is_late(pod, now) and not is_deleting else ""
        return Step(
            end_as=None if ending else reason,
            kill=bool(ending) and now >= ending["at"] + grace(pod),
            status=changed,
        )
    return Step(status=changed)


def is_late(pod: Json, now: float) -> bool:
    """Whether the Pod has reached its activeDeadlineSeconds."""
    limit, began = pod["spec"].get("activeDeadlineSeconds"), pod.get("status", {}).get("startTime")
    return limit is not None and began is not None and now >= datetime.fromisoformat(began).timestamp() + limit


def grace(pod: Json) -> float:
    """Seconds between SIGTERM and SIGKILL: those of the delete, else the Pod's own."""
    of_pod = pod["spec"].get("terminationGracePeriodSeconds", GRACE_SECONDS)
    return float(pod["metadata"].get("deletionGracePeriodSeconds", of_pod))
