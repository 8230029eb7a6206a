"""Promise: a cycle that judges 1,000 candidates of 100 shapes in 100 queues takes at most 50 ms of CPU on 5,000 nodes
with 50,000 Pods. If nothing has changed since the last cycle, it takes at most 10 ms.

The cluster is nearly full, and a third of the shapes fits nowhere. 100 Pods of somebody else come or go before each
cycle, and each cycle launches 100 rows. Nothing changes only in a cluster that is full: then every row is held.
Measured is the pure decision, `plan_cycle` with the room that Pods without a node leave, by the CPU time of this
process. Beside it stand the same cycles without the gate, and the memory that the index of room takes.
"""

import gc
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from itertools import count
from statistics import median

from benchmarks.figures import Figure, run, tell
from benchmarks.machine import slowness
from dispatcher.admission.cycle import plan_cycle
from dispatcher.admission.gates import Candidate
from dispatcher.admission.room import Room, RoomIndex, room_of
from dispatcher.admission.snapshot import Allowance
from dispatcher.model.cluster import BoundPod, Node
from dispatcher.model.launches import JobsVerdict, Launch, Offer, PodKind
from dispatcher.model.needs import PodNeeds, Requirement, SelectorTerm
from tests.rig.builders import NOW, a_queue, a_snapshot, a_task

NODES, PODS, CANDIDATES, SHAPES, QUEUES = 5_000, 50_000, 1_000, 100, 100
CORE, GIB = 1000, 2**30 * 1000
SIZE = {"cpu": 32 * CORE, "memory": 128 * GIB, "pods": 110 * 1000}
CHANGES = 100
ROUNDS = 40
LONGEST_MS, LONGEST_UNCHANGED_MS = 50, 10


def a_node(number: int) -> Node:
    labels = {"kubernetes.io/hostname": f"node-{number:05}", "zone": "abc"[number % 3], "team": str(number % 20)}
    return Node(f"node-{number:05}", NOW, SIZE, labels=labels)


def a_pod(number: int) -> BoundPod:
    """Ten Pods fill most of a node: about 3 cores and 13 GiB each."""
    asks = {"cpu": (2800 + 40 * (number % 10)), "memory": 12 * GIB + number % 7 * GIB // 4, "pods": 1000}
    return BoundPod(f"others/pod-{number:06}", f"node-{number % NODES:05}", asks, priority=0)


def needs_of(shape: int) -> PodNeeds:
    """A third of the shapes asks for more than any node has free, a third needs a zone, a sixth a team's nodes."""
    cores = 40 if shape % 3 == 0 else 1 + shape % 5
    asks = (("cpu", cores * CORE + shape), ("memory", (2 + shape % 7) * GIB), ("pods", 1000))
    terms = (SelectorTerm((Requirement("zone", "In", ("a", "b")),)),) if shape % 3 == 1 else None
    return PodNeeds(asks, terms=terms, selector=(("team", str(shape % 20)),) if shape % 6 == 2 else ())


def candidates(offers: Sequence[Offer]) -> list[Candidate]:
    """The rows, as a cycle reads them anew. The offers of their templates are remembered."""
    tasks = (a_task(id=number + 1, queue=f"queue-{number % QUEUES}") for number in range(CANDIDATES))
    return [Candidate(task, offers[task.id % SHAPES], JobsVerdict(Launch(1))) for task in tasks]


def full_cluster() -> RoomIndex:
    index = RoomIndex(())
    for number in range(NODES):
        index.hear_node(None, a_node(number))
    for number in range(PODS):
        index.hear_pod(None, a_pod(number))
    return index


def fill(index: RoomIndex) -> None:
    """One more Pod on each node takes all cores that are left."""
    for number in range(NODES):
        asks = {"cpu": 32 * CORE, "memory": GIB, "pods": 1000}
        index.hear_pod(None, BoundPod(f"others/filler-{number}", f"node-{number:05}", asks))


def changes(index: RoomIndex) -> Iterator[None]:
    """Each step, CHANGES Pods are gone, or the Pods of the last step are back."""
    for step in count():
        for number in range(CHANGES):
            pod = a_pod((step // 2 * CHANGES + number) % PODS)
            index.hear_pod(*((None, pod) if step % 2 else (pod, None)))
        yield


def cycle_ms(rows: Sequence[Candidate], room: Room | None) -> float:
    queues = [a_queue(f"queue-{number}") for number in range(QUEUES)]
    snapshot = a_snapshot(*queues, max_jobs=10_000, allowance=Allowance(10_000, 100), room=room)
    began = time.process_time()
    plan_cycle(snapshot, rows)
    return (time.process_time() - began) * 1000


def room_ms(index: RoomIndex) -> tuple[Room, float]:
    """The room at this moment, with 100 Pods of ours that wait for a node."""
    waiting = {PodKind("queue-1", "team_a", f"shape-{shape}", needs_of(shape)): 4 for shape in range(1, 50, 2)}
    began = time.process_time()
    return room_of(index.view(), waiting), (time.process_time() - began) * 1000


def measure(index: RoomIndex) -> tuple[list[float], list[float], list[float]]:
    """Times of cycles in ms: after changes, without changes, without the gate."""
    changed: list[float] = []
    unchanged: list[float] = []
    without: list[float] = []
    offers = [Offer("app:1", f"shape-{number}", "default", needs_of(number)) for number in range(SHAPES)]
    for _, _ in zip(range(ROUNDS), changes(index), strict=False):
        room, first = room_ms(index)
        changed.append(first + cycle_ms(candidates(offers), room))
        without.append(cycle_ms(candidates(offers), None))
    fill(index)
    for _ in range(ROUNDS):
        room, first = room_ms(index)
        unchanged.append(first + cycle_ms(candidates(offers), room))
    return changed, unchanged, without


async def main() -> int:
    tracemalloc.start()
    index = full_cluster()
    room_ms(index)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    gc.collect()
    gc.freeze()
    before = slowness()
    changed, unchanged, without = measure(index)
    slow = (before + slowness()) / 2
    figures = [
        Figure("1,000 candidates, 100 shapes, 5,000 nodes, ms CPU", median(changed), LONGEST_MS * slow),
        Figure("the same, nothing changed, ms CPU", median(unchanged), LONGEST_UNCHANGED_MS * slow),
    ]
    context = {
        "without the gate, ms CPU": median(without),
        "slowest of all, ms CPU": max(changed),
        "nodes and index of room, MiB": held / 2**20,
        "slowness of the machine": slow,
    }
    return tell("room_cycle", figures, context, {})


if __name__ == "__main__":
    run(main)
