"""PUT and PATCH at an API server: the version that wins, fields that never change, and the halves of an object."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.contract.wire import Wire, a_job, a_pod, a_secret, version
from tests.controlplane.api import Json
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES

CONFLICT = (409, "Conflict")
READY = {"type": "Ready", "status": "True"}


@asynccontextmanager
async def node(wire: Wire, **fields: object) -> AsyncIterator[tuple[str, Json]]:
    """The path of a node, and the node as it was made. It belongs to no namespace, so it is removed at the end."""
    made = await wire.made("nodes", {"metadata": {"name": wire.namespace}, **fields})
    try:
        yield f"nodes/{wire.namespace}", made
    finally:
        await wire.delete(f"nodes/{wire.namespace}")


def with_meta(found: Json, **meta: object) -> Json:
    return found | {"metadata": found["metadata"] | meta}


class TestPut:
    async def test_put_replaces_the_whole_object(self, wire: Wire) -> None:
        before = await wire.made("secrets", a_secret("a", {"app": "x"}, data={"a": "YQ=="}))
        answer = await wire.put("secrets/a", {"metadata": {"name": "a"}, "data": {"b": "Yg=="}})
        assert (answer.status, answer.body["data"]) == (200, {"b": "Yg=="})
        assert "labels" not in answer.body["metadata"]
        for kept in ("uid", "creationTimestamp"):
            assert answer.body["metadata"][kept] == before["metadata"][kept]
        assert version(answer.body) > version(before)

    async def test_put_with_the_version_that_was_read_wins_once(self, wire: Wire) -> None:
        read = await wire.made("secrets", a_secret("a"))
        first = await wire.put("secrets/a", read | {"data": {"a": "YQ=="}})
        second = await wire.put("secrets/a", read | {"data": {"a": "Yg=="}})
        assert first.status == 200
        assert second.refusal == CONFLICT
        assert second.body["details"] == {"name": "a", "kind": "secrets"}
        assert await wire.found("secrets/a") == first.body

    async def test_put_with_another_uid_is_a_conflict(self, wire: Wire) -> None:
        await wire.made("secrets", a_secret("a"))
        assert (await wire.put("secrets/a", {"metadata": {"name": "a", "uid": "other"}})).refusal == CONFLICT

    async def test_put_without_a_change_makes_no_version_and_no_event(self, wire: Wire) -> None:
        before = await wire.made("secrets", a_secret("a", data={"a": "YQ=="}))
        async with wire.watch("secrets", resourceVersion=before["metadata"]["resourceVersion"]) as watch:
            assert (await wire.put("secrets/a", before)).body == before
            assert await wire.changed("secrets/a", {"data": {"a": "YQ=="}}) == before
            after = await wire.changed("secrets/a", {"data": {"a": "Yg=="}})
            assert (await watch.next()).object == after

    async def test_put_must_name_the_object_of_the_path(self, wire: Wire) -> None:
        await wire.made("secrets", a_secret("a"))
        for meta in ({"name": "b"}, {}, {"name": "a", "namespace": "default"}):
            assert (await wire.put("secrets/a", {"metadata": meta})).refusal == (400, "BadRequest")

    async def test_put_to_a_missing_object_is_not_found(self, wire: Wire) -> None:
        answer = await wire.put("secrets/a", a_secret("a"))
        assert answer.refusal == (404, "NotFound")
        assert answer.body["details"] == {"name": "a", "kind": "secrets"}


class TestPatch:
    async def test_patch_merges_maps_and_replaces_lists_and_null_deletes(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a"))
        first = {"labels": {"keep": "1", "go": "1", "turn": "1"}}
        await wire.changed("pods/a", {"metadata": first})
        conditions = [READY, {"type": "Initialized", "status": "True"}]
        await wire.changed("pods/a/status", {"status": {"message": "m", "reason": "r", "conditions": conditions}})
        change = {"labels": {"go": None, "turn": "2", "new": "1"}}
        await wire.changed("pods/a", {"metadata": change})
        after = await wire.changed("pods/a/status", {"status": {"message": None, "conditions": [READY]}})
        assert after["metadata"]["labels"] == {"keep": "1", "turn": "2", "new": "1"}
        assert after["status"]["reason"] == "r"
        assert "message" not in after["status"]
        assert [condition["type"] for condition in after["status"]["conditions"]] == ["Ready"]

    async def test_patch_with_a_version_needs_the_current_one(self, wire: Wire) -> None:
        old = await wire.made("secrets", a_secret("a"))
        new = await wire.changed("secrets/a", {"metadata": {"labels": {"a": "1"}}})
        for read, status in ((old, 409), (new, 200)):
            meta = {"resourceVersion": read["metadata"]["resourceVersion"], "labels": {"a": "2"}}
            assert (await wire.patch("secrets/a", {"metadata": meta})).status == status

    async def test_patch_of_the_name_is_refused(self, wire: Wire) -> None:
        await wire.made("secrets", a_secret("a"))
        assert (await wire.patch("secrets/a", {"metadata": {"name": "b"}})).refusal == (400, "BadRequest")

    async def test_patch_of_a_missing_object_is_not_found(self, wire: Wire) -> None:
        assert (await wire.patch("secrets/a", {"data": {}})).refusal == (404, "NotFound")

    async def test_patch_that_is_no_json_is_a_bad_request(self, wire: Wire) -> None:
        await wire.made("secrets", a_secret("a"))
        assert (await wire.patch("secrets/a", b"{")).refusal == (400, "BadRequest")

    async def test_patch_needs_its_content_type(self, wire: Wire) -> None:
        await wire.made("secrets", a_secret("a"))
        answer = await wire.ask("PATCH", "secrets/a", {}, content_type="application/json")
        assert answer.refusal == (415, "UnsupportedMediaType")


class TestStatus:
    async def test_status_of_a_new_job_is_empty(self, wire: Wire) -> None:
        assert (await wire.made("jobs", a_job("a") | {"status": {"active": 7}}))["status"] == {}

    async def test_status_of_a_new_node_is_kept(self, wire: Wire) -> None:
        size = {"cpu": "4", "memory": "1Gi", "pods": "10"}
        async with node(wire, status={"capacity": size}) as (_, made):
            assert (made["status"]["capacity"], made["status"]["allocatable"]) == (size, size)

    async def test_put_of_the_object_keeps_its_status(self, wire: Wire) -> None:
        before = await wire.made("pods", a_pod("a"))
        changed = with_meta(before, labels={"a": "1"}) | {"status": {"phase": "Failed"}}
        answer = await wire.put("pods/a", changed)
        assert (answer.status, answer.body["metadata"]["labels"]) == (200, {"a": "1"})
        assert answer.body["status"] == before["status"]

    @pytest.mark.parametrize("resource", ["pods", "jobs"])
    async def test_patch_of_the_object_keeps_its_status(self, wire: Wire, resource: str) -> None:
        await wire.made(resource, a_pod("a") if resource == "pods" else a_job("a"))
        after = await wire.changed(f"{resource}/a", {"status": {"phase": "Failed", "failed": 3}})
        assert after["status"].get("phase") in (None, "Pending")
        assert "failed" not in after["status"]

    async def test_put_of_the_status_keeps_the_spec(self, wire: Wire) -> None:
        before = await wire.made("pods", a_pod("a"))
        changed = before | {"spec": {**before["spec"], "nodeName": "n"}, "status": {"phase": "Running", "reason": "r"}}
        answer = await wire.put("pods/a/status", changed)
        assert (answer.status, answer.body["spec"]) == (200, before["spec"])
        assert (answer.body["status"]["phase"], answer.body["status"]["reason"]) == ("Running", "r")
        assert await wire.found("pods/a") == await wire.found("pods/a/status") == answer.body

    async def test_put_of_the_status_changes_labels_and_no_owners(self, wire: Wire) -> None:
        before = await wire.made("pods", a_pod("a"))
        owner = {"apiVersion": "v1", "kind": "Secret", "name": "a", "uid": "a"}
        answer = await wire.put("pods/a/status", with_meta(before, labels={"a": "1"}, ownerReferences=[owner]))
        assert answer.status == 200
        assert answer.body["metadata"]["labels"] == {"a": "1"}
        assert "ownerReferences" not in answer.body["metadata"]

    async def test_patch_of_the_status_changes_annotations_and_no_spec(self, wire: Wire) -> None:
        before = await wire.made("pods", a_pod("a"))
        patch = {"metadata": {"annotations": {"note": "1"}}, "spec": {"activeDeadlineSeconds": 1}}
        after = await wire.changed("pods/a/status", patch)
        assert (after["metadata"]["annotations"], after["spec"]) == ({"note": "1"}, before["spec"])
        assert await wire.found("pods/a") == after

    async def test_put_of_the_status_with_an_old_version_is_a_conflict(self, wire: Wire) -> None:
        before = await wire.made("pods", a_pod("a"))
        await wire.changed("pods/a", {"metadata": {"labels": {"a": "1"}}})
        assert (await wire.put("pods/a/status", before | {"status": {"phase": "Running"}})).refusal == CONFLICT

    async def test_patch_of_a_job_status_keeps_the_spec(self, wire: Wire) -> None:
        await wire.made("jobs", a_job("a"))
        after = await wire.changed("jobs/a/status", {"spec": {"parallelism": 5}, "metadata": {"labels": {"a": "1"}}})
        assert (after["spec"]["parallelism"], after["metadata"]["labels"]["a"]) == (1, "1")

    async def test_patch_of_a_node_status_keeps_the_spec(self, wire: Wire) -> None:
        ready = {"conditions": [READY], "capacity": {"cpu": "4000m"}}
        async with node(wire) as (path, _):
            after = await wire.changed(f"{path}/status", {"spec": {"unschedulable": True}, "status": ready})
            assert "unschedulable" not in after["spec"]
            assert after["status"]["capacity"] == {"cpu": "4"}

    async def test_patch_of_a_node_keeps_the_status(self, wire: Wire) -> None:
        async with node(wire, status={"capacity": {"cpu": "4"}}) as (path, _):
            after = await wire.changed(path, {"spec": {"unschedulable": True}, "status": {"capacity": None}})
            assert after["spec"]["unschedulable"] is True
            assert after["status"]["capacity"] == {"cpu": "4"}


class TestImmutable:
    async def test_image_of_a_pod_may_be_changed(self, wire: Wire) -> None:
        (container,) = (await wire.made("pods", a_pod("a")))["spec"]["containers"]
        after = await wire.changed("pods/a", {"spec": {"containers": [container | {"image": "localhost/y:2"}]}})
        assert after["spec"]["containers"][0]["image"] == "localhost/y:2"

    async def test_job_may_be_suspended_and_get_other_limits(self, wire: Wire) -> None:
        await wire.made("jobs", a_job("a"))
        limits = {"suspend": True, "backoffLimit": 9, "activeDeadlineSeconds": 5, "ttlSecondsAfterFinished": 6}
        after = await wire.changed("jobs/a", {"spec": limits})
        assert {key: after["spec"][key] for key in limits} == limits
