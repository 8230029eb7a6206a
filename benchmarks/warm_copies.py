"""Promise: with CACHE_COPIES and cache keepers, more tasks start warm, and they end sooner, than by history alone and
than on random nodes.

A simulation in virtual time. Real are the choice of nodes (`admission/launch_inputs.py`) and the room
(`admission/room.py`). Simulated are the tasks (`traces.py`), the disks, which have room for CACHES_A_NODE caches
and lose the one that was used least recently, and kube-scheduler: it takes the first preferred node that has room, else
a random one. Tasks that find no room wait in line.

    random    no node is preferred
    history   the newest three nodes where the key succeeded, also where the cache is gone
    copies    nodes that have the cache, and one more while these are full, three in all
"""

import heapq
import random
from collections import OrderedDict, deque
from collections.abc import Sequence
from statistics import fmean
from typing import Final

from msgspec import Struct

from benchmarks.figures import Figure, run, tell
from benchmarks.traces import MEAN_SECONDS, Arrival, trace
from dispatcher import __version__
from dispatcher.admission.launch_inputs import CacheNodeChooser, NodeRing
from dispatcher.admission.room import Room, RoomIndex
from dispatcher.model.cluster import BoundPod, Node
from dispatcher.model.needs import PodNeeds

NODES, SLOTS, CACHES_A_NODE = 40, 8, 20
TASKS, SEEDS, COPIES, HISTORY = 12_000, (1, 2, 3), 3, 3
LOADS: Final = (0.35, 0.7)
"""Parts of all slots that are busy if every task is warm. With the second one, cold starts fill all slots."""
SIZE = {"cpu": SLOTS * 1000, "memory": SLOTS * 2**30 * 1000, "pods": 110_000}
ASKED = {"cpu": 1000, "memory": 2**30 * 1000, "pods": 1000}
NEEDS = PodNeeds(tuple(sorted(ASKED.items())))


class Outcome(Struct, frozen=True):
    """Share of warm starts, mean seconds of waiting and from arrival to end, and mean number of warm nodes of a key."""

    warm: float
    wait: float
    whole: float
    nodes: float


class Simulation:
    """One trace under one rule."""

    def __init__(self, rule: str, seed: int) -> None:
        self._rule = rule
        self._chance = random.Random(seed)
        self._names = [f"node-{number}" for number in range(NODES)]
        self._index = RoomIndex([])
        for name in self._names:
            self._index.hear_node(None, Node(name, size=SIZE))
        self._free = dict.fromkeys(self._names, SLOTS)
        self._disks = {name: OrderedDict[str, None]() for name in self._names}
        self._history: dict[str, list[str]] = {}
        self._drawing = NodeRing()
        self._line = deque[Arrival]()
        self._running = list[tuple[float, int, BoundPod, str]]()
        self._told = list[tuple[bool, float, float]]()
        self._copies = list[int]()

    def run(self, arrivals: Sequence[Arrival]) -> Outcome:
        left = deque(arrivals)
        while left or self._running:
            if left and (not self._running or left[0].at <= self._running[0][0]):
                now = left[0].at
                while left and left[0].at == now:
                    self._line.append(left.popleft())
            else:
                now = self._end()
            self._launch(now)
        warm, wait, whole = zip(*self._told, strict=True)
        return Outcome(fmean(warm), fmean(wait), fmean(whole), fmean(self._copies))

    def _launch(self, now: float) -> None:
        """Starts the tasks in line as far as there is room: one cycle."""
        if not self._line or not any(self._free.values()):
            return
        draw = CacheNodeChooser(Room(self._index.view()), self._drawing.order, COPIES)
        while self._line and any(self._free.values()):
            one = self._line.popleft()
            node = self._node_of(self._preferred(one.key, draw))
            self._start(one, node, now)

    def _preferred(self, key: str, draw: CacheNodeChooser) -> Sequence[str]:
        if self._rule == "random":
            return ()
        if self._rule == "history":
            return self._history.get(key, ())
        warm = [name for name in self._names if key in self._disks[name]]
        return draw.nodes(("queue", key), warm, NEEDS)

    def _node_of(self, preferred: Sequence[str]) -> str:
        for name in preferred:
            if self._free[name]:
                return name
        return self._chance.choice([name for name in self._names if self._free[name]])

    def _start(self, one: Arrival, node: str, now: float) -> None:
        disk, is_warm = self._disks[node], one.key in self._disks[node]
        disk[one.key] = None
        disk.move_to_end(one.key)
        while len(disk) > CACHES_A_NODE:
            disk.popitem(last=False)
        self._free[node] -= 1
        ends_at = now + one.seconds + (0 if is_warm else one.fill)
        pod = BoundPod(f"q/{len(self._told)}", node, ASKED)
        self._index.hear_pod(None, pod)
        heapq.heappush(self._running, (ends_at, len(self._told), pod, one.key))
        self._told.append((is_warm, now - one.at, ends_at - one.at))
        self._copies.append(sum(one.key in other for other in self._disks.values()))

    def _end(self) -> float:
        at, _, pod, key = heapq.heappop(self._running)
        self._index.hear_pod(pod, None)
        self._free[pod.node] += 1
        known = self._history.setdefault(key, [])
        self._history[key] = [pod.node, *(name for name in known if name != pod.node)][:HISTORY]
        return at


def mean(rule: str, load: float) -> Outcome:
    rate = load * NODES * SLOTS / MEAN_SECONDS
    found = [Simulation(rule, seed).run(list(trace(seed, TASKS, rate))) for seed in SEEDS]
    return Outcome(*(fmean(getattr(one, field) for one in found) for field in Outcome.__struct_fields__))


async def main() -> int:
    figures, context = list[Figure](), dict[str, float]()
    for load in LOADS:
        by_rule = {rule: mean(rule, load) for rule in ("random", "history", "copies")}
        copies = by_rule["copies"]
        for rule in ("history", "random"):
            other, where = by_rule[rule], f"copies / {rule}, load {load:g}"
            figures += [
                Figure(f"warm starts, {where}", copies.warm / other.warm, 1, at_least=True),
                Figure(f"arrival to end, {where}", copies.whole / other.whole, 1),
            ]
        for rule, one in by_rule.items():
            context |= {f"{rule}, load {load:g}: {name}": getattr(one, name) for name in Outcome.__struct_fields__}
    return tell("warm_copies", figures, context, {"dispatcher": __version__})


if __name__ == "__main__":
    run(main)
