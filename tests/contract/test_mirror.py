"""The mirror of the cluster says what is not known, and is equal to the server in the end, whatever happened before."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from dispatcher.kube.capacity import MOST_NODES, Mirror
from dispatcher.kube.client import KubeClient
from dispatcher.kube.reflector import MOST_SECONDS, ReflectorPace, Reflectors
from tests.contract.reflecting import QUICK, change_something, content, reflecting_script, settled
from tests.contract.scripted_api import JOBS, NAMESPACE, NODES, PODS, Fault, ScriptedApi, serving
from tests.contract.scripted_faults import answers, gone, out_of_order, refuses, reset, silent, streams
from tests.controlplane.waiting import moment, wait_for
from tests.rig.builders import SITE, a_pod

FAULTS: list[Fault] = [
    refuses(410, "Expired"), gone(), refuses(500, "InternalError"), answers(429, "later", Retry_After="1"), reset,
    silent, out_of_order, streams(), streams(b'{"type":"AD'), streams(b"<html>\n"), answers(200, "{}"),
    answers(200, "<html>"), refuses(401, "Unauthorized"), refuses(403, "Forbidden"),
]  # fmt: skip
HURRIED = ReflectorPace(watch=1, relist=1.5, first_pause=0.01, longest_pause=0.1)


@pytest_asyncio.fixture(loop_scope="session")
async def api() -> AsyncIterator[ScriptedApi]:
    async with serving() as served:
        for path in (JOBS, PODS, NODES):
            await served.put("thing-1-0123abcd-1", path)
        yield served


@asynccontextmanager
async def mirroring(api: ScriptedApi, *, with_nodes: bool = True) -> AsyncIterator[Mirror]:
    client = KubeClient(api.login(), silence=5)
    reflectors = Reflectors(client, QUICK)
    mirror = Mirror(reflectors, NAMESPACE, SITE.installation, with_nodes=with_nodes)
    running = asyncio.create_task(reflectors.run())
    try:
        yield mirror
        assert not running.done(), running.exception()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await client.close()


async def fresh(mirror: Mirror) -> None:
    await wait_for(lambda: not mirror.stale(), "nothing is stale")


class TestStale:
    async def test_mirror_knows_nothing_before_the_first_list(self, api: ScriptedApi) -> None:
        api.until_cured["list"] = refuses(403, "Forbidden")
        async with mirroring(api) as mirror:
            assert mirror.stale() == "jobs: not listed yet; pods: not listed yet; nodes: not listed yet"
            await wait_for(lambda: "list nodes: 403 Forbidden" in mirror.stale(), "the refusal is told")
            assert mirror.view().stale
            api.until_cured.clear()
            await fresh(mirror)
            view = mirror.view()
        assert (set(view.jobs), set(view.pods), set(view.nodes)) == ({"thing-1-0123abcd-1"},) * 3
        assert view.stale == ""

    @pytest.mark.museum("unknown count = 0")
    @pytest.mark.parametrize(
        "how",
        [reset, answers(503, "no endpoints"), refuses(401, "Unauthorized")],
        ids=["connections break", "a proxy in its place", "the token is refused"],
    )
    async def test_mirror_is_stale_and_kept_while_the_server_is_away(self, api: ScriptedApi, how: Fault) -> None:
        async with mirroring(api) as mirror:
            await fresh(mirror)
            api.until_cured |= {"list": how, "watch": how}
            await api.cut()
            await wait_for(lambda: mirror.stale().count("; ") == 2, "jobs, pods and nodes are stale")
            await api.put("thing-2-0123abcd-1")
            assert set(mirror.view().jobs) == {"thing-1-0123abcd-1"}
            api.until_cured.clear()
            await fresh(mirror)
            assert set(mirror.view().jobs) == {"thing-1-0123abcd-1", "thing-2-0123abcd-1"}

    @pytest.mark.fault(24)
    async def test_one_stale_resource_makes_the_mirror_stale(self, api: ScriptedApi) -> None:
        async with mirroring(api) as mirror:
            await fresh(mirror)
            mirror._pods.store.proven_at = time.monotonic() - MOST_SECONDS - 1
            assert mirror.stale() == f"pods: no sign of life for {MOST_SECONDS + 1} s"
            await api.put("thing-2-0123abcd-1", PODS)
            await fresh(mirror)

    async def test_nodes_that_may_not_be_watched_are_not_asked_for(self, api: ScriptedApi) -> None:
        async with mirroring(api, with_nodes=False) as mirror:
            await fresh(mirror)
        assert {asked.path for asked in api.asked} == {JOBS, PODS}

    async def test_nodes_are_known_by_their_watch(self, api: ScriptedApi) -> None:
        async with mirroring(api) as mirror:
            await fresh(mirror)
            mirror._hear_own_pod(None, a_pod(node_name="made-up"))
            assert (mirror.has_shown("thing-1-0123abcd-1"), mirror.has_shown("made-up")) == (True, False)

    async def test_nodes_that_may_not_be_watched_are_known_by_our_pods(self, api: ScriptedApi) -> None:
        async with mirroring(api, with_nodes=False) as mirror:
            await fresh(mirror)
            mirror._hear_own_pod(None, a_pod(node_name="node-1"))
            mirror._hear_own_pod(a_pod(node_name="node-1"), None)
            assert (mirror.has_shown("node-1"), mirror.has_shown("thing-1-0123abcd-1")) == (True, False)
            for number in range(MOST_NODES):
                mirror._hear_own_pod(None, a_pod(node_name=f"later-{number}"))
            assert (mirror.has_shown("node-1"), mirror.has_shown("later-0")) == (False, True)

    async def test_view_does_not_change(self, api: ScriptedApi) -> None:
        async with mirroring(api) as mirror:
            await fresh(mirror)
            before, told = mirror.view(), asyncio.Event()
            mirror.on_change(told.set)
            await api.put("thing-2-0123abcd-1")
            await asyncio.wait_for(told.wait(), 5)
            assert (set(before.jobs), set(mirror.view().jobs)) == (
                {"thing-1-0123abcd-1"},
                {"thing-1-0123abcd-1", "thing-2-0123abcd-1"},
            )
            assert int(mirror.view().jobs_version) > int(before.jobs_version)


class TestToken:
    async def test_list_is_repeated_with_a_fresh_token(self, api: ScriptedApi) -> None:
        async with reflecting_script(api) as reflector:
            await settled(api, reflector)
            api.tokens, api.token_file = {"fresh"}, "fresh"
            await api.cut()
            await settled(api, reflector)
            await wait_for(
                lambda: [asked.token for asked in api.requests("watch")[-1:]] == ["fresh"],
                "a watch with the fresh token",
            )

    async def test_refused_watch_is_repeated_with_a_fresh_token(self, api: ScriptedApi) -> None:
        api.watches.append(refuses(401, "Unauthorized"))
        api.token_file = "fresh"
        api.tokens.add("fresh")
        async with reflecting_script(api) as reflector:
            await wait_for(lambda: len(api.requests("watch")) > 1, "the next watch")
            await settled(api, reflector)
        assert [asked.token for asked in api.requests("watch")] == ["good", "fresh"]


class Storm:
    """Some seconds of random faults and changes."""

    def __init__(self, api: ScriptedApi, seed: int) -> None:
        self._api = api
        self._chance = random.Random(seed)

    async def run(self) -> None:
        for _ in range(self._chance.randrange(20, 60)):
            await self._chance.choices([self._change, self._script, self._break], [6, 1, 2])[0]()
            await moment(self._chance.uniform(0, 0.05))

    def stop(self) -> None:
        self._api.lists.clear()
        self._api.watches.clear()
        self._api.tokens |= {"good", "fresh"}

    async def _change(self) -> None:
        await change_something(self._api, self._chance, is_told=self._chance.random() < 0.9)

    async def _script(self) -> None:
        script = self._chance.choice([self._api.lists, self._api.watches])
        script.append(
            self._chance.choice([fault for fault in FAULTS if script is self._api.watches or is_answer(fault)])
        )

    async def _break(self) -> None:
        doing: Callable[[], object] = self._chance.choice(
            [self._api.compact, self._api.bookmark, self._api.cut, self._rotate]
        )
        result = doing()
        if asyncio.iscoroutine(result):
            await result

    def _rotate(self) -> None:
        self._api.token_file = "fresh" if self._api.token_file == "good" else "good"
        self._api.tokens = {self._api.token_file}


def is_answer(fault: Fault) -> bool:
    """Whether the fault may answer a list; a stream without an end would wait for the time limit of the request."""
    return fault not in {silent, out_of_order}


@pytest.mark.fault(25, 28)
@pytest.mark.parametrize("first_seed", [0, 10, 20])
async def test_store_equals_the_server_after_any_faults(first_seed: int) -> None:
    async def check(seed: int) -> None:
        async with serving() as api, reflecting_script(api, HURRIED, silence=0.4) as reflector:
            storm = Storm(api, seed)
            await storm.run()
            storm.stop()
            try:
                await settled(api, reflector, 15)
            except TimeoutError as late:
                raise AssertionError(f"seed {seed}: {content(reflector)}, {reflector.fault}") from late

    await asyncio.gather(*(check(seed) for seed in range(first_seed, first_seed + 10)))
