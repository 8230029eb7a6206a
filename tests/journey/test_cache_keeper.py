"""The cache keeper of a node beside a dispatcher: what it tells decides where a key's next run goes."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from dispatcher.model.caches import CACHES_OF, rounded, write_node_caches
from dispatcher.model.launches import LABEL_INSTALLATION
from dispatcher.placement.placing import cache_digest
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.keeping import Keeper
from tests.rig.postgres import Record
from tests.rig.warm_pools import Pool, pools

DIGEST = cache_digest("dispatcher", "default", "maps")


RIGHTS = {
    "cache-keeper": [("pods", ["list", "watch"]), ("configmaps", ["get", "create", "update"])],
    "cache-operator": [("configmaps", ["get", "create", "patch"]), ("pods", ["list"])],
    "dispatcher": [("configmaps", ["list", "watch"])],  # the chart gives it where CACHE_ROOT is set
}
RBAC = "rbac.authorization.k8s.io"


async def account(place: Place, name: str) -> Path:
    """A kubeconfig of an account with these rights, and no others but those that it has already."""
    admin, space = place.control_plane.admin, place.namespace
    if name != "dispatcher":
        await admin("POST", f"/api/v1/namespaces/{space}/serviceaccounts", {"metadata": {"name": name}})
    rules = [{"apiGroups": [""], "resources": [what], "verbs": verbs} for what, verbs in RIGHTS[name]]
    path, meta = f"/apis/{RBAC}/v1/namespaces/{space}", {"metadata": {"name": f"{name}-caches"}}
    await admin("POST", f"{path}/roles", {**meta, "rules": rules})
    role = {"apiGroup": RBAC, "kind": "Role", "name": f"{name}-caches"}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": space}
    await admin("POST", f"{path}/rolebindings", {**meta, "roleRef": role, "subjects": [subject]})
    token = await place.control_plane.service_account_token(space, name)
    return place.control_plane.kubeconfig(place.folder / f"{name}.kubeconfig", token=token, namespace=space)


@pytest.mark.slow
async def test_next_run_goes_where_a_keeper_has_the_directory_and_not_where_it_is_gone(
    place: Place, tmp_path: Path
) -> None:
    full, empty = tmp_path / "full", tmp_path / "empty"
    await account(place, "dispatcher")
    theirs = await account(place, "cache-keeper")
    async with pools(place, 2, CACHE_ROOT="/var/cache/tasks") as (pool, nodes):
        first = (await pool.runs(cache_key="maps"))["node_name"]
        (other,) = [node for node in nodes if node != first]
        kept, lost = Keeper(place, other, full, theirs), Keeper(place, first, empty, theirs)
        (full / "dispatcher" / DIGEST).mkdir()
        async with kept, lost:
            await kept.tells(DIGEST)
            await lost.tells()

            async def follows() -> bool:
                row = await pool.runs(cache_key="maps")
                notes = (await pool.pod_of(row))["metadata"]["annotations"]
                told = json.loads(notes.get("dispatcher.internal/history-nodes", "[]"))
                return (row["node_name"], told) == (other, [other])

            await wait_for(follows, "a run goes to the node that has the directory", 30)
            await is_said(pool, await pool.runs(cache_key="maps"), (other, first))


@pytest.mark.slow
async def test_run_that_no_keeper_has_told_yet_is_followed(place: Place, tmp_path: Path) -> None:
    """A keeper writes once a minute at most. Its words are older than the run, so they deny nothing."""
    await account(place, "dispatcher")
    theirs = await account(place, "cache-keeper")
    async with pools(place, 2, CACHE_ROOT="/var/cache/tasks") as (pool, nodes):
        async with AsyncExitStack() as keepers:
            for node in nodes:
                keeper = Keeper(place, node, tmp_path / node, theirs)
                await keepers.enter_async_context(keeper)
                await keeper.tells()
            first = await pool.runs(cache_key="maps")
            after = await pool.runs(cache_key="maps")
        notes = (await pool.pod_of(after))["metadata"]["annotations"]
        assert json.loads(notes["dispatcher.internal/history-nodes"]) == [first["node_name"]]
        assert after["node_name"] == first["node_name"]


async def is_said(pool: Pool, row: Record, nodes: tuple[str, str]) -> None:
    """`explain`, the status and the page of nodes tell the same. `nodes`: the warm one, and one that has nothing."""
    _, found = await pool.dispatcher.explain(row["id"])
    assert (found["cache"]["nodes"], found["cache"]["message"][:16]) == ([nodes[0]], "warm on 1 node (")
    assert found["launches"][-1]["cache"] == "warm"
    _, status = await pool.dispatcher.api("status")
    assert status["caches"] == {"nodes": 2, "directories": 1, "bytes": found["cache"]["bytes"]}
    _, page = await pool.dispatcher.api("nodes?limit=500")
    kept = {node["name"]: node["caches"] for node in page["nodes"] if node["name"] in nodes}
    assert {name: one["directories"] for name, one in kept.items()} == {nodes[0]: 1, nodes[1]: 0}


@pytest.mark.slow
async def test_words_of_a_thousand_keepers_are_heard(place: Place) -> None:
    """Each keeper writes once a minute at most, so a thousand of them write 17 times a second."""
    maps = f"/api/v1/namespaces/{place.namespace}/configmaps"
    labels = {LABEL_INSTALLATION: "dispatcher", **CACHES_OF}
    busy = asyncio.Semaphore(50)

    async def tell(number: int) -> None:
        name = f"node-{number}"
        meta = {"name": f"dispatcher-cache-{name}", "labels": labels}
        text = write_node_caches(name, [(f"{number:040x}", 2**30, 0), (DIGEST, 2**20, 0)])
        async with busy:
            await place.control_plane.admin("POST", maps, {"metadata": meta, "data": {"cache.json": text}})

    await account(place, "dispatcher")
    async with Dispatcher(place, CACHE_ROOT="/var/cache/tasks") as dispatcher:
        await dispatcher.ready()
        await asyncio.gather(*map(tell, range(1000)))

        async def are_heard() -> bool:
            _, status = await dispatcher.api("status")
            told = {"nodes": 1000, "directories": 2000, "bytes": 1000 * rounded(2**30) + 1000 * rounded(2**20)}
            return bool(status.get("caches") == told)

        await wait_for(are_heard, "the words of all keepers are heard", 30, check=dispatcher.check)


@pytest.mark.slow
async def test_words_of_a_keeper_go_with_its_pod(place: Place, tmp_path: Path) -> None:
    """So a node that is replaced under its name starts cold."""
    pods = f"/api/v1/namespaces/{place.namespace}/pods"
    spec = {"containers": [{"name": "keeper", "image": "x:1"}], "nodeSelector": {"there": "none"}}
    pod = await place.control_plane.admin("POST", pods, {"metadata": {"name": "keeper"}, "spec": spec})
    keeper = Keeper(place, "node-9", tmp_path, await account(place, "cache-keeper"))
    keeper.runs_in("keeper", pod["metadata"]["uid"])
    (tmp_path / "dispatcher" / DIGEST).mkdir()
    async with keeper:
        await keeper.tells(DIGEST)
    assert await keeper.told() is not None, "a keeper that stops is not a node that is gone"
    await place.control_plane.admin("DELETE", f"{pods}/keeper", {"gracePeriodSeconds": 0})

    async def is_gone() -> bool:
        return await keeper.told() is None

    await wait_for(is_gone, "Kubernetes deletes what it told", 60)


@pytest.mark.slow
async def test_ordered_directory_goes_from_the_node_and_dry_run_tells_it_before(place: Place, tmp_path: Path) -> None:
    keeper = Keeper(place, "node-7", tmp_path, await account(place, "cache-keeper"))
    operator = await account(place, "cache-operator")
    cache = tmp_path / "dispatcher" / DIGEST
    cache.mkdir()
    (cache / "data").write_bytes(b"x" * 65536)
    async with keeper:
        await keeper.tells(DIGEST)
        assert await keeper.metric("dispatcher_cache_bytes", state="idle") >= 65536
        assert await keeper.metric("dispatcher_cache_directories", state="idle") == 1
        assert 0 < await keeper.metric("dispatcher_cache_disk_used_ratio") < 1
        await keeper.ready()
    said = await keeper.command(operator, "cache", "drop", "--queue", "default", "--key", "maps", "--node", "another")
    assert f"{DIGEST} goes on node another" in said
    assert f"in namespace {place.namespace}: " in said, "elsewhere no keeper would hear of it"
    assert "1 cache directories, 0 in use" in await keeper.command(operator, "cache-keeper", "--dry-run")
    assert "on every node" in await keeper.command(operator, "cache", "drop", "--queue", "default", "--key", "maps")
    assert f"{cache}  " in (told := await keeper.command(operator, "cache-keeper", "--dry-run"))
    assert ": order" in told
    assert cache.exists()
    async with keeper:
        await keeper.tells()
        assert not cache.exists()


async def test_keeper_without_caches_or_a_node_says_what_is_missing(place: Place, tmp_path: Path) -> None:
    keeper = Keeper(place, "", tmp_path)
    keeper._environment |= {"DISPATCHER_CACHE_ROOT": ""}
    await keeper.start()
    assert await keeper.process.wait() == 2
    assert "DISPATCHER_CACHE_ROOT is not set" in keeper.log
    assert "NODE_NAME is not set" in keeper.log
