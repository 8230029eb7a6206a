"""What a node does next about one Pod: decided from the Pod, what its containers came to, and nothing else."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from dispatcher.local.facts import Seen
from dispatcher.local.statuses import DEADLINE, TERMINAL, Told, build_refusal, build_status, build_unstarted

Json = dict[str, Any]
GRACE_SECONDS = 30


class Step(Struct, frozen=True):
    """Acts, in this order. `end_as`: SIGTERM now, and what the Pod is said to have ended for."""

    start: bool = False
    end_as: str | None = None
    kill: bool = False
    status: Json | None = None
    delete: bool = False


def plan_step(pod: Json, seen: Mapping[str, Seen | None], ending: Json, now: float) -> Step:
    """`ending`: since when its containers are asked to stop (`at`), and why (`reason`); empty: they are not."""
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
    status = build_status(pod, seen, Told(ended=DEADLINE if ending.get("reason") == DEADLINE[0] else ("", "")), now)
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
    """Whether it was active for longer than its activeDeadlineSeconds."""
    limit, began = pod["spec"].get("activeDeadlineSeconds"), pod.get("status", {}).get("startTime")
    return limit is not None and began is not None and now >= datetime.fromisoformat(began).timestamp() + limit


def grace(pod: Json) -> float:
    """Seconds between SIGTERM and SIGKILL: a delete's own, else the Pod's."""
    of_pod = pod["spec"].get("terminationGracePeriodSeconds", GRACE_SECONDS)
    return float(pod["metadata"].get("deletionGracePeriodSeconds", of_pod))
