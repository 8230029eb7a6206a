"""The meaning of an extender's points for kube-scheduler."""

import pytest

from tests.controlplane.api import Json
from tests.scheduling.kube_scheduler import entry
from tests.scheduling.nodes_and_pods import Ground
from tests.scheduling.scripted import Scripted, points
from tests.scheduling.stage import ScriptedStage

pytest_plugins = ["tests.scheduling.fixtures"]
FAULT = "Failed to run extender's priority function. No score given by this extender."


async def test_pod_without_points_is_bound_with_two_calls_over_one_connection(stage: ScriptedStage) -> None:
    pods = [await stage.pod() for _ in range(5)]
    assert set(await stage.ground.bound(*pods)) <= set(stage.nodes)
    calls = stage.extender.calls
    assert [call.verb for call in calls] == ["filter", "prioritize"] * 5
    assert [call.pod for call in calls[::2]] == [call.pod for call in calls[1::2]]
    assert sorted(call.pod for call in calls[::2]) == sorted(pods)
    assert len({call.peer for call in calls}) == 1


async def test_single_node_needs_no_points(ground: Ground, extender: Scripted) -> None:
    await ground.nodes(1)
    await ground.bound(await ground.pod(ground.scheduler(entry(extender.url))))
    assert [call.verb for call in extender.calls] == ["filter"]


async def test_single_node_after_the_filter_needs_no_points(stage: ScriptedStage) -> None:
    first, _ = stage.nodes
    stage.extender.filter = lambda asked: {"NodeNames": [first]}
    _, node = await stage.bound()
    assert node == first
    assert [call.verb for call in stage.extender.calls] == ["filter"]


async def test_one_point_of_weight_three_is_thirty(ground: Ground, extender: Scripted) -> None:
    first, second = await ground.nodes(2)
    extender.prioritize = points(**{first: 1})
    scheduler = ground.scheduler(entry(extender.url, weight=3))
    pod = await ground.pod(scheduler)
    assert await ground.bound(pod) == [first]
    added = [scheduler.of_extenders(ground.key(pod), node) for node in (first, second)]
    assert added == [30, 0]


@pytest.mark.parametrize(("said", "added"), [(25, 250), (-4, -40), (0, 0)])
async def test_points_outside_the_range_of_the_protocol_count(stage: ScriptedStage, said: int, added: int) -> None:
    stage.extender.prioritize = points(**{stage.nodes[0]: said})
    pod, _ = await stage.bound()
    assert stage.added(pod) == [added, 0]


@pytest.mark.parametrize(("said", "wins"), [(3, "idle"), (5, "busy")])
async def test_five_points_outweigh_a_cpu_three_quarters_full_and_three_do_not(
    ground: Ground, extender: Scripted, said: int, wins: str
) -> None:
    busy, idle = await ground.nodes(2)
    await ground.occupy(busy, cpu="6")
    extender.prioritize = points(**{busy: said})
    scheduler = ground.scheduler(entry(extender.url))
    pod = await ground.pod(scheduler)
    assert await ground.bound(pod) == [{"idle": idle, "busy": busy}[wins]]
    plugins = [sum(scheduler.of_plugins(ground.key(pod), node).values()) for node in (idle, busy)]
    assert 30 < plugins[0] - plugins[1] < 40


@pytest.mark.parametrize(
    "said", [[], None, [{"Host": "no-such-node", "Score": 9}]], ids=["an empty list", "null", "an unknown node"]
)
async def test_answer_without_points_binds_the_pod_as_without_an_extender(
    stage: ScriptedStage, said: list[Json] | None
) -> None:
    stage.extender.prioritize = lambda asked: said
    pod, _ = await stage.bound()
    assert stage.added(pod) == [0, 0]
    assert stage.scheduler.said(FAULT, pod=stage.ground.key(pod)) == []


async def test_points_given_twice_add_up(stage: ScriptedStage) -> None:
    first, second = stage.nodes
    stage.extender.prioritize = lambda asked: [{"Host": first, "Score": 2}] * 2 + [{"Host": second, "Score": 3}]
    pod, node = await stage.bound()
    assert node == first
    assert stage.added(pod) == [40, 30]


async def test_node_left_out_of_the_answer_loses_ties_to_a_node_with_zero(stage: ScriptedStage) -> None:
    """Only nodes with an answer take part in the random choice that breaks ties."""
    for node in stage.nodes:
        stage.extender.prioritize = points(**{node: 0})
        pods = [await stage.pod(cpu=None, memory=None) for _ in range(6)]
        assert await stage.ground.bound(*pods) == [node] * 6
    assert len(set(stage.scheduler.final(stage.ground.key(pods[-1])).values())) == 1, "a tie"


async def test_tie_of_nodes_with_an_answer_is_broken_at_random(stage: ScriptedStage) -> None:
    pods = [await stage.pod(cpu=None, memory=None) for _ in range(20)]
    assert set(await stage.ground.bound(*pods)) == set(stage.nodes)


@pytest.mark.parametrize(
    "score", [3.5, 3.0, "3", True, [3], 2**63], ids=["3.5", "3.0", "text", "true", "a list", "above int64"]
)
async def test_score_that_is_no_integer_loses_all_scores(stage: ScriptedStage, score: object) -> None:
    first, second = stage.nodes
    stage.extender.prioritize = lambda asked: [{"Host": first, "Score": 9}, {"Host": second, "Score": score}]
    pod, _ = await stage.bound()
    assert stage.added(pod) == [0, 0]
    assert len(stage.scheduler.said(FAULT, pod=stage.ground.key(pod))) == 1, "at level 5 and nowhere else"
