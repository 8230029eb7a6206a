"""DELETE at an API server: at once, after the last finalizer, or when the node releases the Pod."""

from datetime import datetime

import pytest

from tests.contract.wire import HELD, Wire, a_pod, a_secret
from tests.controlplane.api import Json
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES

CONFLICT = (409, "Conflict")
NOWHERE = {"nodeName": "nowhere"}


async def held(wire: Wire) -> Json:
    """A Secret that is being deleted and kept by a finalizer."""
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
    async def test_object_is_gone_with_the_answer(self, wire: Wire) -> None:
        await wire.made("secrets", a_secret("a"))
        assert (await wire.delete("secrets/a")).status == 200
        assert not await is_there(wire, "secrets/a")

    async def test_missing_object_is_not_found_with_any_options(self, wire: Wire) -> None:
        for options in (None, {"preconditions": {"uid": "other"}}):
            answer = await wire.delete("secrets/a", options)
            assert answer.refusal == (404, "NotFound")
            assert answer.body["details"] == {"name": "a", "kind": "secrets"}

    @pytest.mark.parametrize("precondition", [{"uid": "other"}, {"resourceVersion": "1"}], ids=["uid", "version"])
    async def test_object_with_another_uid_or_version_stays(self, wire: Wire, precondition: Json) -> None:
        await wire.made("secrets", a_secret("a"))
        answer = await wire.delete("secrets/a", {"preconditions": precondition})
        assert answer.refusal == CONFLICT
        assert answer.body["details"]["name"] == "a"
        assert await is_there(wire, "secrets/a")

    async def test_object_with_the_given_uid_and_version_is_deleted(self, wire: Wire) -> None:
        meta = (await wire.made("secrets", a_secret("a")))["metadata"]
        meant = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        await deleted(wire, "secrets/a", preconditions=meant)
        assert not await is_there(wire, "secrets/a")

    async def test_unknown_propagation_is_invalid(self, wire: Wire) -> None:
        await wire.made("secrets", a_secret("a"))
        answer = await wire.delete("secrets/a", {"propagationPolicy": "Sideways"})
        assert answer.refusal == (422, "Invalid")
        assert answer.causes == [("FieldValueNotSupported", "propagationPolicy")]

    async def test_options_that_are_no_json_delete_nothing(self, wire: Wire) -> None:
        await wire.made("secrets", a_secret("a"))
        assert (await wire.delete("secrets/a", b"{")).refusal == (400, "BadRequest")
        assert await is_there(wire, "secrets/a")


class TestFinalizers:
    async def test_finalized_object_stays_and_says_since_when(self, wire: Wire) -> None:
        body = await held(wire)
        assert (body["kind"], body["metadata"]["finalizers"]) == ("Secret", [HELD])
        assert body["metadata"]["deletionGracePeriodSeconds"] == 0
        created, since = (body["metadata"][key] for key in ("creationTimestamp", "deletionTimestamp"))
        assert datetime.fromisoformat(created) <= datetime.fromisoformat(since)
        assert await wire.found("secrets/a") == body
        await wire.changed("secrets/a", {"metadata": {"finalizers": None}})

    async def test_object_goes_with_its_last_finalizer(self, wire: Wire) -> None:
        await held(wire)
        answer = await wire.patch("secrets/a", {"metadata": {"finalizers": []}})
        assert (answer.status, answer.body["kind"]) == (200, "Secret")
        assert "finalizers" not in answer.body["metadata"]
        assert not await is_there(wire, "secrets/a")

    async def test_second_delete_changes_nothing(self, wire: Wire) -> None:
        body = await held(wire)
        assert await deleted(wire, "secrets/a") == body
        assert (await wire.delete("secrets/a", {"preconditions": {"resourceVersion": "1"}})).refusal == CONFLICT
        await wire.changed("secrets/a", {"metadata": {"finalizers": None}})

    async def test_object_being_deleted_can_be_changed_but_not_restored(self, wire: Wire) -> None:
        since = (await held(wire))["metadata"]["deletionTimestamp"]
        change = {"metadata": {"labels": {"a": "1"}, "deletionTimestamp": None}}
        meta = (await wire.changed("secrets/a", change))["metadata"]
        assert (meta["labels"], meta["deletionTimestamp"]) == ({"a": "1"}, since)
        await wire.changed("secrets/a", {"metadata": {"finalizers": None}})

    async def test_name_is_taken_until_the_object_is_gone(self, wire: Wire) -> None:
        await held(wire)
        assert (await wire.post("secrets", a_secret("a"))).refusal == (409, "AlreadyExists")
        await wire.changed("secrets/a", {"metadata": {"finalizers": None}})
        await wire.made("secrets", a_secret("a"))


