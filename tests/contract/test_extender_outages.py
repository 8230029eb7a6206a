"""The effect of an extender that fails, hangs or goes away on the Pods that kube-scheduler asks it about."""

from itertools import pairwise

import pytest
from aiohttp import web

from tests.controlplane.api import Json
from tests.controlplane.waiting import wait_for
from tests.scheduling.kube_scheduler import entry
from tests.scheduling.nodes_and_pods import Ground
from tests.scheduling.scripted import Reply, Scripted, Serving, pass_all, scripted
from tests.scheduling.stage import ScriptedStage

pytest_plugins = ["tests.scheduling.fixtures"]
UNSCORED = "Failed to run extender's priority function. No score given by this extender."
SKIPPED = "Skipping extender as it returned error and has ignorable flag set"
HALF = b'{"NodeNames": ["'


def status(code: int) -> Reply:
    return lambda asked: web.Response(status=code, text="no")


FAULTS = [
    pytest.param({"NodeNames": ["no-such-node"]}, "which is not found in the input node list", id="unknown node"),
    pytest.param({"NodeNames": None, "Error": "no store yet"}, "no store yet", id="error"),
    pytest.param(HALF, "unexpected EOF", id="cut"),
    pytest.param(b"<html>", "invalid character '<'", id="not json"),
    pytest.param({"NodeNames": 5}, "cannot unmarshal number", id="another type"),
]


@pytest.mark.parametrize(("said", "words"), FAULTS)
async def test_invalid_answer_is_a_fault_of_the_pod_in_raw_words(
    stage: ScriptedStage, said: Json | bytes, words: str
) -> None:
    stage.extender.filter = lambda asked: said
    await stage.ground.held(await stage.pod(), "SchedulerError", words)


async def test_scheduler_asks_again_one_second_after_a_fault_then_after_two(
    stage: ScriptedStage,
) -> None:
    """kube-scheduler's clock ticks in whole seconds and rounds up: 1 to 2 s, then 3 s."""
    answers: list[Json] = [{"NodeNames": ["no-such-node"]}] * 2
    stage.extender.filter = lambda asked: answers.pop() if answers else pass_all(asked)
    pod, _ = await stage.bound()
    first, second = [later.at - earlier.at for earlier, later in pairwise(stage.extender.of("filter", pod))]
    assert 1 <= first < 3
    assert 2 <= second < 5


@pytest.mark.parametrize("code", [400, 404, 413, 500, 503])
async def test_status_other_than_200_is_a_fault(stage: ScriptedStage, code: int) -> None:
    stage.extender.filter = status(code)
    words = f"failed filter with extender at URL {stage.extender.url}/filter, code {code}"
    await stage.ground.held(await stage.pod(), "SchedulerError", words)


@pytest.mark.fault(60)
async def test_hanging_extender_costs_its_timeout_and_is_a_fault(ground: Ground, extender: Scripted) -> None:
    await ground.nodes(2)
    extender.filter = extender.hang
    pod = await ground.pod(ground.scheduler(entry(extender.url, httpTimeout="200ms")))
    await ground.held(pod, "SchedulerError", "context deadline exceeded")


FAILING = {"a status": status(500), "half": lambda asked: HALF, "nothing": lambda asked: b""}


@pytest.mark.parametrize("reply", FAILING.values(), ids=FAILING)
async def test_fault_of_prioritize_is_only_logged(stage: ScriptedStage, reply: Reply) -> None:
    stage.extender.prioritize = reply
    pod, node = await stage.bound()
    assert node in stage.nodes
    assert len(stage.scheduler.said(UNSCORED, pod=stage.ground.key(pod))) == 1, "at level 5"


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
async def test_hanging_ignorable_extender_costs_each_pod_its_timeout(
    ground: Ground, extender: Scripted, verb: str
) -> None:
    nodes = await ground.nodes(2)
    setattr(extender, verb, extender.hang)
    scheduler = ground.scheduler(entry(extender.url, ignorable=True, httpTimeout="200ms"))
    pods = [await ground.pod(scheduler) for _ in range(4)]
    assert set(await ground.bound(*pods)) <= set(nodes)
    asked = [call.at for call in extender.of(verb)]
    assert len(asked) == 4
    assert asked[-1] - asked[0] >= 0.5, "three times 0.2 s, less what a busy machine adds"


async def test_ignorable_extender_is_asked_last_and_skipped(ground: Ground, extender: Scripted) -> None:
    nodes = await ground.nodes(2)
    extender.filter = status(500)
    async with scripted() as other:
        scheduler = ground.scheduler(entry(extender.url, ignorable=True), entry(other.url))
        pod = await ground.pod(scheduler)
        assert set(await ground.bound(pod)) <= set(nodes)
        assert other.of("filter")[0].at < extender.of("filter")[0].at
    assert len(scheduler.said(SKIPPED)) == 1


async def test_connection_closed_during_a_call_fails_the_pod(stage: ScriptedStage) -> None:
    """As when the server closes an idle connection just as a Pod comes: kube-scheduler does not repeat the call."""
    before, _ = await stage.bound()
    stage.extender.filter = stage.extender.hang_up
    pod = await stage.pod()
    await stage.ground.held(pod, "SchedulerError", "EOF")
    peers = [stage.extender.of("filter", asked)[0].peer for asked in (before, pod)]
    assert peers[0] == peers[1], "over the connection that was idle"


async def test_connection_closed_between_calls_is_replaced(ground: Ground) -> None:
    await ground.nodes(1)
    async with scripted(Serving(keep_alive_seconds=0.1)) as extender:
        scheduler = ground.scheduler(entry(extender.url))
        await ground.bound(await ground.pod(scheduler))
        await wait_for(lambda: not extender.connections(), "the idle connection is closed")
        await ground.bound(await ground.pod(scheduler))
        assert len({call.peer for call in extender.of("filter")}) == 2


async def test_pods_wait_for_an_absent_extender_and_none_is_lost(stage: ScriptedStage) -> None:
    async with stage.extender.away():
        pods = [await stage.pod() for _ in range(20)]
        for pod in pods:
            await stage.ground.held(pod, "SchedulerError", "connection refused")
    assert set(await stage.ground.bound(*pods, seconds=20)) <= set(stage.nodes)
