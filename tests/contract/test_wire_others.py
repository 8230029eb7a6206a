"""Leases, Events and Bindings: the small resources that the dispatcher, its scheduler and its nodes use."""

import pytest

from tests.contract.wire import HELD, Wire, a_pod
from tests.controlplane.api import Json
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES

CONFLICT, BAD, INVALID = (409, "Conflict"), (400, "BadRequest"), (422, "Invalid")
TERM = {
    "holderIdentity": "one",
    "leaseDurationSeconds": 15,
    "acquireTime": "2026-01-01T00:00:00.000000Z",
    "renewTime": "2026-01-01T00:00:00.123456Z",
    "leaseTransitions": 0,
}


def a_lease(**spec: object) -> Json:
    return {"metadata": {"name": "a"}, "spec": spec}


class TestLease:
    async def test_term_comes_back_to_the_microsecond(self, wire: Wire) -> None:
        made = await wire.made("leases", a_lease(**TERM))
        assert made["spec"] == TERM
        assert (await wire.found("leases/a"))["spec"] == TERM

    async def test_released_lease_has_no_holder(self, wire: Wire) -> None:
        read = await wire.made("leases", a_lease(**TERM))
        empty = {"holderIdentity": None, "leaseDurationSeconds": 1, "leaseTransitions": 0}
        answer = await wire.put("leases/a", read | {"spec": empty})
        assert answer.body["spec"] == {"leaseDurationSeconds": 1, "leaseTransitions": 0}

    async def test_time_with_an_offset_is_kept_as_utc(self, wire: Wire) -> None:
        made = await wire.made("leases", a_lease(renewTime="2026-01-01T02:00:00.123456+02:00"))
        assert made["spec"]["renewTime"] == "2026-01-01T00:00:00.123456Z"

    async def test_time_needs_six_digits_of_a_second(self, wire: Wire) -> None:
        for time in ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.1Z", "yesterday", 5):
            assert (await wire.post("leases", a_lease(renewTime=time))).refusal == BAD

    async def test_unknown_fields_are_judged_on_a_put_too(self, wire: Wire) -> None:
        await wire.made("leases", a_lease(**TERM))
        answer = await wire.put("leases/a", a_lease(nonsense=1), fieldValidation="Strict")
        assert answer.refusal == BAD
        assert 'unknown field "spec.nonsense"' in answer.body["message"]


class TestEvent:
    def about(self, namespace: str) -> Json:
        involved = {"kind": "Job", "apiVersion": "batch/v1", "name": "a", "namespace": namespace, "uid": "u"}
        when = "2026-01-01T00:00:00Z"
        words = {"reason": "Parked", "message": "m", "type": "Normal", "source": {"component": "dispatcher"}}
        said: Json = {"involvedObject": involved, "count": 1, "firstTimestamp": when, "lastTimestamp": when} | words
        return said

    async def test_event_about_an_object_is_kept(self, wire: Wire) -> None:
        said = self.about(wire.namespace)
        made = await wire.made("events", {"metadata": {"generateName": "a."}} | said)
        assert {key: made[key] for key in said} == said
        assert made["metadata"]["name"].startswith("a.")
        (item,) = (await wire.found("events", fieldSelector=f"metadata.name={made['metadata']['name']}"))["items"]
        assert {key: item[key] for key in said} == said

    async def test_event_must_be_in_the_namespace_of_its_object(self, wire: Wire) -> None:
        answer = await wire.post("events", {"metadata": {"name": "a"}} | self.about("default"))
        assert answer.refusal == INVALID
        assert answer.causes == [("FieldValueInvalid", "involvedObject.namespace")]


class TestBinding:
    async def test_bound_pod_has_its_node_and_is_scheduled(self, wire: Wire) -> None:
        made = await wire.made("pods", a_pod("a"))
        answer = await wire.bind("a", "one")
        assert (answer.status, answer.body["kind"], answer.body["status"]) == (201, "Status", "Success")
        found = await wire.found("pods/a")
        assert found["spec"] == made["spec"] | {"nodeName": "one"}
        (condition,) = found["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
        assert condition["lastTransitionTime"]
        assert (found["status"]["phase"], found["metadata"]["uid"]) == ("Pending", made["metadata"]["uid"])

    async def test_binding_is_one_change(self, wire: Wire) -> None:
        made = await wire.made("pods", a_pod("a"))
        async with wire.watch("pods", resourceVersion=made["metadata"]["resourceVersion"]) as watch:
            await wire.bind("a", "one")
            assert (await watch.next()).object == await wire.found("pods/a")

    @pytest.mark.parametrize("node", ["one", "two"])
    async def test_second_binding_is_a_conflict_even_to_the_same_node(self, wire: Wire, node: str) -> None:
        await wire.made("pods", a_pod("a"))
        await wire.bind("a", "one")
        answer = await wire.bind("a", node)
        assert answer.refusal == CONFLICT
        assert answer.body["details"] == {"name": "a", "kind": "pods/binding"}
        assert (await wire.found("pods/a"))["spec"]["nodeName"] == "one"

    async def test_pod_made_with_a_node_counts_as_bound(self, wire: Wire) -> None:
        made = await wire.made("pods", a_pod("a", nodeName="one"))
        assert "conditions" not in made["status"]
        assert (await wire.bind("a", "one")).refusal == CONFLICT

    async def test_binding_with_another_uid_is_a_conflict(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a"))
        assert (await wire.bind("a", "one", uid="other")).refusal == CONFLICT
        assert "nodeName" not in (await wire.found("pods/a"))["spec"]

    async def test_pod_being_deleted_is_not_bound(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a") | {"metadata": {"name": "a", "finalizers": [HELD]}})
        await wire.delete("pods/a")
        assert (await wire.bind("a", "one")).refusal == CONFLICT
        await wire.changed("pods/a", {"metadata": {"finalizers": None}})

    async def test_binding_of_a_missing_pod_is_not_found(self, wire: Wire) -> None:
        answer = await wire.bind("a", "one")
        assert answer.refusal == (404, "NotFound")
        assert answer.body["details"] == {"name": "a", "kind": "pods"}

    async def test_binding_must_name_the_pod_of_the_path(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a"))
        for meta in ({}, {"name": "b"}):
            binding = {"metadata": meta, "target": {"kind": "Node", "name": "one"}}
            assert (await wire.post("pods/a/binding", binding)).refusal == BAD
        assert "nodeName" not in (await wire.found("pods/a"))["spec"]