def grace(pod: Json) -> tuple[int, float]:
    """The grace in seconds, and the seconds from the creation to its end."""
    meta = pod["metadata"]
    created, due = (datetime.fromisoformat(meta[key]) for key in ("creationTimestamp", "deletionTimestamp"))
    return meta["deletionGracePeriodSeconds"], (due - created).total_seconds()


class TestPods:
    async def test_pod_without_a_node_goes_at_once_and_is_the_answer(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a"))
        body = await deleted(wire, "pods/a")
        assert (body["kind"], body["metadata"]["deletionGracePeriodSeconds"]) == ("Pod", 0)
        assert not await is_there(wire, "pods/a")

    @pytest.mark.parametrize(
        ("spec", "options", "seconds"),
        [
            ({}, {}, 30),
            ({"terminationGracePeriodSeconds": 77}, {}, 77),
            ({"terminationGracePeriodSeconds": 77}, {"gracePeriodSeconds": 300}, 300),
        ],
        ids=["default", "spec", "request"],
    )
    async def test_pod_on_a_node_has_a_grace(self, wire: Wire, spec: Json, options: Json, seconds: int) -> None:
        """The request comes first, then the spec."""
        await wire.made("pods", a_pod("a", **spec, **NOWHERE))
        body = await deleted(wire, "pods/a", **options)
        given, until = grace(body)
        assert given == seconds
        assert seconds <= until < seconds + 20
        assert await wire.found("pods/a") == body

    async def test_grace_can_be_shortened_and_not_lengthened(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a", **NOWHERE))
        first = await deleted(wire, "pods/a", gracePeriodSeconds=100)
        assert await deleted(wire, "pods/a") == first
        assert await deleted(wire, "pods/a", gracePeriodSeconds=200) == first
        given, until = grace(await deleted(wire, "pods/a", gracePeriodSeconds=10))
        assert given == 10
        assert 10 <= until < 30

    @pytest.mark.parametrize("is_being_deleted", [True, False])
    async def test_zero_grace_removes_a_pod_at_once(self, wire: Wire, is_being_deleted: bool) -> None:
        await wire.made("pods", a_pod("a", **NOWHERE))
        if is_being_deleted:
            await deleted(wire, "pods/a")
        body = await deleted(wire, "pods/a", gracePeriodSeconds=0)
        assert (body["kind"], body["metadata"]["deletionGracePeriodSeconds"]) == ("Pod", 0)
        assert not await is_there(wire, "pods/a")

    async def test_zero_grace_with_another_uid_removes_nothing(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a", **NOWHERE))
        meant = {"gracePeriodSeconds": 0, "preconditions": {"uid": "other"}}
        assert (await wire.delete("pods/a", meant)).refusal == CONFLICT
        assert "deletionTimestamp" not in (await wire.found("pods/a"))["metadata"]

    @pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
    async def test_ended_pod_goes_at_once(self, wire: Wire, phase: str) -> None:
        await wire.made("pods", a_pod("a", **NOWHERE))
        await wire.changed("pods/a/status", {"status": {"phase": phase}})
        assert grace(await deleted(wire, "pods/a"))[0] == 0
        assert not await is_there(wire, "pods/a")

    async def test_finalizers_outlast_the_grace(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a", **NOWHERE) | {"metadata": {"name": "a", "finalizers": [HELD]}})
        await deleted(wire, "pods/a", gracePeriodSeconds=0)
        assert grace(await wire.found("pods/a"))[0] == 0
        await wire.changed("pods/a", {"metadata": {"finalizers": None}})
        assert not await is_there(wire, "pods/a")

    async def test_grace_outlasts_the_finalizers(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a", **NOWHERE) | {"metadata": {"name": "a", "finalizers": [HELD]}})
        await deleted(wire, "pods/a")
        await wire.changed("pods/a", {"metadata": {"finalizers": None}})
        assert grace(await wire.found("pods/a"))[0] == 30

    async def test_pod_being_deleted_still_has_a_status(self, wire: Wire) -> None:
        """So its node can report how the Pod ended, and then delete it without grace."""
        await wire.made("pods", a_pod("a", **NOWHERE))
        body = await deleted(wire, "pods/a")
        answer = await wire.put("pods/a/status", body | {"status": {"phase": "Failed"}})
        assert (answer.status, answer.body["status"]["phase"]) == (200, "Failed")
        assert answer.body["metadata"]["deletionTimestamp"] == body["metadata"]["deletionTimestamp"]
