"""A reflector with a server that misbehaves: the store ends equal to the server, which is not overloaded."""

import random
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
import pytest_asyncio

from dispatcher.kube.reflector import PAGE, ReflectorPace
from tests.contract.reflecting import change_something, content, reflecting_script, relists, settled, truth
from tests.contract.scripted_api import Fault, ScriptedApi, event, made, serving
from tests.contract.scripted_faults import answers, as_usual, gone, out_of_order, refuses, reset, silent, streams
from tests.controlplane.waiting import wait_for

TOO_MANY = answers(429, "Too many requests, please try again later.", Retry_After="1")
SIGN = event("BOOKMARK", {"metadata": {"resourceVersion": "103"}})
OF_A_WATCH: dict[str, Fault] = {
    "410": refuses(410, "Expired"),
    "410 in the stream": gone(),
    "429 in plain text": TOO_MANY,
    "500": refuses(500, "InternalError"),
    "403": refuses(403, "Forbidden"),
    "401": refuses(401, "Unauthorized"),
    "an error of another kind": streams(event("ERROR", {"code": 504, "message": "Too large resource version"})),
    "half a line": streams(event("ADDED", made("job-1-0123abcd-1", 200, {}))[:40]),
    "not JSON": streams(b"<html>who are you?</html>\n"),
    "an event of nothing": streams(b'{"type":"ADDED"}\n'),
    "an event of an unknown type": streams(event("NEWS", made("job-1-0123abcd-1", 200, {}))),
    "the end at once": streams(),
    "the end after one event": streams(SIGN),
    "a broken connection": reset,
}
OF_A_LIST: dict[str, Fault] = {
    "410": refuses(410, "Expired"),
    "429 in plain text": TOO_MANY,
    "500": refuses(500, "InternalError"),
    "an empty object": answers(200, "{}"),
    "another object": answers(200, '{"kind": "Status", "status": "Success"}'),
    "a list without a version": answers(200, '{"metadata": {}, "items": []}'),
    "a list of nothing known": answers(200, '{"metadata": {"resourceVersion": "900"}, "items": [1]}'),
    "a login page": answers(200, "<html>who are you?</html>", Content_Type="text/html"),
    "a broken connection": reset,
}


@pytest_asyncio.fixture(loop_scope="session")
async def api() -> AsyncIterator[ScriptedApi]:
    async with serving() as served:
        for number in (1, 2, 3):
            await served.put(f"job-{number}-0123abcd-1")
        yield served


