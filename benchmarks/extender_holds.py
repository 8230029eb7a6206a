"""Promise: reservations cost other Pods nothing. 10,000 reservations on 5,000 nodes make filter at most 1.1 times as
slow (p99), in a process of at most 180 MiB.

Like `extender_answers.py`, with two processes that are asked in turns: one without reservations, one with two on each
node.
"""

import tempfile
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from statistics import median

import aiohttp
import msgspec

from benchmarks.extender_answers import NODES, PODS, a_pod, peak
from benchmarks.figures import Figure, run, tell
from benchmarks.standing_cluster import standing_cluster
from dispatcher import __version__
from tests.controlplane.objects import write_kubeconfig
from tests.controlplane.waiting import wait_for
from tests.scheduling.own_extender import OwnExtender

RESERVATIONS, ROUNDS, CALLS = 10_000, 5, 300
MOST, MEBIBYTES = 1.1, 180


async def ask(own_extender: OwnExtender) -> float:
    """p99 of filter in ms, as its caller sees it. All calls are about the same Pod, which is charged once."""
    body = msgspec.json.encode({"Pod": a_pod(1), "Nodes": None, "NodeNames": [f"node-{n:05}" for n in range(NODES)]})
    trips = []
    async with aiohttp.ClientSession() as session:
        for _ in range(CALLS):
            began = time.perf_counter()
            async with session.post(f"{own_extender.url}/filter", data=body) as answer:
                body_of_answer = await answer.read()
            trips.append(1000 * (time.perf_counter() - began))
            assert not msgspec.json.decode(body_of_answer)["FailedAndUnresolvableNodes"]
    return sorted(trips)[int(CALLS * 0.99)]


async def is_sure(own_extender: OwnExtender) -> bool:
    """Whether nodes with a hold are open: after a start they are closed for a while. The index is built by then."""
    _, answer = await own_extender.post("filter", {"Pod": a_pod(1), "NodeNames": ["node-00000"]})
    return not answer["FailedAndUnresolvableNodes"]


async def filled(stack: AsyncExitStack, folder: Path, reservations: int) -> OwnExtender:
    url = await stack.enter_async_context(standing_cluster(NODES, PODS, reservations))
    config = write_kubeconfig(folder / f"{reservations}", url=url, ca_file=None, token="nobody's", namespace="jobs")
    own_extender = await stack.enter_async_context(OwnExtender(config))
    await own_extender.ready()
    return own_extender


async def main() -> int:
    found: dict[int, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        async with AsyncExitStack() as stack:
            all_ = {count: await filled(stack, Path(folder), count) for count in (0, RESERVATIONS)}
            for own_extender in all_.values():
                await wait_for(
                    partial(is_sure, own_extender), "nodes with a hold are open", 30, check=own_extender.check
                )
            for _ in range(ROUNDS):
                for count, own_extender in all_.items():
                    found[count].append(await ask(own_extender))
            memory = peak(all_[RESERVATIONS].process.pid)
    without, with_ = median(found[0]), median(found[RESERVATIONS])
    figures = [
        Figure("filter beside 10,000 reservations / without, p99", with_ / without, MOST),
        Figure("memory at its peak (MiB)", memory, MEBIBYTES),
    ]
    context = {"filter without, p99 (ms)": without, "filter beside 10,000, p99 (ms)": with_}
    return tell("extender_holds", figures, context, {"dispatcher": __version__})


if __name__ == "__main__":
    run(main)
