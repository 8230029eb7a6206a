"""Objects at an API server: what a create adds, how it refuses, and what becomes of the Pods of a deleted Job."""

import base64
import re
from datetime import datetime
from uuid import UUID

import pytest

from tests.contract.wire import HELD, Event, Wire, a_job, a_pod, a_secret
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


LIMITS = {"cpu": "1", "memory": "1Gi"}


def bare(**container: object) -> Json:
    """A Job with only the required fields."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "task", "image": "localhost/x:1", **container}]}
    return {"metadata": {"name": "a"}, "spec": {"suspend": True, "template": {"spec": pod}}}


def container_of(pod_or_template: Json) -> Json:
    (container,) = pod_or_template["spec"]["containers"]
    found: Json = container
    return found


class TestJob:
    async def test_job_runs_once_with_six_retries(self, wire: Wire) -> None:
        spec = (await wire.made("jobs", bare()))["spec"]
        told = {key: value for key, value in spec.items() if key not in {"selector", "template", "suspend"}}
        assert told == {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 6,
            "completionMode": "NonIndexed",
            "podReplacementPolicy": "TerminatingOrFailed",
            "manualSelector": False,
        }

    async def test_job_is_not_suspended_unless_it_says_so(self, wire: Wire) -> None:
        for suspend in (None, False, True):
            made = await wire.made("jobs", a_job(f"is-{suspend}".lower(), {"suspend": suspend, "parallelism": 0}))
            assert made["spec"]["suspend"] is bool(suspend)

    async def test_job_with_a_failure_policy_replaces_failed_pods_only(self, wire: Wire) -> None:
        rules = [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]
        made = await wire.made("jobs", a_job("a", {"podFailurePolicy": {"rules": rules}}))
        assert made["spec"]["podReplacementPolicy"] == "Failed"
        assert made["spec"]["podFailurePolicy"]["rules"] == rules

    async def test_pods_of_a_job_are_labelled_with_its_name_and_uid(self, wire: Wire) -> None:
        body = a_job("a")
        body["metadata"]["labels"] = {"own": "1"}
        body["spec"]["template"]["metadata"] = {"labels": {"pods": "2"}, "annotations": {"note": "3"}}
        made = await wire.made("jobs", body)
        uid = made["metadata"]["uid"]
        given = {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": "a"}
        old = {"controller-uid": uid, "job-name": "a"}
        template = made["spec"]["template"]["metadata"]
        assert template == {"labels": given | old | {"pods": "2"}, "annotations": {"note": "3"}}
        assert made["metadata"]["labels"] == {"own": "1"}
        assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}

    async def test_job_without_labels_gets_those_of_its_pods(self, wire: Wire) -> None:
        made = await wire.made("jobs", a_job("a"))
        assert made["metadata"]["labels"] == made["spec"]["template"]["metadata"]["labels"]

    async def test_template_gets_the_defaults_of_a_pod(self, wire: Wire) -> None:
        spec = (await wire.made("jobs", bare()))["spec"]["template"]["spec"]
        assert {key: value for key, value in spec.items() if key != "containers"} == {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "schedulerName": "default-scheduler",
        }

    async def test_given_fields_are_kept(self, wire: Wire) -> None:
        said = {"imagePullPolicy": "Never", "terminationMessagePolicy": "FallbackToLogsOnError", "command": ["a", ""]}
        pod = {"terminationGracePeriodSeconds": 5, "schedulerName": "own", "nodeSelector": {"a": "b"}}
        made = (await wire.made("jobs", a_job("a", {"backoffLimit": 0}, pod, **said)))["spec"]
        assert made["backoffLimit"] == 0
        assert pod.items() <= made["template"]["spec"].items()
        assert said.items() <= container_of(made["template"]).items()

    async def test_limits_of_a_template_are_no_requests_yet(self, wire: Wire) -> None:
        """The limits become requests in the Pods that are made from the template."""
        made = await wire.made("jobs", bare(resources={"limits": LIMITS}))
        assert container_of(made["spec"]["template"])["resources"] == {"limits": LIMITS}

    async def test_null_counts_as_a_missing_field(self, wire: Wire) -> None:
        made = await wire.made("jobs", a_job("a", {"backoffLimit": None, "activeDeadlineSeconds": None}))
        assert made["spec"]["backoffLimit"] == 6
        assert "activeDeadlineSeconds" not in made["spec"]


class TestPod:
    async def test_limits_of_a_pod_become_its_requests(self, wire: Wire) -> None:
        resources = {"limits": LIMITS, "requests": {"cpu": "500m"}}
        container = {"name": "task", "image": "localhost/x:1", "resources": resources}
        made = await wire.made("pods", a_pod("a", containers=[container]))
        assert container_of(made)["resources"] == {"limits": LIMITS, "requests": {"cpu": "500m", "memory": "1Gi"}}

    async def test_pod_of_a_job_requests_the_limits_of_the_template(self, wire: Wire) -> None:
        await wire.made("jobs", a_job("a", {"suspend": False}, resources={"limits": LIMITS}))

        async def look() -> list[Json]:
            found: list[Json] = (await wire.found("pods", labelSelector="job-name=a"))["items"]
            return found

        (pod,) = await wire.plane.wait_for(look, "the Pod of the Job")
        assert container_of(pod)["resources"] == {"limits": LIMITS, "requests": LIMITS}

    async def test_pod_gets_the_defaults_of_restart_and_scheduler(self, wire: Wire) -> None:
        made = (await wire.made("pods", a_pod("a", schedulerName=None, nodeName="nowhere")))["spec"]
        wanted = {
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "nodeName": "nowhere",
        }
        assert wanted.items() <= made.items()


FOREGROUND = {"propagationPolicy": "Foreground"}
BACKGROUND = {"propagationPolicy": "Background"}
ORPHAN = {"propagationPolicy": "Orphan"}


async def job_with_pod(wire: Wire) -> tuple[Json, str]:
    """A running Job `a`, and the path of its Pod, which waits for a scheduler that does not exist."""
    job = await wire.made("jobs", a_job("a", {"suspend": False}))

    async def is_at_work() -> bool:
        return bool((await wire.found("jobs/a"))["status"].get("active") == 1)

    await wire.plane.wait_for(is_at_work, "the Job has its Pod")
    (name,) = await wire.names("pods", labelSelector="batch.kubernetes.io/job-name=a")
    return job, f"pods/{name}"


async def hold(wire: Wire, pod: str) -> None:
    finalizers = (await wire.found(pod))["metadata"].get("finalizers", [])
    await wire.changed(pod, {"metadata": {"finalizers": [*finalizers, HELD]}})


async def let_go(wire: Wire, pod: str) -> None:
    await wire.changed(pod, {"metadata": {"finalizers": None}})


async def is_being_deleted(wire: Wire, path: str) -> None:
    async def is_so() -> bool:
        return "deletionTimestamp" in (await wire.found(path))["metadata"]

    await wire.plane.wait_for(is_so, f"{path} is being deleted")


async def ended(wire: Wire, resource: str, since: str) -> Event:
    async with wire.watch(resource, resourceVersion=since) as watch:
        while (event := await watch.next()).type != "DELETED":
            pass
    return event


class TestForeground:
    async def test_foreground_job_stays_until_its_pod_is_gone(self, wire: Wire) -> None:
        _, pod = await job_with_pod(wire)
        await hold(wire, pod)
        since = await wire.now("jobs")
        answer = await wire.delete("jobs/a", FOREGROUND)
        assert (answer.status, answer.body["kind"]) == (200, "Job")
        assert "deletionTimestamp" in answer.body["metadata"]
        assert answer.body["metadata"]["finalizers"] == ["foregroundDeletion"]
        await is_being_deleted(wire, pod)
        assert (await wire.found("jobs/a"))["metadata"]["finalizers"] == ["foregroundDeletion"]
        await let_go(wire, pod)
        await wire.gone("jobs/a")
        assert (await wire.get(pod)).status == 404
        assert (await ended(wire, "jobs", since)).version > (await ended(wire, "pods", since)).version

    async def test_foreground_job_without_pods_is_deleted(self, wire: Wire) -> None:
        await wire.made("jobs", a_job("a"))
        assert (await wire.delete("jobs/a", FOREGROUND)).body["kind"] == "Job"
        await wire.gone("jobs/a")

    async def test_second_foreground_delete_changes_nothing(self, wire: Wire) -> None:
        _, pod = await job_with_pod(wire)
        await hold(wire, pod)
        first = (await wire.delete("jobs/a", FOREGROUND)).body["metadata"]
        again = await wire.delete("jobs/a", FOREGROUND)
        assert again.status == 200
        for kept in ("deletionTimestamp", "finalizers", "uid"):
            assert again.body["metadata"][kept] == first[kept]
        await is_being_deleted(wire, pod)
        await let_go(wire, pod)
        await wire.gone("jobs/a")

    async def test_background_delete_ends_a_foreground_delete(self, wire: Wire) -> None:
        _, pod = await job_with_pod(wire)
        await hold(wire, pod)
        await wire.delete("jobs/a", FOREGROUND)
        assert (await wire.delete("jobs/a", BACKGROUND)).status == 200
        assert (await wire.get("jobs/a")).status == 404
        await is_being_deleted(wire, pod)
        await let_go(wire, pod)


class TestOrphan:
    @pytest.mark.parametrize("options", [ORPHAN, None, {}], ids=["asked", "nothing-said", "no-policy-said"])
    async def test_orphaned_pod_stays_and_has_no_owner(self, wire: Wire, options: Json | None) -> None:
        """A Job is deleted in this way if the request names no policy."""
        _, pod = await job_with_pod(wire)
        answer = await wire.delete("jobs/a", options)
        assert (answer.status, answer.body["kind"]) == (200, "Job")
        assert answer.body["metadata"]["finalizers"] == ["orphan"]
        await wire.gone("jobs/a")
        meta = (await wire.found(pod))["metadata"]
        assert "ownerReferences" not in meta
        assert "deletionTimestamp" not in meta
