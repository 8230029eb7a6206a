"""What the account of a cache keeper may write, at the real API server: words about its own node, and nothing else."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from tests.contract.installed import Installed, installed
from tests.controlplane.api import Api, Json, KubeFault
from tests.controlplane.cluster import ControlPlane
from tests.rig.deployed import rendered

ACCOUNT = "dispatcher-cache-keeper"
MAPS = "/api/v1/namespaces/{namespace}/configmaps"
EVENTS = "/api/v1/namespaces/default/events"
OURS = ("dispatcher-settings", "dispatcher-templates", "dispatcher-cache-orders", "dispatcher-status")


class Keepers:
    """The keepers of two nodes. `stranger` has a token of their account that is bound to no Pod."""

    def __init__(self, there: Installed, nodes: list[str], apis: list[Api], stranger: Api) -> None:
        self.there = there
        self.own, self.other = nodes
        self.keeper, self.neighbour = apis
        self.stranger = stranger

    @property
    def maps(self) -> str:
        return MAPS.format(namespace=self.there.namespace)

    async def writes_map(self, api: Api, name: str, verb: str = "POST") -> None:
        path = self.maps if verb == "POST" else f"{self.maps}/{name}"
        await api.request(verb, path, {"metadata": {"name": name}, "data": {"cache.json": "{}"}})


def event(node: str, name: str, component: str = ACCOUNT) -> Json:
    about = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node}
    return {
        "metadata": {"name": name, "namespace": "default"}, "involvedObject": about, "type": "Warning",
        "reason": "CacheDiskFull", "message": "words", "source": {"component": component},
    }  # fmt: skip


async def keeper_on(plane: ControlPlane, namespace: str, node: str) -> Api:
    """The API server, asked with the token of a keeper's Pod on that node."""
    spec = {"nodeName": node, "serviceAccountName": ACCOUNT, "containers": [{"name": "keeper", "image": "x:1"}]}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    pod = await plane.admin("POST", pods, {"metadata": {"name": f"keeper-{node}"}, "spec": spec})
    bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{ACCOUNT}/token"
    made = await plane.admin("POST", path, {"spec": {"expirationSeconds": 3600, "boundObjectRef": bound}})
    return Api(plane.url, plane.ca_file, made["status"]["token"])


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def keepers(control_plane: ControlPlane) -> AsyncIterator[Keepers]:
    namespace = await control_plane.create_namespace()
    nodes = await control_plane.add_nodes(2)
    objects = rendered(
        namespace=namespace, jobsNamespace=namespace, settings={"CACHE_ROOT": "/caches"}, only="cache-keeper"
    )
    kept = [one for one in objects if one["kind"] != "DaemonSet"]
    async with AsyncExitStack() as stack:
        there = await stack.enter_async_context(installed(control_plane, namespace, kept))
        apis = [await keeper_on(control_plane, namespace, node) for node in nodes]
        for api in apis:
            stack.push_async_callback(api.close)
        found = Keepers(there, nodes, apis, await there.account(ACCOUNT))
        await control_plane.wait_for(lambda: is_in_force(found), "the policy is in force", 30)
        yield found
    await control_plane.delete_namespace(namespace)
    for node in nodes:
        await control_plane.remove_node(node)
    await control_plane.remove(EVENTS)


async def is_in_force(keepers: Keepers) -> bool:
    try:
        await keepers.writes_map(keepers.keeper, "foreign")
    except KubeFault as fault:
        return "writes the ConfigMap" in str(fault)
    await keepers.there.plane.admin("DELETE", f"{keepers.maps}/foreign")
    return False


async def refused(words: str, question: Awaitable[object]) -> None:
    with pytest.raises(KubeFault) as caught:
        await question
    assert (caught.value.status, words in str(caught.value)) == (403, True), caught.value


async def test_keeper_writes_the_config_map_of_its_node(keepers: Keepers) -> None:
    name = f"dispatcher-cache-{keepers.own}"
    await keepers.writes_map(keepers.keeper, name)
    await keepers.writes_map(keepers.keeper, name, "PUT")


