"""Probes that are not wanted now: Jobs that wait for a node although their queue is paused or over its cap, or although
a node that they could take is claimed for another row.

Such a Job is taken back in two writes. First the Job is marked as unplaced. Then its Pod is deleted, in the version in
which it had no node. The Job fails and stays, so its launch number is not used again. The launch counts as nothing
(docs/protocol.md, section 6). A stop between the two writes is harmless: the mark alone says what to do next.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from dispatcher.admission.room import Room
from dispatcher.admission.snapshot import ClusterSnapshot
from dispatcher.model.jobs import End
from dispatcher.model.launches import Probe
from dispatcher.model.tasks import Queue

PAUSE_GRACE: Final = timedelta(seconds=60)
"""A pause that ends soon takes no probe back."""
PAUSED: Final = "its queue is paused"
OVER_CAP: Final = "its queue has more Jobs than its max_jobs"
CLAIMED: Final = "it could take a node that is kept for another row"


def plan_pauses(known: Mapping[str, datetime], queues: Iterable[Queue], now: datetime) -> dict[str, datetime]:
    """When the pause of each paused queue was first seen. `known`: the same, of the cycle before."""
    return {
        queue.name: known.get(queue.name, now)
        for queue in queues
        if queue.paused_until is not None and queue.paused_until > now
    }


def plan_taken_back(
    probes: Iterable[Probe], snapshot: ClusterSnapshot, paused_since: Mapping[str, datetime]
) -> list[End]:
    """The next write for each probe that is not wanted, and for each that is marked already."""
    by_queue: dict[str, list[Probe]] = defaultdict(list)
    ends = []
    for probe in probes:
        if probe.job.is_unplaced:
            ends.append(End("unplaced-pods", probe.pod.name, probe.pod.uid, "its launch is taken back"))
        elif could_take_claimed(probe, snapshot.room):
            ends.append(mark(probe, CLAIMED))
        else:
            by_queue[probe.job.queue].append(probe)
    for queue, waiting in by_queue.items():
        since = paused_since.get(queue)
        if since is not None and snapshot.now - since >= PAUSE_GRACE:
            ends += [mark(probe, PAUSED) for probe in waiting]
        else:
            ends += [mark(probe, OVER_CAP) for probe in beyond_cap(queue, waiting, snapshot)]
    return ends


def could_take_claimed(probe: Probe, room: Room | None) -> bool:
    needs = probe.job.needs
    return room is not None and needs is not None and room.could_take_claimed(probe.job.task_id, needs)


def beyond_cap(queue: str, waiting: list[Probe], snapshot: ClusterSnapshot) -> list[Probe]:
    """As many of the queue's probes as it has Jobs beyond its cap, the newest first."""
    cap = snapshot.queue(queue).max_jobs
    excess = 0 if cap is None else max(0, snapshot.load.by_queue.get(queue, 0) - cap)
    return sorted(waiting, key=lambda probe: (probe.job.created_at, probe.job.name), reverse=True)[:excess]


def mark(probe: Probe, cause: str) -> End:
    return End("mark", probe.job.name, probe.job.uid, cause, resource_version=probe.job.resource_version)
