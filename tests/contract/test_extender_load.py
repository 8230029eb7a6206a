"""Points for the expected real use of a Pod: the golden cases of the original plugin, on nodes of the same sizes.

The Pod requests 1000m and 1Gi and has limits of 4000m and 4Gi. REAL is the use of its earlier runs.
"""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.waiting import wait_for
from tests.scheduling.nodes_and_pods import NodeGroup, open_node_group
from tests.scheduling.own_extender import OwnExtender

pytest_plugins = ["tests.scheduling.fixtures"]
REAL = [
    {"cpu": "3000m", "memory": "3000Mi"},
    {"cpu": "2500m", "memory": "2000Mi"},
    {"cpu": "2000m", "memory": "1500Mi"},
]
ASKED = {"cpu": "1000m", "memory": "1Gi"}
LIMITS = {"cpu": "4000m", "memory": "4Gi"}
SIZES = {
    "roomy": ("5000m", "8Gi"),
    "as the limit": ("4000m", "4Gi"),
    "second use": ("2600m", "2500Mi"),
    "less than any use": ("1500m", "1200Mi"),
    "cpu alone": ("5000m", "1200Mi"),
    "cpu, and memory as the limit": ("5000m", "4Gi"),
}
GOLDEN = dict(zip(SIZES, (7, 6, 5, 1, 4, 6), strict=True))


def pod(*, real: object = REAL, history: list[str] | None = None, limits: Json | None = LIMITS) -> Json:
    notes = {"real-resources": real, "history-nodes": history}
    annotations = {f"dispatcher.internal/{name}": json.dumps(note) for name, note in notes.items() if note is not None}
    metadata = {"name": "a", "namespace": "default", "uid": "u", "annotations": annotations}
    resources = {"requests": ASKED} | ({"limits": limits} if limits else {})
    return {"metadata": metadata, "spec": {"containers": [{"name": "task", "resources": resources}]}}


@dataclass(frozen=True, slots=True)
class Sized:
    """One node of each size, by the name of the size."""

    node_group: NodeGroup
    nodes: dict[str, str]

    @property
    def names(self) -> list[str]:
        return list(self.nodes.values())


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def sized(
    control_plane: ControlPlane, own_extender: OwnExtender, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Sized]:
    async with open_node_group(control_plane, tmp_path_factory.mktemp("sized")) as node_group:
        made = {what: (await node_group.nodes(1, cpu=cpu, memory=memory))[0] for what, (cpu, memory) in SIZES.items()}
        await known(own_extender, *made.values())
        yield Sized(node_group, made)


async def known(own_extender: OwnExtender, *nodes: str) -> None:
    async def are_known() -> bool:
        _, told = await own_extender.post("explain", {"Pod": pod(), "Nodes": None, "NodeNames": None})
        return set(nodes) <= set(told["nodes"])

    await wait_for(are_known, "the nodes are known")


async def becomes(own_extender: OwnExtender, node: str, score: int) -> None:
    """Waits for these points: they change with the Pods on the node, once the extender hears of them."""

    async def is_so() -> bool:
        return await own_extender.scores(pod(), [node]) == {node: score}

    await wait_for(is_so, f"the node is given {score} points")


async def test_points_are_those_of_the_golden_cases(sized: Sized, own_extender: OwnExtender) -> None:
    scores = await own_extender.scores(pod(), sized.names)
    assert {what: scores[node] for what, node in sized.nodes.items()} == GOLDEN


async def test_points_of_history_are_added(sized: Sized, own_extender: OwnExtender) -> None:
    second, roomy, least = (sized.nodes[what] for what in ("second use", "roomy", "less than any use"))
    scores = await own_extender.scores(pod(history=[second, roomy, least]), sized.names)
    assert [scores[node] for node in (second, roomy, least)] == [8, 9, 2]
    assert (await own_extender.scores(pod(history=[roomy]), sized.names))[roomy] == 10


@pytest.mark.parametrize("real", [None, []], ids=["no note", "an empty one"])
async def test_pod_without_known_use_gets_points_only_for_history(
    sized: Sized, own_extender: OwnExtender, real: object
) -> None:
    scores = await own_extender.scores(pod(real=real, history=sized.names[:4]), sized.names)
    assert list(scores.values()) == [3, 2, 1, 0, 0, 0]
    assert set((await own_extender.scores(pod(real=real), sized.names)).values()) == {0}


