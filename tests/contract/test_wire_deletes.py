"""What a DELETE does at an API server: at once, when its finalizers are gone, or when the node lets go of the Pod."""

from collections.abc import AsyncIterator
from datetime import datetime

import pytest
import pytest_asyncio

from tests.contract.wire import HELD, Wire, a_pod, a_secret, names, opened
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES

CONFLICT = (409, "Conflict")
NOWHERE = {"nodeName": "nowhere"}


@pytest_asyncio.fixture(loop_scope="session")
async def wire(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Wire]:
    async with opened(control_plane, namespace) as made:
        yield made


async def held(wire: Wire) -> Json:
    """A secret that is being deleted and held."""
    await wire.made("secrets", {"metadata": {"name": "a", "finalizers": [HELD]}})
    answer = await wire.delete("secrets/a")
    assert answer.status == 200
    return answer.body


async def deleted(wire: Wire, path: str, **options: object) -> Json:
    answer = await wire.delete(path, options)
    assert answer.status == 200, answer
    return answer.body


async def is_there(wire: Wire, path: str) -> bool:
    return (await wire.get(path)).status == 200


class TestAtOnce:
    async def test_it_is_gone_with_the_answer(self, wire: Wire) -> None:
        await wire.made("secrets", a_secret("a"))
        assert (await wire.delete("secrets/a")).status == 200
        assert not await is_there(wire, "secrets/a")

    async def test_the_answer_says_what_is_gone(self, wire: Wire) -> None:
        made = await wire.made("secrets", a_secret("a"))
        answer = await wire.delete("secrets/a")
        details = {"name": "a", "kind": "secrets", "uid": made["metadata"]["uid"]}
        told = {key: answer.body[key] for key in ("kind", "apiVersion", "status", "details")}
        assert answer.status == 200
        assert told == {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": details}

    async def test_what_is_not_there_is_not_found_whatever_is_asked_of_it(self, wire: Wire) -> None:
        for options in (None, {"preconditions": {"uid": "other"}}):
            answer = await wire.delete("secrets/a", options)
            assert answer.refusal == (404, "NotFound")
            assert answer.body["details"] == {"name": "a", "kind": "secrets"}

    @pytest.mark.parametrize("precondition", [{"uid": "other"}, {"resourceVersion": "1"}], ids=["uid", "version"])
    async def test_another_object_than_was_meant_stays(self, wire: Wire, precondition: Json) -> None:
        await wire.made("secrets", a_secret("a"))
        answer = await wire.delete("secrets/a", {"preconditions": precondition})
        assert answer.refusal == CONFLICT
        assert answer.body["details"]["name"] == "a"
        assert await is_there(wire, "secrets/a")

    async def test_the_object_that_was_meant_goes(self, wire: Wire) -> None:
        meta = (await wire.made("secrets", a_secret("a")))["metadata"]
        meant = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        await deleted(wire, "secrets/a", preconditions=meant)
        assert not await is_there(wire, "secrets/a")

    async def test_a_rehearsal_deletes_nothing(self, wire: Wire) -> None:
        await wire.made("secrets", a_secret("a"))
        assert (await deleted(wire, "secrets/a", dryRun=["All"]))["status"] == "Success"
        assert await is_there(wire, "secrets/a")

    async def test_an_unknown_propagation_is_invalid(self, wire: Wire) -> None:
        await wire.made("secrets", a_secret("a"))
        answer = await wire.delete("secrets/a", {"propagationPolicy": "Sideways"})
        assert answer.refusal == (422, "Invalid")
        assert answer.causes == [("FieldValueNotSupported", "propagationPolicy")]

    async def test_options_that_are_no_json_delete_nothing(self, wire: Wire) -> None:
        await wire.made("secrets", a_secret("a"))
        assert (await wire.delete("secrets/a", b"{")).refusal == (400, "BadRequest")
        assert await is_there(wire, "secrets/a")

    async def test_a_collection_goes_as_far_as_it_is_selected(self, wire: Wire) -> None:
        await wire.made("leases", a_secret("a", {"app": "x"}), a_secret("b", {"app": "y"}), a_secret("c"))
        answer = await wire.delete("leases", labelSelector="app=x")
        assert (answer.status, answer.body["kind"], names(answer.body)) == (200, "LeaseList", ["a"])
        assert await wire.names("leases") == ["b", "c"]
        assert names((await wire.delete("leases")).body) == ["b", "c"]
        assert names((await wire.delete("leases")).body) == []


class TestFinalizers:
    async def test_what_is_held_stays_and_says_since_when(self, wire: Wire) -> None:
        body = await held(wire)
        assert (body["kind"], body["metadata"]["finalizers"]) == ("Secret", [HELD])
        assert body["metadata"]["deletionGracePeriodSeconds"] == 0
        created, since = (body["metadata"][key] for key in ("creationTimestamp", "deletionTimestamp"))
        assert datetime.fromisoformat(created) <= datetime.fromisoformat(since)
        assert await wire.found("secrets/a") == body
        await wire.changed("secrets/a", {"metadata": {"finalizers": None}})

    async def test_it_goes_with_its_last_finalizer(self, wire: Wire) -> None:
        await held(wire)
        answer = await wire.patch("secrets/a", {"metadata": {"finalizers": []}})
        assert (answer.status, answer.body["kind"]) == (200, "Secret")
        assert "finalizers" not in answer.body["metadata"]
        assert not await is_there(wire, "secrets/a")

    async def test_a_second_delete_changes_nothing(self, wire: Wire) -> None:
        body = await held(wire)
        assert await deleted(wire, "secrets/a") == body
        assert (await wire.delete("secrets/a", {"preconditions": {"resourceVersion": "1"}})).refusal == CONFLICT
        await wire.changed("secrets/a", {"metadata": {"finalizers": None}})

    async def test_it_can_be_changed_but_not_brought_back(self, wire: Wire) -> None:
        since = (await held(wire))["metadata"]["deletionTimestamp"]
        change = {"metadata": {"labels": {"a": "1"}, "deletionTimestamp": None}}
        meta = (await wire.changed("secrets/a", change))["metadata"]
        assert (meta["labels"], meta["deletionTimestamp"]) == ({"a": "1"}, since)
        await wire.changed("secrets/a", {"metadata": {"finalizers": None}})

    async def test_it_gets_no_new_finalizer(self, wire: Wire) -> None:
        await held(wire)
        answer = await wire.patch("secrets/a", {"metadata": {"finalizers": [HELD, "tests.example/more"]}})
        assert answer.refusal == (422, "Invalid")
        assert answer.causes == [("FieldValueForbidden", "metadata.finalizers")]
        await wire.changed("secrets/a", {"metadata": {"finalizers": None}})

    async def test_its_name_is_taken_until_it_is_gone(self, wire: Wire) -> None:
        await held(wire)
        assert (await wire.post("secrets", a_secret("a"))).refusal == (409, "AlreadyExists")
        await wire.changed("secrets/a", {"metadata": {"finalizers": None}})
        await wire.made("secrets", a_secret("a"))


def grace(pod: Json) -> tuple[int, float]:
    """The seconds it was given, and how long after its creation they are over."""
    meta = pod["metadata"]
    created, due = (datetime.fromisoformat(meta[key]) for key in ("creationTimestamp", "deletionTimestamp"))
    return meta["deletionGracePeriodSeconds"], (due - created).total_seconds()


class TestPods:
    async def test_one_without_a_node_goes_at_once_and_is_the_answer(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a"))
        body = await deleted(wire, "pods/a")
        assert (body["kind"], body["metadata"]["deletionGracePeriodSeconds"]) == ("Pod", 0)
        assert not await is_there(wire, "pods/a")

    async def test_one_on_a_node_has_the_grace_of_its_spec(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a", terminationGracePeriodSeconds=77, **NOWHERE))
        body = await deleted(wire, "pods/a")
        given, until = grace(body)
        assert given == 77
        assert 77 <= until < 97
        assert await wire.found("pods/a") == body

    async def test_it_has_thirty_seconds_if_nothing_is_said(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a", **NOWHERE))
        assert grace(await deleted(wire, "pods/a"))[0] == 30

    async def test_the_grace_of_the_request_comes_first(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a", **NOWHERE))
        given, until = grace(await deleted(wire, "pods/a", gracePeriodSeconds=300))
        assert given == 300
        assert 300 <= until < 320

    async def test_a_grace_can_be_asked_for_in_the_query(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a", **NOWHERE))
        answer = await wire.delete("pods/a", gracePeriodSeconds="200")
        assert grace(answer.body)[0] == 200

    async def test_it_can_be_shortened_and_not_lengthened(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a", **NOWHERE))
        first = await deleted(wire, "pods/a", gracePeriodSeconds=100)
        assert await deleted(wire, "pods/a") == first
        assert await deleted(wire, "pods/a", gracePeriodSeconds=200) == first
        given, until = grace(await deleted(wire, "pods/a", gracePeriodSeconds=10))
        assert given == 10
        assert 10 <= until < 30

    async def test_no_grace_ends_it(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a", **NOWHERE))
        await deleted(wire, "pods/a")
        body = await deleted(wire, "pods/a", gracePeriodSeconds=0)
        assert (body["kind"], body["metadata"]["deletionGracePeriodSeconds"]) == ("Pod", 0)
        assert not await is_there(wire, "pods/a")

    async def test_no_grace_ends_one_that_nobody_deleted_before(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a", **NOWHERE))
        await deleted(wire, "pods/a", gracePeriodSeconds=0)
        assert not await is_there(wire, "pods/a")

    async def test_no_grace_for_another_pod_ends_nothing(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a", **NOWHERE))
        meant = {"gracePeriodSeconds": 0, "preconditions": {"uid": "other"}}
        assert (await wire.delete("pods/a", meant)).refusal == CONFLICT
        assert "deletionTimestamp" not in (await wire.found("pods/a"))["metadata"]

    @pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
    async def test_one_that_has_ended_goes_at_once(self, wire: Wire, phase: str) -> None:
        await wire.made("pods", a_pod("a", **NOWHERE))
        await wire.changed("pods/a/status", {"status": {"phase": phase}})
        assert grace(await deleted(wire, "pods/a"))[0] == 0
        assert not await is_there(wire, "pods/a")

    async def test_its_finalizers_outlast_its_grace(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a", **NOWHERE) | {"metadata": {"name": "a", "finalizers": [HELD]}})
        await deleted(wire, "pods/a", gracePeriodSeconds=0)
        assert grace(await wire.found("pods/a"))[0] == 0
        await wire.changed("pods/a", {"metadata": {"finalizers": None}})
        assert not await is_there(wire, "pods/a")

    async def test_its_grace_outlasts_its_finalizers(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a", **NOWHERE) | {"metadata": {"name": "a", "finalizers": [HELD]}})
        await deleted(wire, "pods/a")
        await wire.changed("pods/a", {"metadata": {"finalizers": None}})
        assert grace(await wire.found("pods/a"))[0] == 30

    async def test_one_that_is_being_deleted_still_has_a_status(self, wire: Wire) -> None:
        """So its node tells how it ended, and then deletes it without grace."""
        await wire.made("pods", a_pod("a", **NOWHERE))
        body = await deleted(wire, "pods/a")
        answer = await wire.put("pods/a/status", body | {"status": {"phase": "Failed"}})
        assert (answer.status, answer.body["status"]["phase"]) == (200, "Failed")
        assert answer.body["metadata"]["deletionTimestamp"] == body["metadata"]["deletionTimestamp"]
