"""The answers of an API server to a create and a read: what it adds to an object, and how it refuses."""

import base64
import re
from datetime import datetime
from uuid import UUID

import pytest

from tests.contract.wire import Wire, a_job, a_pod, a_secret
from tests.controlplane.api import Json
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES

OLD = "2000-01-01T00:00:00Z"
BAD = (400, "BadRequest")
NAMELESS: list[Json] = [{}, {"metadata": {}}, {"metadata": {"name": None}}]
UNREADABLE: dict[str, object] = {
    "no json": b"{no",
    "no object": b"[]",
    "nothing": b"",
    "other kind": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}},
    "other version": {"apiVersion": "v2", "kind": "Secret", "metadata": {"name": "a"}},
    "no string": {"metadata": {"name": "a", "labels": {"a": 1}}},
}
MEANINGLESS = [
    ("PUT", "secrets"),
    ("PATCH", "secrets"),
    ("POST", "secrets/a"),
    ("POST", "pods/a/status"),
    ("GET", "pods/a/binding"),
    ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
]


def decoded(found: dict[str, str]) -> dict[str, str]:
    return {key: base64.b64decode(value).decode() for key, value in found.items()}


class TestCreate:
    async def test_new_object_comes_back_with_the_servers_fields(self, wire: Wire) -> None:
        answer = await wire.post("secrets", a_secret("a", {"app": "x"}))
        assert answer.status == 201
        assert (answer.body["kind"], answer.body["apiVersion"], answer.body["type"]) == ("Secret", "v1", "Opaque")
        meta = answer.body["metadata"]
        assert (meta["name"], meta["namespace"], meta["labels"]) == ("a", wire.namespace, {"app": "x"})
        assert str(UUID(meta["uid"])) == meta["uid"]
        assert int(meta["resourceVersion"]) > 0
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", meta["creationTimestamp"])
        assert "deletionTimestamp" not in meta
        assert await wire.found("secrets/a") == answer.body

    @pytest.mark.parametrize(
        ("resource", "body", "kind", "api_version"),
        [
            ("pods", a_pod("a"), "Pod", "v1"),
            ("jobs", a_job("a"), "Job", "batch/v1"),
            ("leases", {"metadata": {"name": "a"}}, "Lease", "coordination.k8s.io/v1"),
        ],
    )
    async def test_answer_has_kind_and_version_though_the_request_had_none(
        self, wire: Wire, resource: str, body: Json, kind: str, api_version: str
    ) -> None:
        made = await wire.made(resource, body)
        assert (made["kind"], made["apiVersion"]) == (kind, api_version)

    async def test_fields_of_the_server_are_not_taken_from_the_client(self, wire: Wire) -> None:
        meta = {"name": "a", "uid": "mine", "creationTimestamp": OLD, "deletionTimestamp": OLD}
        made = (await wire.made("jobs", a_job("a") | {"metadata": meta}))["metadata"]
        assert made["uid"] != "mine"
        assert datetime.fromisoformat(made["creationTimestamp"]) > datetime.fromisoformat(OLD)
        assert "deletionTimestamp" not in made

    async def test_generated_name_begins_as_asked_and_is_new(self, wire: Wire) -> None:
        made = [(await wire.made("secrets", {"metadata": {"generateName": "gen-"}}))["metadata"] for _ in range(2)]
        assert all(re.fullmatch(r"gen-[a-z0-9]{5}", meta["name"]) for meta in made)
        assert made[0]["name"] != made[1]["name"]
        assert made[0]["generateName"] == "gen-"

    async def test_create_without_a_name_is_invalid(self, wire: Wire) -> None:
        for body in NAMELESS:
            answer = await wire.post("secrets", body)
            assert answer.refusal == (422, "Invalid")
            assert answer.causes == [("FieldValueRequired", "metadata.name")]

    async def test_create_with_a_taken_name_exists(self, wire: Wire) -> None:
        await wire.made("jobs", a_job("a"))
        answer = await wire.post("jobs", a_job("a"))
        assert answer.refusal == (409, "AlreadyExists")
        assert answer.body["details"] == {"name": "a", "group": "batch", "kind": "jobs"}

    async def test_name_of_a_deleted_object_is_free(self, wire: Wire) -> None:
        first = await wire.made("secrets", a_secret("a"))
        await wire.delete("secrets/a")
        second = await wire.made("secrets", a_secret("a"))
        assert second["metadata"]["uid"] != first["metadata"]["uid"]

    async def test_create_in_a_missing_namespace_is_not_found(self, wire: Wire) -> None:
        answer = await wire.post("/apis/batch/v1/namespaces/nowhere/jobs", a_job("a"))
        assert answer.refusal == (404, "NotFound")
        assert answer.body["details"] == {"name": "nowhere", "kind": "namespaces"}

    async def test_body_with_another_namespace_is_refused(self, wire: Wire) -> None:
        answer = await wire.post("secrets", {"metadata": {"name": "a", "namespace": "default"}})
        assert answer.refusal == BAD

    async def test_unreadable_body_is_a_bad_request(self, wire: Wire) -> None:
        answers = {what: await wire.post("secrets", body) for what, body in UNREADABLE.items()}
        assert {what: answer.refusal for what, answer in answers.items()} == dict.fromkeys(UNREADABLE, BAD)

    async def test_body_of_another_content_type_is_refused(self, wire: Wire) -> None:
        answer = await wire.ask("POST", "secrets", a_secret("a"), content_type="text/plain")
        assert answer.refusal == (415, "UnsupportedMediaType")

    async def test_string_data_becomes_data_and_wins_over_it(self, wire: Wire) -> None:
        sent = {"stringData": {"a": "hello", "b": "new"}, "data": {"b": "b2xk", "c": "YWxzbw=="}}
        made = await wire.made("secrets", a_secret("a", **sent))
        assert "stringData" not in made
        assert decoded(made["data"]) == {"a": "hello", "b": "new", "c": "also"}


