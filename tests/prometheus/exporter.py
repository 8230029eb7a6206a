"""A simulated cAdvisor of a node. It serves metrics of the containers that a test declares.

The cpu counter of a container grows by its `cores` in real time. The real cAdvisor also serves series that must not
be counted, so this one does, too: the pause container, with current and with old labels, and the Pod's own cgroup,
which has the sum of all containers.
"""

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiohttp import web

from tests.rig.loopback import on_loopback

CPU = "container_cpu_usage_seconds_total"
MEMORY = "container_memory_working_set_bytes"
TYPES = {CPU: "counter", MEMORY: "gauge"}
ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
PAUSE = "registry.test/pause:3.10"
PAUSE_CORES, PAUSE_MEMORY = 0.5, 300e6  # far more than a real one uses, so that counting it shows


class Container(NamedTuple):
    """A container of a Pod, and its use from its start on."""

    namespace: str
    pod: str
    name: str
    cores: float = 1.0
    memory: float = 100e6
    image: str = "registry.test/task:1"

    def labels(self) -> dict[str, str]:
        place = {"namespace": self.namespace, "pod": self.pod, "container": self.name, "image": self.image}
        return place | {"id": f"/kubepods/pod-{self.pod}/{self.name}", "name": f"{self.pod}-{self.name}"}


class Exporter:
    """`running`: the containers, each with the time since which it counts."""

    def __init__(self) -> None:
        self.address = ""
        self.running: dict[Container, float] = {}

    def start(self, *containers: Container) -> float:
        """Starts containers, with counters at zero, also if they run already. Returns the time."""
        now = time.time()
        self.running |= dict.fromkeys(containers, now)
        return now

    def stop(self, *containers: Container) -> float:
        """Stops serving the containers. Returns the time."""
        for container in containers:
            del self.running[container]
        return time.time()

    async def answer(self, request: web.Request) -> web.Response:
        return web.Response(text="".join(self._lines(time.time())))

    def _lines(self, now: float) -> Iterator[str]:
        for metric, kind in TYPES.items():
            yield f"# TYPE {metric} {kind}\n"
            for labels, uses in self._series(now):
                written = ",".join(f'{name}="{value.translate(ESCAPED)}"' for name, value in labels.items())
                yield f"{metric}{{{written}}} {uses[metric]!r}\n"

    def _series(self, now: float) -> Iterator[tuple[dict[str, str], dict[str, float]]]:
        sums: dict[tuple[str, str], dict[str, float]] = {}
        for container, since in self.running.items():
            uses = {CPU: container.cores * (now - since), MEMORY: container.memory}
            yield container.labels(), uses
            added = sums.setdefault((container.namespace, container.pod), {CPU: 0, MEMORY: 0})
            added |= {metric: added[metric] + uses[metric] for metric in TYPES}
        for place, added in sums.items():
            yield from not_to_be_counted(*place, added, now)


def not_to_be_counted(
    namespace: str, pod: str, added: Mapping[str, float], now: float
) -> Iterator[tuple[dict[str, str], dict[str, float]]]:
    place, group = {"namespace": namespace, "pod": pod}, f"/kubepods/pod-{pod}"
    paused = {CPU: PAUSE_CORES * now, MEMORY: PAUSE_MEMORY}
    yield place | {"container": "", "image": "", "id": group, "name": ""}, dict(added)
    yield place | {"container": "", "image": PAUSE, "id": f"{group}/pause", "name": f"pause-{pod}"}, paused
    yield place | {"container": "POD", "image": PAUSE, "id": f"{group}/POD", "name": f"POD-{pod}"}, paused


@asynccontextmanager
async def exporting() -> AsyncIterator[Exporter]:
    exporter = Exporter()
    app = web.Application()
    app.router.add_get("/metrics", exporter.answer)
    async with on_loopback(app) as address:
        exporter.address = address
        yield exporter