class TestWithoutFaults:
    @pytest.mark.fault(26)
    @pytest.mark.museum("list RV 0")
    async def test_lists_and_watches_have_the_right_parameters(self, api: ScriptedApi) -> None:
        async with reflecting_script(api, ReflectorPace()) as reflector:
            await wait_for(lambda: bool(api.requests("watch")), "a watch")
            await settled(api, reflector)
        (listed,), (watched,) = api.requests("list"), api.requests("watch")
        assert set(listed.query) == {"limit", "labelSelector"}  # without resourceVersion: a consistent read
        assert watched.query["resourceVersion"] == "103"
        assert watched.query["allowWatchBookmarks"] == "true"
        assert 240 <= int(watched.query["timeoutSeconds"]) < 300

    async def test_long_list_comes_in_pages(self, api: ScriptedApi) -> None:
        for number in range(4, 2 * PAGE + 10):
            await api.put(f"job-{number}-0123abcd-1")
        async with reflecting_script(api) as reflector:
            await settled(api, reflector)
        assert len(api.requests("list")) == 3

    async def test_page_of_large_objects_comes_in_smaller_parts(self, api: ScriptedApi) -> None:
        for number in range(4, 30):
            await api.put(f"job-{number}-0123abcd-1", words="x" * 2**20)
        async with reflecting_script(api) as reflector:
            await settled(api, reflector)
        limits = [int(asked.query["limit"]) for asked in api.requests("list")]
        assert (limits[0], min(limits), len(limits)) == (PAGE, PAGE // 8, 6), "26 MiB; three answers were not read"

    async def test_watch_brings_the_largest_object_that_etcd_takes(self, api: ScriptedApi) -> None:
        """Go writes six bytes for each `<`, and etcd takes 1.5 MiB."""
        async with reflecting_script(api) as reflector:
            await settled(api, reflector)
            await api.put("job-4-0123abcd-1", words="\\u003c" * 1_500_000)
            await settled(api, reflector)
        assert len(api.requests("list")) == 1

    async def test_expired_page_begins_the_list_anew(self, api: ScriptedApi) -> None:
        for number in range(4, PAGE + 10):
            await api.put(f"job-{number}-0123abcd-1")
        api.lists.extend([as_usual, refuses(410, "Expired")])
        async with reflecting_script(api) as reflector:
            await settled(api, reflector)
        assert ["continue" in asked.query for asked in api.requests("list")] == [False, True, False, True]

    async def test_busy_server_is_asked_for_the_same_page_again(self, api: ScriptedApi) -> None:
        """Of a thousand pages one may well meet a busy moment. To begin anew each time would never come to an end."""
        for number in range(4, 2 * PAGE + 10):
            await api.put(f"job-{number}-0123abcd-1")
        api.lists.extend([as_usual, TOO_MANY])
        async with reflecting_script(api) as reflector:
            await settled(api, reflector)
        first, second, again, third = [asked.query.get("continue") for asked in api.requests("list")]
        assert first is None
        assert second == again != third

    async def test_watch_of_a_busy_server_goes_on_from_its_version(self, api: ScriptedApi) -> None:
        api.watches.append(TOO_MANY)
        async with reflecting_script(api) as reflector:
            await wait_for(lambda: len(api.requests("watch")) > 1, "the next watch")
            await api.put("job-4-0123abcd-1")
            await settled(api, reflector)
        assert len(api.requests("list")) == 1

    async def test_changes_arrive_and_bookmarks_move_the_version(self, api: ScriptedApi) -> None:
        async with reflecting_script(api) as reflector:
            await settled(api, reflector)
            await api.put("job-4-0123abcd-1")
            await api.put("job-1-0123abcd-1")
            await api.remove("job-2-0123abcd-1")
            await settled(api, reflector)
            await api.put("somebody-elses", "/another/path")
            await api.bookmark()
            await wait_for(lambda: reflector.store.resource_version == str(api.version), "the bookmark's version")
        assert len(api.requests("list")) == 1

    async def test_watch_that_ends_in_time_continues_from_its_version(self, api: ScriptedApi) -> None:
        async with reflecting_script(api, ReflectorPace(watch=1)) as reflector:
            await settled(api, reflector)
            await api.put("job-4-0123abcd-1")
            await wait_for(lambda: len(api.requests("watch")) > 1, "the next watch")
            await api.put("job-5-0123abcd-1")
            await settled(api, reflector)
        assert len(api.requests("list")) == 1
        assert api.requests("watch")[1].query["resourceVersion"] == "104"


@pytest.mark.fault(25)
@pytest.mark.museum("no relist on 410")
@pytest.mark.museum("in-stream 410 ignored")
@pytest.mark.parametrize("fault", OF_A_WATCH.values(), ids=OF_A_WATCH)
async def test_interrupted_watch_loses_nothing(api: ScriptedApi, fault: Fault) -> None:
    async with reflecting_script(api) as reflector:
        await settled(api, reflector)
        api.watches.append(fault)
        await api.put("job-1-0123abcd-1")
        await api.cut()
        await wait_for(lambda: not api.watches, "the fault")
        assert "job-1-0123abcd-1" in content(reflector)
        await api.put("job-4-0123abcd-1")
        await api.remove("job-2-0123abcd-1")
        await settled(api, reflector)


@pytest.mark.museum("unknown count = 0")
@pytest.mark.parametrize("fault", OF_A_LIST.values(), ids=OF_A_LIST)
async def test_faulty_list_never_counts_as_a_list(api: ScriptedApi, fault: Fault) -> None:
    async with reflecting_script(api) as reflector:
        await settled(api, reflector)
        api.until_cured["list"] = fault

        async def has_listed_twice() -> bool:
            await api.cut()  # there may not have been a watch yet
            return len(api.requests("list")) > 2

        await wait_for(has_listed_twice, "two faulty lists")
        assert reflector.fault
        assert content(reflector) == truth(api)
        del api.until_cured["list"]
        await settled(api, reflector)


@pytest.mark.fault(25)
@pytest.mark.parametrize(
    "name", ["410", "410 in the stream", "429 in plain text", "not JSON", "the end at once", "the end after one event"]
)
async def test_server_that_keeps_refusing_is_asked_with_growing_pauses(api: ScriptedApi, name: str) -> None:
    pace = ReflectorPace(first_pause=0.1, longest_pause=0.8)
    api.until_cured["watch"] = OF_A_WATCH[name]
    async with reflecting_script(api, pace) as reflector:
        await wait_for(lambda: len(api.requests("watch")) >= 7, "seven watches")
        watched, listed = [asked.at for asked in api.requests("watch")], api.requests("list")
        api.until_cured.clear()
        await settled(api, reflector)
    gaps = [later - before for before, later in pairwise(watched)]
    shortest = [min(0.1 * 2**number, 0.8) / 4 for number in range(len(gaps))]
    assert all(gap >= least for gap, least in zip(gaps, shortest, strict=True)), gaps
    assert len(listed) <= len(watched) + 1


@pytest.mark.fault(24)
async def test_silent_stream_is_replaced_by_a_list(api: ScriptedApi) -> None:
    api.watches.append(silent)
    async with reflecting_script(api, silence=1.1, name="silent") as reflector:
        await wait_for(lambda: bool(api.requests("watch")), "the silent watch")
        await api.put("job-4-0123abcd-1")
        await settled(api, reflector)
    assert (relists("silent", "quiet"), relists("silent", "fault")) == (1, 0)


@pytest.mark.fault(28)
async def test_events_out_of_order_are_repaired(api: ScriptedApi) -> None:
    api.watches.append(out_of_order)
    async with reflecting_script(api) as reflector:
        await wait_for(lambda: bool(api.requests("watch")), "the watch")
        for _ in range(3):
            await api.put("job-1-0123abcd-1")
        await settled(api, reflector)


class TestDrift:
    @pytest.mark.fault(28)
    async def test_missing_event_is_repaired_and_counted(self, api: ScriptedApi) -> None:
        async with reflecting_script(api, ReflectorPace(relist=1), name="lied to") as reflector:
            await settled(api, reflector)
            await api.remove("job-1-0123abcd-1", is_told=False)
            await api.put("job-4-0123abcd-1", is_told=False)
            await api.bookmark()
            await wait_for(lambda: relists("lied to", "drift") > 0, "the drift")
            await settled(api, reflector)

    @pytest.mark.slow
    async def test_changes_during_a_list_are_no_drift(self, api: ScriptedApi) -> None:
        chance = random.Random(7)
        async with reflecting_script(api, ReflectorPace(relist=1), name="busy") as reflector:
            await settled(api, reflector)

            async def change() -> bool:
                for _ in range(20):
                    await change_something(api, chance)
                return relists("busy", "due") + relists("busy", "drift") >= 2

            await wait_for(change, "two lists that were due", 20)
            await settled(api, reflector)
        assert relists("busy", "drift") == 0
        assert relists("busy", "fault") == 0