class TestRead:
    async def test_answer_names_the_missing_object(self, wire: Wire) -> None:
        answer = await wire.get("jobs/nothing")
        assert answer.refusal == (404, "NotFound")
        assert answer.body["details"] == {"name": "nothing", "group": "batch", "kind": "jobs"}

    async def test_answer_names_no_group_for_the_core_group(self, wire: Wire) -> None:
        answer = await wire.get("secrets/nothing")
        assert answer.body["details"] == {"name": "nothing", "kind": "secrets"}

    async def test_unknown_path_is_not_found(self, wire: Wire) -> None:
        for path in ("nonsense", "/apis/batch/v9/jobs", "/apis/nonsense/v1/jobs", "pods/a/nonsense"):
            assert [(await wire.ask(method, path, {})).status for method in ("GET", "POST")] == [404, 404]

    async def test_unknown_resource_of_a_known_group_gets_a_status(self, wire: Wire) -> None:
        answer = await wire.get("nonsense")
        assert answer.refusal == (404, "NotFound")
        assert answer.body["details"] == {}

    async def test_wrong_token_is_unauthorized(self, wire: Wire) -> None:
        assert (await wire.ask("GET", "secrets", token="wrong")).refusal == (401, "Unauthorized")

    async def test_request_without_a_token_is_refused(self, wire: Wire) -> None:
        """Unauthorized, or Forbidden where the server allows anonymous requests."""
        answer = await wire.ask("GET", "secrets", token=None)
        assert answer.refusal in [(401, "Unauthorized"), (403, "Forbidden")]

    async def test_method_without_a_meaning_is_not_allowed(self, wire: Wire) -> None:
        answers = [await wire.ask(method, path, {}) for method, path in MEANINGLESS]
        assert {answer.refusal for answer in answers} == {(405, "MethodNotAllowed")}

    async def test_namespace_has_its_name_as_a_label(self, wire: Wire) -> None:
        found = await wire.found(f"namespaces/{wire.namespace}")
        assert (found["kind"], found["status"]) == ("Namespace", {"phase": "Active"})
        assert found["metadata"]["labels"]["kubernetes.io/metadata.name"] == wire.namespace


class TestAccessReview:
    async def test_review_says_that_the_administrator_may(self, wire: Wire) -> None:
        asked = {"namespace": wire.namespace, "verb": "create", "group": "batch", "resource": "jobs"}
        review = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
        path = f"/apis/{review['apiVersion']}/selfsubjectaccessreviews"
        answer = await wire.post(path, review | {"spec": {"resourceAttributes": asked}})
        assert answer.status == 201
        assert {key: answer.body[key] for key in review} == review
        assert answer.body["spec"] == {"resourceAttributes": asked}
        assert answer.body["status"]["allowed"] is True
