"""The simple dispatcher beside which ours is measured does what ours is compared with."""

from typing import Any

from benchmarks import toy
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Place
from tests.rig.steps import insert


async def test_toy_makes_a_job_of_each_waiting_row(place: Place) -> None:
    ids = await insert(place, 2)

    async def has_jobs() -> bool:
        jobs: list[Any] = await place.jobs()
        names = sorted(job["metadata"]["name"] for job in jobs)
        return names == [f"toy-{id_}-1" for id_ in ids]

    async with toy.running(place):
        await wait_for(has_jobs, "each row has its Job", 30)
