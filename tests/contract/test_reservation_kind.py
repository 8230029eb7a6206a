"""NodeReservation at the real API server: what it accepts, what it refuses in which words, and what kubectl shows."""

import itertools
import secrets
from functools import partial
from typing import Any

import msgspec
import pytest

from dispatcher.kube.reservations import PATH, read_reservation
from tests.contract.in_force import quota_in_force
from tests.controlplane.api import Json, KubeFault
from tests.controlplane.cluster import ControlPlane

pytest_plugins = ["tests.scheduling.fixtures"]
pytestmark = pytest.mark.usefixtures("reservations")
GOOD: Json = {
    "nodeName": "worker-1",
    "resources": {"cpu": "2000m"},
    "target": {"jobName": "dispatcher-7-ab12cd34-1"},
    "ttlSeconds": 600,
}
COUNT = "count/nodereservations.dispatcher.internal"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
ONE_END = "one of expiresAt and ttlSeconds must be set"
ONE_TARGET = "exactly one of podName, jobName, taskId and uid must be set"
AMOUNT = "must be a quantity of more than 0"


class Kept:
    """NodeReservations of one namespace."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._plane = plane
        self.path = PATH.replace("/nodereservations", f"/namespaces/{namespace}/nodereservations")

    async def make(self, name: str = "r", **spec: Any) -> Json:
        """Makes GOOD with these fields; None removes a field."""
        whole = {key: value for key, value in {**GOOD, **spec}.items() if value is not None}
        body = {"apiVersion": "dispatcher.internal/v1alpha1", "kind": "NodeReservation", "metadata": {"name": name}}
        return await self._plane.admin("POST", self.path, {**body, "spec": whole}, params={"fieldValidation": "Strict"})

    async def change(self, name: str = "r", **spec: Any) -> Json:
        return await self._plane.admin("PATCH", f"{self.path}/{name}", {"spec": spec})

    async def refusal(self, **spec: Any) -> str:
        with pytest.raises(KubeFault) as caught:
            await self.make(**spec)
        assert caught.value.status == 422
        return str(caught.value)


@pytest.fixture
def made(control_plane: ControlPlane, namespace: str) -> Kept:
    return Kept(control_plane, namespace)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"target": {"podName": "a"}},
        {"target": {"taskId": 7}},
        {"target": {"uid": "6b7a98e4-19a7-4f96-863e-1c1f9c970a23"}},
        {"ttlSeconds": None, "expiresAt": "2026-12-01T10:00:00Z"},
        {"ttlSeconds": None, "expiresAt": "2020-01-01T00:00:00Z"},
        {"resources": {"cpu": 2, "memory": "1Gi", "example.com/gpu": "1"}},
        {"resources": {"cpu": "0.5", "memory": "1e3"}},
        {"resources": {"cpu": ".5", "memory": "1E+3", "hugepages-2Mi": "1Gi", "example.com/gpu_x.y": "99999999999E"}},
        {"ttlSeconds": None, "expiresAt": "8999-12-31T23:59:59.999999999-14:00"},
        {"nodeName": "not-there-yet"},
    ],
    ids=str,
)
async def test_reservation_is_accepted_and_readable(made: Kept, spec: Json) -> None:
    """The extender must be able to read it: an unreadable reservation would hold nothing."""
    whole = {key: value for key, value in {**GOOD, **spec}.items() if value is not None}
    kept = await made.make(**spec)
    assert kept["spec"] == whole
    read = read_reservation(msgspec.json.encode(kept))
    assert read is not None
    assert len(read.amounts) == len(whole["resources"])


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"nodeName": None}, "spec.nodeName", "Required value"),
        ({"nodeName": ""}, "spec.nodeName", "at least 1 chars long"),
        ({"resources": None}, "spec.resources", "Required value"),
        ({"resources": {}}, "spec.resources", "at least 1 properties"),
        ({"resources": {"cpu": "0"}}, "spec.resources[cpu]", AMOUNT),
        ({"resources": {"cpu": 0}}, "spec.resources[cpu]", AMOUNT),
        ({"resources": {"cpu": "-1"}}, "spec.resources[cpu]", AMOUNT),
        ({"resources": {"cpu": -1}}, "spec.resources[cpu]", AMOUNT),
        ({"resources": {"memory": "1Ki1"}}, "spec.resources[memory]", AMOUNT),
        ({"resources": {"memory": "much"}}, "spec.resources[memory]", AMOUNT),
        ({"resources": {"memory": "1e999999999"}}, "spec.resources[memory]", AMOUNT),
        ({"resources": {"memory": ""}}, "spec.resources[memory]", AMOUNT),
        ({"resources": {"": "1"}}, "spec.resources", "must be named as resources are"),
        ({"resources": {"a\0b": "1"}}, "spec.resources", "must be named as resources are"),
        ({"resources": {"x" * 317: "1"}}, "spec.resources", "must be named as resources are"),
        ({"target": None}, "spec.target", "Required value"),
        ({"target": {}}, "spec.target", ONE_TARGET),
        ({"target": {"podName": "a", "taskId": 7}}, "spec.target", ONE_TARGET),
        ({"target": {"taskId": 0}}, "spec.target.taskId", "greater than or equal to 1"),
        ({"target": {"taskId": "7"}}, "spec.target.taskId", "integer"),
        ({"target": {"jobName": ""}}, "spec.target.jobName", "at least 1 chars long"),
        ({"ttlSeconds": None}, "spec", ONE_END),
        ({"expiresAt": "2026-12-01T10:00:00Z"}, "spec", ONE_END),
        ({"ttlSeconds": 0}, "spec.ttlSeconds", "greater than or equal to 1"),
        ({"ttlSeconds": 2592001}, "spec.ttlSeconds", "less than or equal to 2592000"),
        ({"ttlSeconds": None, "expiresAt": "tomorrow"}, "spec.expiresAt", "date-time"),
        ({"ttlSeconds": None, "expiresAt": "9999-12-31T23:59:59Z"}, "spec.expiresAt", "should match"),
        ({"resources": {"cpu": "0" * 30 + "2"}}, "spec.resources.cpu", "may not be more than 30"),
        ({"ttlSeconds": None, "expiresAt": "0000-01-01T00:00:00Z"}, "spec.expiresAt", "should match"),
        ({"ttlSeconds": None, "expiresAt": "2026-12-01T10:00:00+24:30"}, "spec.expiresAt", "should match"),
        ({"ttlSeconds": None, "expiresAt": "2026-12-01T10:00:00,5Z"}, "spec.expiresAt", "should match"),
        ({"ttlSeconds": None, "expiresAt": "2026-12-01t10:00:00Z"}, "spec.expiresAt", "should match"),
    ],
    ids=str,
)
async def test_invalid_reservation_is_refused_with_its_field(made: Kept, spec: Json, field: str, words: str) -> None:
    said = await made.refusal(**spec)
    assert f"{field}: " in said
    assert words in said


async def test_reservation_with_an_unknown_field_is_refused(made: Kept) -> None:
    with pytest.raises(KubeFault, match=r'unknown field "spec\.node"'):
        await made.make(node="worker-1")


@pytest.mark.parametrize("spec", [{"resources": {"cpu": "1"}}, {"ttlSeconds": 60}], ids=str)
async def test_reservation_may_be_made_smaller_and_shorter(made: Kept, spec: Json) -> None:
    await made.make()
    assert spec.items() <= (await made.change(**spec))["spec"].items()


@pytest.mark.parametrize("spec", [{"nodeName": "worker-2"}, {"target": {"jobName": "other"}}], ids=str)
async def test_node_and_target_of_a_reservation_stay(made: Kept, spec: Json) -> None:
    await made.make()
    with pytest.raises(KubeFault, match="cannot be changed; make another reservation"):
        await made.change(**spec)


async def test_kubectl_shows_resources_node_and_target(made: Kept, control_plane: ControlPlane) -> None:
    whole = await made.make(resources={"cpu": 2, "memory": "1Gi"}, target={"taskId": 7})
    status = {"status": {"phase": "Active", "message": "held"}}
    await control_plane.admin("PATCH", f"{made.path}/r/status", status)
    table = await control_plane.api.request("GET", made.path, accept=TABLE)
    columns = [(column["name"], column["priority"]) for column in table["columnDefinitions"]]
    cells = dict(zip([name for name, _ in columns], table["rows"][0]["cells"], strict=True))
    age = cells.pop("Age")
    assert age.endswith("s")
    assert cells == {
        "Name": whole["metadata"]["name"], "Node": "worker-1", "CPU": "2", "Memory": "1Gi", "Task": 7, "Job": None,
        "Phase": "Active", "Pod": None, "UID": None, "Message": "held",
    }  # fmt: skip
    assert [name for name, priority in columns if priority] == ["Pod", "UID", "Message"]


async def test_status_changes_only_by_its_subresource(made: Kept, control_plane: ControlPlane) -> None:
    await made.make()
    changed = await control_plane.admin("PATCH", f"{made.path}/r", {"status": {"phase": "Landed"}})
    assert changed.get("status", {}).get("phase") != "Landed"  # an extender of another test may write its own words
    with pytest.raises(KubeFault, match=r"status\.phase"):
        await control_plane.admin("PATCH", f"{made.path}/r/status", {"status": {"phase": "Gone"}})


async def test_editor_may_not_reserve_and_a_reserver_may(control_plane: ControlPlane, namespace: str) -> None:
    async def may(role: str, verb: str) -> bool:
        subject = {"kind": "User", "name": f"{role}-{namespace}", "apiGroup": "rbac.authorization.k8s.io"}
        binding = {
            "metadata": {"name": f"{role}-{secrets.token_hex(4)}"}, "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        }  # fmt: skip
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        await control_plane.admin("POST", f"{rbac}/namespaces/{namespace}/rolebindings", binding)
        asked = {"group": "dispatcher.internal", "resource": "nodereservations", "verb": verb, "namespace": namespace}
        review = {"spec": {"user": subject["name"], "resourceAttributes": asked}}
        told = await control_plane.admin("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(told["status"]["allowed"])

    assert not await may("edit", "create")
    for role, verb in (("dispatcher-reserver", "create"), ("view", "list")):
        await control_plane.wait_for(partial(may, role, verb), f"{role} may {verb}", 10)


@pytest.mark.slow
@pytest.mark.fault(61)
async def test_quota_limits_the_reservations_of_a_namespace(
    made: Kept, control_plane: ControlPlane, namespace: str
) -> None:
    """The quota controller looks for new kinds every half minute.

    A quota older than that is counted after five minutes.
    """
    names = (f"q-{number}" for number in itertools.count())

    async def is_counted() -> str:
        """Admission that knows the new quota also knows that those before it are gone."""
        await control_plane.admin("DELETE", f"/api/v1/namespaces/{namespace}/resourcequotas")
        name = next(names)
        kept = await quota_in_force(control_plane, namespace, {COUNT: "1"}, name=name)
        return name if COUNT in kept["status"]["used"] else ""

    name = await control_plane.wait_for(is_counted, "the kind is counted", 60)
    await made.make("first")
    with pytest.raises(
        KubeFault, match=f"exceeded quota: {name}, requested: {COUNT}=1, used: {COUNT}=1, limited: {COUNT}=1"
    ):
        await made.make("second")
