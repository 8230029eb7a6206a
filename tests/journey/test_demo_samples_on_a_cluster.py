"""The demo's own samples on a real API server: each ends as the summary says, and all objects are removed.

Their template selects no nodes, so their Pods may go to any node. Here they must go to the nodes with real processes,
because the nodes of kwok run nothing.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from tests.controlplane.cluster import ControlPlane
from tests.controlplane.waiting import wait_for
from tests.rig.demo_summary import check_end, rows_of, table
from tests.rig.demoing import Demo, demo
from tests.rig.dispatching import Place
from tests.rig.noding import nodes

TASKS = 5
CANCELLED, RETRIED, FAULTY = 1, 2, 3
NODES = "/api/v1/nodes"
CORDONED = "node.kubernetes.io/unschedulable"
LEFT = ("apis/batch/v1", "jobs"), ("api/v1", "pods"), ("apis/coordination.k8s.io/v1", "leases")
Json = dict[str, Any]


@asynccontextmanager
async def others_cordoned(plane: ControlPlane) -> AsyncIterator[None]:
    """Cordons all present nodes until the block ends."""
    names = [node["metadata"]["name"] for node in await found(plane, NODES) if not is_closed(node)]

    async def cordon(value: bool | None) -> None:
        spec = {"spec": {"unschedulable": value}}
        await asyncio.gather(*(plane.admin("PATCH", f"{NODES}/{name}", spec) for name in names))

    async def are_open() -> bool:
        return not any(is_closed(node) for node in await found(plane, NODES) if node["metadata"]["name"] in names)

    await cordon(True)
    try:
        yield
    finally:
        await cordon(None)
        await plane.wait_for(are_open, "the nodes take Pods again", 30)


def is_closed(node: Json) -> bool:
    """Whether the node is cordoned, or still has the taint of a cordon."""
    spec = node["spec"]
    return "unschedulable" in spec or any(taint["key"] == CORDONED for taint in spec.get("taints", ()))


async def found(plane: ControlPlane, path: str) -> list[Json]:
    items: list[Json] = (await plane.admin("GET", path))["items"]
    return items


async def places_until_rest(shown: Demo, place: Place) -> dict[str, str]:
    """The nodes of its Pods, by Pod. Each Pod exists until a round of the janitor."""
    taken = dict[str, str]()

    async def is_at_rest() -> bool:
        for pod in await found(place.control_plane, f"/api/v1/namespaces/{place.namespace}/pods"):
            taken[pod["metadata"]["name"]] = pod["spec"].get("nodeName", "")
        return "Next page:" in shown.said

    await wait_for(is_at_rest, "everything has ended, or is parked", 120, check=shown.check)
    return taken


def check_story(said: str, rows: list[asyncpg.Record]) -> None:
    """One row is cancelled, one fails and is retried, one is parked, and the rest succeed."""
    states = {row["id"]: (row["status"], row["attempt"]) for row in rows}
    told = {int(line["task"]): line["what it shows"] for line in table(said)}
    rest = dict.fromkeys(range(FAULTY + 1, TASKS + 1), ("succeeded", 1))
    assert states == {CANCELLED: ("cancelled", 1), RETRIED: ("succeeded", 2), FAULTY: ("waiting", 1), **rest}
    assert told[CANCELLED] == "runs until it is cancelled; nobody needs it any more"
    assert f"task {RETRIED} (default) failed: ContainerFailed: report is exit-code" in said
    assert said.count(f"task {RETRIED}: its submitter asks to retry it") == 1
    assert "the file of its template is faulty: template reports: spec.backoffLimit is '3'" in told[FAULTY]
    assert {told[number] for number in rest} == {"says hello"}


@pytest.mark.slow
async def test_each_sample_ends_as_the_summary_says_and_the_cluster_is_left_as_it_was(place: Place) -> None:
    plane, namespace = place.control_plane, place.namespace
    config = plane.kubeconfig(place.folder / "admin.kubeconfig", token=plane.admin_token, namespace=namespace)
    asked = "--plain", "--keep", "--tasks", TASKS, "--kubeconfig", config
    async with others_cordoned(plane), nodes(place, "one", "two") as ours, demo(*asked, COLUMNS="300") as shown:
        taken = await places_until_rest(shown, place)
        rows = await rows_of(shown.database_url)
        check_end(shown.said, rows)
        check_story(shown.said, rows)
        assert {*taken.values()} <= {node.name for node in ours}, taken
        assert len(taken) >= TASKS - 1, taken
        shown.signal(signal.SIGINT)
        assert await shown.ends() == 0
        for api, kind in LEFT:
            assert await found(plane, f"/{api}/namespaces/{namespace}/{kind}") == []