async def test_ten_points_are_a_hundred_points_of_kube_scheduler(sized: Sized, own_extender: OwnExtender) -> None:
    node_group, nodes = sized.node_group, sized.nodes
    scheduler = node_group.scheduler_of(await own_extender.printed())
    notes = {"real-resources": json.dumps(REAL), "history-nodes": json.dumps([nodes["roomy"]])}
    container = {"name": "task", "image": "registry.example/x:1", "resources": {"requests": ASKED, "limits": LIMITS}}
    name = await node_group.pod(scheduler, notes=notes, containers=[container])
    assert await node_group.bound(name) == [nodes["roomy"]]
    points = {what: scheduler.extender_score(node_group.key(name), node) for what, node in nodes.items()}
    assert points == {what: 10 * score for what, score in GOLDEN.items()} | {"roomy": 100}
    await node_group.delete_pod(name)
    await becomes(own_extender, nodes["roomy"], GOLDEN["roomy"])


async def test_requests_of_pods_on_the_node_are_not_free(node_group: NodeGroup, own_extender: OwnExtender) -> None:
    (node,) = await node_group.nodes(1, cpu="8", memory="12Gi")
    await becomes(own_extender, node, 7)
    filling = await node_group.occupy(node, cpu="4", memory="8Gi")
    await becomes(own_extender, node, 6)
    await node_group.delete_pod(filling)
    await becomes(own_extender, node, 7)


async def test_ended_pods_take_no_room(node_group: NodeGroup, own_extender: OwnExtender) -> None:
    (node,) = await node_group.nodes(1, cpu="8", memory="12Gi")
    ending = await node_group.occupy(node, cpu="4", memory="8Gi")
    await becomes(own_extender, node, 6)
    await node_group.end_pod(ending)
    await becomes(own_extender, node, 7)


INIT = {"name": "first", "image": "registry.example/x:1", "resources": {"requests": {"cpu": "4", "memory": "8Gi"}}}
WHOLE = {"requests": {"cpu": "4", "memory": "8Gi"}}


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({"initContainers": [INIT]}, id="init container"),
        pytest.param({"initContainers": [INIT | {"restartPolicy": "Always"}]}, id="sidecar"),
        pytest.param({"resources": WHOLE}, id="of the whole pod"),
    ],
)
async def test_requests_outside_of_containers_count(
    node_group: NodeGroup, own_extender: OwnExtender, asked: Json
) -> None:
    (node,) = await node_group.nodes(1, cpu="8", memory="12Gi")
    await node_group.occupy(node, cpu=None, memory=None, **asked)
    await becomes(own_extender, node, 6)


async def test_pod_without_limits_is_scored_by_its_real_use(sized: Sized, own_extender: OwnExtender) -> None:
    """There is no limit that a use could exceed."""
    scores = await own_extender.scores(pod(limits=None), sized.names)
    assert {what: scores[node] for what, node in sized.nodes.items()} == GOLDEN | {"roomy": 6, "cpu alone": 3}


@pytest.mark.parametrize("written", ["x", {}, 5, [5], [{"cpu": 5}], ["1"]], ids=str)
async def test_invalid_use_is_counted_and_gives_no_points(
    sized: Sized, own_extender: OwnExtender, written: object
) -> None:
    before = await own_extender.metric("dispatcher_extender_ignored_total", part="real-resources")
    assert set((await own_extender.scores(pod(real=written), sized.names)).values()) == {0}
    assert await own_extender.metric("dispatcher_extender_ignored_total", part="real-resources") == before + 1


@pytest.mark.parametrize("amount", ["1e3", "0.5", "-1", "1Ki1", "", "1E", "99999999999999999999"])
async def test_any_quantity_gives_whole_points_within_range(
    sized: Sized, own_extender: OwnExtender, amount: str
) -> None:
    odd = pod(real=[{"cpu": amount, "memory": amount}], history=sized.names[:1])
    odd["spec"]["containers"][0]["resources"] = {"requests": {"cpu": amount}, "limits": {"memory": amount}}
    scores = await own_extender.scores(odd, sized.names)
    assert list(scores) == sized.names
    assert all(type(score) is int and 0 <= score <= 10 for score in scores.values())


async def test_unknown_node_gets_points_in_the_middle(sized: Sized, own_extender: OwnExtender) -> None:
    scores = await own_extender.scores(pod(), [*sized.names, "no-such-node"])
    assert min(GOLDEN.values()) < scores["no-such-node"] < max(GOLDEN.values())
