"""A running reflector of Jobs, and the content that its store must have."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import REGISTRY

from dispatcher.kube.client import SILENCE_SECONDS, KubeClient
from dispatcher.kube.objects import read_job
from dispatcher.kube.reflector import Reflector, ReflectorPace, Resource
from dispatcher.model.jobs import Job
from dispatcher.model.launches import job_selector
from tests.contract.scripted_api import JOBS, ScriptedApi
from tests.controlplane.waiting import wait_for
from tests.rig.builders import SITE

QUICK = ReflectorPace(watch=30, relist=600, first_pause=0.02, longest_pause=0.2)


@asynccontextmanager
async def reflecting(client: KubeClient, path: str, pace: ReflectorPace, name: str) -> AsyncIterator[Reflector[Job]]:
    """Runs the reflector until the block ends; a reflector that ends by itself fails the test."""
    resource = Resource(name, path, read_job, job_selector(SITE.installation))
    reflector = Reflector[Job](client, resource, pace, random.Random(7))
    running = asyncio.create_task(reflector.run())
    try:
        yield reflector
        assert not running.done(), running.exception()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@asynccontextmanager
async def reflecting_script(
    api: ScriptedApi, pace: ReflectorPace = QUICK, *, silence: float = SILENCE_SECONDS, name: str = "jobs"
) -> AsyncIterator[Reflector[Job]]:
    client = KubeClient(api.login(), silence)
    try:
        async with reflecting(client, JOBS, pace, name) as reflector:
            yield reflector
    finally:
        await client.close()


def content(reflector: Reflector[Job]) -> dict[str, str]:
    return {job.name: job.resource_version for job in reflector.store.view().values()}


def truth(api: ScriptedApi) -> dict[str, str]:
    return {name: found["metadata"]["resourceVersion"] for name, found in api.objects().items()}


async def settled(api: ScriptedApi, reflector: Reflector[Job], seconds: float = 10) -> None:
    """Waits until the store has the server's content and is synced, without a fault."""

    def is_so() -> bool:
        return not reflector.fault and reflector.store.is_synced and content(reflector) == truth(api)

    await wait_for(is_so, "the store equals the server", seconds)


async def change_something(api: ScriptedApi, chance: random.Random, *, is_told: bool = True) -> None:
    """Makes, changes or removes a Job."""
    names = list(api.objects())
    if names and chance.random() < 0.3:
        await api.remove(chance.choice(names), is_told=is_told)
    elif names and chance.random() < 0.5:
        await api.put(chance.choice(names), is_told=is_told)
    else:
        await api.put(f"job-{chance.randrange(1, 10**6)}-0123abcd-1", is_told=is_told)


def relists(name: str, cause: str) -> float:
    return REGISTRY.get_sample_value("dispatcher_relists_total", {"resource": name, "cause": cause}) or 0
