"""A relist on request: earlier knowledge does not count until a list that began later is complete."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web

from dispatcher.kube.capacity import Mirror
from dispatcher.kube.client import KubeClient
from dispatcher.kube.objects import read_job
from dispatcher.kube.reflector import PAGE, Reflector, ReflectorPace, Reflectors, Resource
from dispatcher.model.jobs import Job
from dispatcher.model.launches import job_selector
from dispatcher.runtime.clock import elapsed
from tests.contract.reflecting import QUICK, change_something, content, reflecting_script, relists, settled
from tests.contract.scripted_api import JOBS, NAMESPACE, NODES, PODS, Fault, ScriptedApi, accepted, event, made, serving
from tests.contract.scripted_faults import as_usual, refuses, silent
from tests.contract.scripted_lease import hanging
from tests.controlplane.waiting import wait_for
from tests.rig.builders import SITE


@pytest_asyncio.fixture(loop_scope="session")
async def api() -> AsyncIterator[ScriptedApi]:
    async with serving() as served:
        for number in (1, 2, 3):
            await served.put(f"job-{number}-0123abcd-1")
        yield served


def held(go_on: asyncio.Event) -> Fault:
    """A list that is made when it is asked for, and answered later."""

    async def fault(api: ScriptedApi, request: web.Request) -> web.StreamResponse:
        answer = api.serve_list(request)
        await go_on.wait()
        return answer

    return fault


async def lists(api: ScriptedApi, count: int) -> None:
    await wait_for(lambda: len(api.requests("list")) >= count, f"{count} lists")


async def watches(api: ScriptedApi, count: int) -> None:
    await wait_for(lambda: len(api.requests("watch")) >= count, f"{count} watches")


class TestWhileWatching:
    async def test_store_is_unknown_until_the_new_list_is_complete(self, api: ScriptedApi) -> None:
        told = asyncio.Event()
        async with reflecting_script(api, name="asked") as reflector:
            await settled(api, reflector)
            await watches(api, 1)
            api.lists.append(held(told))
            reflector.relist()
            assert reflector.fault
            await lists(api, 2)
            assert reflector.fault
            told.set()
            await settled(api, reflector)
            await watches(api, 2)
        assert (relists("asked", "asked"), relists("asked", "fault")) == (1, 0)

    async def test_requested_list_is_consistent(self, api: ScriptedApi) -> None:
        async with reflecting_script(api) as reflector:
            await settled(api, reflector)
            await watches(api, 1)
            await api.put("job-4-0123abcd-1", is_told=False)  # a watch that lags
            await api.remove("job-1-0123abcd-1", is_told=False)
            reflector.relist()
            await settled(api, reflector)
        assert [set(asked.query) for asked in api.requests("list")] == [{"limit", "labelSelector"}] * 2

    async def test_requested_list_begins_at_once(self, api: ScriptedApi) -> None:
        async with reflecting_script(api, ReflectorPace(first_pause=60, longest_pause=60)) as reflector:
            await settled(api, reflector)
            await watches(api, 1)
            reflector.relist()
            await settled(api, reflector, 5)
            await api.put("job-4-0123abcd-1")
            await settled(api, reflector, 5)
        assert len(api.requests("list")) == 2

    @pytest.mark.parametrize("opening", [hanging, silent], ids=["not accepted yet", "silent"])
    async def test_requested_list_does_not_wait_for_a_silent_watch(self, api: ScriptedApi, opening: Fault) -> None:
        api.watches.append(opening)
        async with reflecting_script(api) as reflector:
            await watches(api, 1)
            await api.put("job-4-0123abcd-1")
            reflector.relist()
            await settled(api, reflector, 5)

    async def test_two_requests_make_one_list(self, api: ScriptedApi) -> None:
        async with reflecting_script(api, name="twice") as reflector:
            await settled(api, reflector)
            await watches(api, 1)
            reflector.relist()
            reflector.relist()
            await settled(api, reflector)
            await api.put("job-4-0123abcd-1")
            await settled(api, reflector)
        assert relists("twice", "asked") == 1

    async def test_many_fast_requests_end_the_watch_once(self, api: ScriptedApi) -> None:
        async with reflecting_script(api, name="fast") as reflector:
            await settled(api, reflector)
            await watches(api, 1)
            for _ in range(8):
                reflector.relist()
                await asyncio.sleep(0)
            await settled(api, reflector)
        assert relists("fast", "fault") == 0


class TestWhileListing:
    async def test_list_in_progress_began_too_early_to_count(self, api: ScriptedApi) -> None:
        first, second = asyncio.Event(), asyncio.Event()
        api.lists.extend([held(first), held(second)])
        async with reflecting_script(api) as reflector:
            await lists(api, 1)
            await api.put("job-4-0123abcd-1")
            reflector.relist()
            first.set()
            await lists(api, 2)
            assert reflector.store.is_synced
            assert "job-4-0123abcd-1" not in content(reflector)
            assert reflector.fault
            second.set()
            await settled(api, reflector)

    async def test_later_pages_of_a_list_in_progress_do_not_count(self, api: ScriptedApi) -> None:
        for number in range(4, PAGE + 10):
            await api.put(f"job-{number}-0123abcd-1")
        first, second = asyncio.Event(), asyncio.Event()
        api.lists.extend([as_usual, held(first), held(second)])
        async with reflecting_script(api) as reflector:
            await lists(api, 2)
            reflector.relist()
            first.set()
            await lists(api, 3)
            assert reflector.fault
            second.set()
            await settled(api, reflector)
        assert ["continue" in asked.query for asked in api.requests("list")] == [False, True, False, True]

    async def test_failed_list_is_followed_by_one_that_counts(self, api: ScriptedApi) -> None:
        async with reflecting_script(api) as reflector:
            await settled(api, reflector)
            await watches(api, 1)
            api.until_cured["list"] = refuses(500, "InternalError")
            reflector.relist()
            await lists(api, 4)
            assert reflector.fault
            api.until_cured.clear()
            await settled(api, reflector)

    async def test_request_before_the_start_is_served_by_the_first_list(self, api: ScriptedApi) -> None:
        async with reflecting_script(api) as reflector:
            reflector.relist()
            await settled(api, reflector)
        assert len(api.requests("list")) == 1


async def test_request_next_to_a_due_list_makes_that_list_consistent(api: ScriptedApi) -> None:
    """The due list alone would be of the store's version, and show nothing newer."""
    asked: list[int] = []

    async def late_event(api_: ScriptedApi, request: web.Request) -> web.StreamResponse:
        stream, opened = await accepted(request), elapsed()
        await wait_for(lambda: elapsed() > opened + 1.3, "the next list is due")
        await api.put("job-4-0123abcd-1", is_told=False)
        await stream.write(event("ADDED", made("job-9-0123abcd-1", api.version - 1, {})))
        return stream

    def ask() -> None:
        if "job-9-0123abcd-1" in reflector.store.view() and not asked:
            asked.append(len(api.requests("list")))
            reflector.relist()

    api.watches.append(late_event)
    client = KubeClient(api.login())
    resource = Resource("jobs", JOBS, read_job, job_selector(SITE.installation))
    reflector = Reflector[Job](client, resource, ReflectorPace(watch=30, relist=1), random.Random(7))
    reflector.store.on_each(lambda _before, _after: ask())
    running = asyncio.create_task(reflector.run())
    try:
        await wait_for(lambda: bool(asked) and len(api.requests("list")) > asked[0], "the list")
        assert set(api.requests("list")[asked[0]].query) == {"limit", "labelSelector"}
        await settled(api, reflector)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await client.close()


