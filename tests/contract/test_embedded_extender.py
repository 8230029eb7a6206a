"""The tests' scheduler of the embedded cluster asks an extender as kube-scheduler does: same wire, same meaning."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web

from dispatcher.local.cluster.cluster import EmbeddedCluster
from dispatcher.local.cluster.kinds import NODE, POD, Target
from dispatcher.runtime.listening import Site
from tests.controlplane.waiting import wait_for
from tests.scheduling.extended_place_loop import NAME, ExtendedPlaceLoop

Json = dict[str, Any]
Reply = Callable[[Json], object]
SIZE = {"cpu": "4", "memory": "4Gi", "pods": "10"}
CONTAINER = {"name": "a", "image": "x:1", "resources": {"requests": {"cpu": "1"}}}
SPEC = {"schedulerName": NAME, "containers": [CONTAINER]}


class ScriptedExtender:
    """An extender: the requests that it got, and the answers that it gives."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Json]] = []
        self.filter: Reply = lambda asked: {"NodeNames": asked["NodeNames"]}
        self.prioritize: Reply = lambda asked: []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        verb, body = request.match_info["verb"], msgspec.json.decode(await request.read())
        self.asked.append((verb, body))
        said = {"filter": self.filter, "prioritize": self.prioritize}[verb](body)
        if isinstance(said, bytes):
            return web.Response(body=said)
        return web.Response(body=msgspec.json.encode(said), content_type="application/json")


@asynccontextmanager
async def serving() -> AsyncIterator[ScriptedExtender]:
    made, app = ScriptedExtender(), web.Application()
    app.router.add_post("/v1/{verb}", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await Site(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/"
    try:
        yield made
    finally:
        await runner.cleanup()


class World:
    """A cluster of two equal nodes."""

    def __init__(self, cluster: EmbeddedCluster, extender: ScriptedExtender) -> None:
        self._registry = cluster.registry
        self.extender = extender
        for name in ("one", "two"):
            ready = {"type": "Ready", "status": "True"}
            status = {"capacity": SIZE, "allocatable": SIZE, "conditions": [ready]}
            self._registry.create(Target(NODE), {"metadata": {"name": name}, "status": status})

    async def placed(self) -> str:
        """The node of a new Pod."""
        pod = await self._until(lambda pod: bool(pod["spec"].get("nodeName")), "it has a node")
        return str(pod["spec"]["nodeName"])

    async def held(self) -> str:
        """The reason why a new Pod gets no node."""
        pod = await self._until(lambda pod: bool(pod["status"].get("conditions")), "it is told why not")
        (condition,) = pod["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "PodScheduled",
            "False",
            "Unschedulable",
        )
        return str(condition["message"])

    async def _until(self, is_so: Callable[[Json], bool], what: str) -> Json:
        made = self._registry.create(Target(POD, "default"), {"metadata": {"generateName": "a-"}, "spec": SPEC})
        target = Target(POD, "default", made.object["metadata"]["name"])
        await wait_for(lambda: is_so(self._registry.get(target).object), what, 5)
        return self._registry.get(target).object


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with serving() as extender, EmbeddedCluster() as cluster:
        made = World(cluster, extender)
        async with ExtendedPlaceLoop(cluster.registry, extender.url):
            yield made


async def test_extender_is_asked_with_the_pod_and_the_names_of_fitting_nodes(world: World) -> None:
    await world.placed()
    assert [verb for verb, _ in world.extender.asked] == ["filter", "prioritize"]
    for _, asked in world.extender.asked:
        assert set(asked) == {"Pod", "Nodes", "NodeNames"}
        assert (asked["Nodes"], sorted(asked["NodeNames"])) == (None, ["one", "two"])
        assert asked["Pod"]["spec"]["containers"][0]["name"] == "a"
        assert asked["Pod"]["metadata"]["uid"]


async def test_points_of_the_extender_decide(world: World) -> None:
    points = iter([{"Host": "one", "Score": 10}, {"Host": "two", "Score": 10}, {"Host": "two", "Score": 10}])
    world.extender.prioritize = lambda asked: [next(points)]
    assert [await world.placed() for _ in range(3)] == ["one", "two", "two"]


async def test_node_that_the_extender_filters_out_is_not_taken(world: World) -> None:
    world.extender.filter = lambda asked: {"NodeNames": ["two"], "FailedNodes": {"one": "held"}}
    world.extender.prioritize = lambda asked: [{"Host": "one", "Score": 10}]
    assert [await world.placed() for _ in range(3)] == ["two"] * 3
    assert {verb for verb, _ in world.extender.asked} == {"filter"}, "one node needs no points"


async def test_reason_for_taking_no_node_is_reported(world: World) -> None:
    reasons = {"one": "held for another", "two": "held for another"}
    world.extender.filter = lambda asked: {"NodeNames": [], "FailedAndUnresolvableNodes": reasons}
    assert await world.held() == "0/2 nodes are available: 2 held for another."


@pytest.mark.parametrize(
    "said", [{"Error": "no store yet"}, {"NodeNames": ["three"]}, b"{", {"NodeNames": 5}, b""],
    ids=["error", "unknown node", "half an answer", "another type", "nothing"],
)  # fmt: skip
async def test_invalid_answer_holds_the_pod(world: World, said: object) -> None:
    world.extender.filter = lambda asked: said
    assert world.extender.url.rstrip("/") in await world.held()


async def test_null_names_mean_that_no_node_passes(world: World) -> None:
    world.extender.filter = lambda asked: {"NodeNames": None}
    assert "nodes are available" in await world.held()


async def test_unreadable_points_count_for_nothing(world: World) -> None:
    world.extender.prioritize = lambda asked: b"half"
    assert await world.placed() in {"one", "two"}