@pytest.mark.parametrize("verb", ["POST", "PUT"])
@pytest.mark.parametrize("name", [*OURS, "another", "dispatcher-cache"])
async def test_stolen_keeper_writes_no_other_config_map(keepers: Keepers, name: str, verb: str) -> None:
    if verb == "PUT":
        await keepers.writes_map(keepers.there.plane.api, name)
    words = f"the cache keeper of node {keepers.own} writes the ConfigMap dispatcher-cache-{keepers.own} alone"
    await refused(words, keepers.writes_map(keepers.keeper, name, verb))
    if verb == "PUT":
        await keepers.there.plane.admin("DELETE", f"{keepers.maps}/{name}")


@pytest.mark.parametrize(
    "spoilt", [{"immutable": True}, {"metadata": {"finalizers": ["example.com/stays"]}}, {"owner": "Pod"}], ids=str
)
async def test_stolen_keeper_leaves_nothing_that_our_next_write_cannot_change(keepers: Keepers, spoilt: Json) -> None:
    name = f"dispatcher-cache-{keepers.own}"
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "11111111-1111-4111-8111-111111111111"}
    more = {"metadata": {"ownerReferences": [owner]}} if "owner" in spoilt else spoilt
    body = {**more, "metadata": {"name": name, **more.get("metadata", {})}}
    await refused("is not immutable, has no finalizers", keepers.keeper.request("POST", keepers.maps, body))


async def test_stolen_keeper_says_nothing_about_another_node(keepers: Keepers) -> None:
    theirs = f"dispatcher-cache-{keepers.other}"
    await refused(f"node {keepers.own} writes", keepers.writes_map(keepers.keeper, theirs))
    await keepers.writes_map(keepers.neighbour, theirs)
    await refused(f"node {keepers.own} writes", keepers.writes_map(keepers.keeper, theirs, "PUT"))
    nameless = {"metadata": {"generateName": f"dispatcher-cache-{keepers.own}"}}
    await refused("", keepers.keeper.request("POST", keepers.maps, nameless))


async def test_token_that_names_no_node_writes_nothing(keepers: Keepers) -> None:
    words = "the token of a cache keeper is bound to its Pod"
    for name in ("dispatcher-cache", f"dispatcher-cache-{keepers.own}"):
        await refused(words, keepers.writes_map(keepers.stranger, name))
    await refused(words, keepers.stranger.request("POST", EVENTS, event("", "nameless")))


async def test_keeper_writes_events_of_its_own_about_its_node(keepers: Keepers) -> None:
    name = f"full.{keepers.own}"
    await keepers.keeper.request("POST", EVENTS, event(keepers.own, name))
    await keepers.keeper.request("PATCH", f"{EVENTS}/{name}", {"message": "again"})


async def test_stolen_keeper_writes_no_other_event(keepers: Keepers) -> None:
    plane, words = keepers.there.plane, "writes Events of its own about that node alone"
    as_kubelet = event(keepers.own, "c") | {"reportingComponent": "kubelet"}
    for one in (event(keepers.other, "a"), event(keepers.own, "b", "kubelet"), as_kubelet):
        await refused(words, keepers.keeper.request("POST", EVENTS, one))
    for node, component in ((keepers.own, "kubelet"), (keepers.other, ACCOUNT)):
        known = event(node, f"known.{node}", component)
        await plane.admin("POST", EVENTS, known)
        path, change = f"{EVENTS}/known.{node}", event(keepers.own, f"known.{node}")
        await refused(words, keepers.keeper.request("PATCH", path, change))


async def test_stolen_keeper_reads_no_config_map_but_the_orders(keepers: Keepers) -> None:
    plane = keepers.there.plane
    for name in ("dispatcher-settings", "dispatcher-cache-orders"):
        await keepers.writes_map(plane.api, name)
    await keepers.keeper.request("GET", f"{keepers.maps}/dispatcher-cache-orders")
    await refused("cannot get", keepers.keeper.request("GET", f"{keepers.maps}/dispatcher-settings"))
    await refused("cannot list", keepers.keeper.request("GET", keepers.maps))
    for name in ("dispatcher-settings", "dispatcher-cache-orders"):
        await plane.admin("DELETE", f"{keepers.maps}/{name}")


async def test_api_server_finds_no_fault_with_the_policy(keepers: Keepers) -> None:
    plane = keepers.there.plane
    name = f"{ACCOUNT}.{keepers.there.namespace}"
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}"

    async def checked() -> Json:
        status: Json = (await plane.admin("GET", path)).get("status", {})
        return status if "observedGeneration" in status else {}

    assert (await plane.wait_for(checked, "its types are checked", 30)).get("typeChecking", {}) == {}