async def test_request_in_the_pause_after_a_fault_is_served_by_the_next_list(api: ScriptedApi) -> None:
    told = asyncio.Event()
    async with reflecting_script(api, ReflectorPace(first_pause=2, longest_pause=2)) as reflector:
        await settled(api, reflector)
        await watches(api, 1)
        await api.cut()
        await wait_for(lambda: bool(reflector.fault), "the fault")
        api.lists.append(held(told))
        reflector.relist()
        assert len(api.requests("list")) == 1, "the reflector pauses"
        await lists(api, 2)
        assert reflector.fault
        told.set()
        await settled(api, reflector)
    assert len(api.requests("list")) == 2


async def test_many_requests_lose_nothing(api: ScriptedApi) -> None:
    chance = random.Random(7)
    async with reflecting_script(api, QUICK, name="often") as reflector:
        for _ in range(60):
            await change_something(api, chance, is_told=chance.random() < 0.9)
            if chance.random() < 0.3 and not reflector.fault:
                reflector.relist()
                assert reflector.fault
            if chance.random() < 0.5:
                await wait_for(lambda: not reflector.fault, "a list that counts")
        await wait_for(lambda: not reflector.fault, "a list that counts")
        reflector.relist()
        await settled(api, reflector)
        await api.put("job-4-0123abcd-1")
        await settled(api, reflector)


async def test_view_is_stale_until_jobs_and_pods_are_listed_anew(api: ScriptedApi) -> None:
    client, told = KubeClient(api.login()), asyncio.Event()
    reflectors = Reflectors(client, QUICK)
    mirror = Mirror(reflectors, NAMESPACE, SITE.installation, with_nodes=True)
    running = asyncio.create_task(reflectors.run())
    try:
        await wait_for(lambda: not mirror.stale(), "the first lists")
        await watches(api, 3)
        api.until_cured["list"] = held(told)
        mirror.relist()
        assert [part.split(":")[0] for part in mirror.view().stale.split("; ")] == ["jobs", "pods"]
        await lists(api, 5)
        assert mirror.view().stale
        told.set()
        await wait_for(lambda: not mirror.stale(), "the new lists")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await client.close()
    assert [sum(asked.path == path for asked in api.requests("list")) for path in (JOBS, PODS, NODES)] == [2, 2, 1]
