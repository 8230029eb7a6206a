"""How an API server judges a Job that it gets: unknown fields, invalid values, dry runs."""

import msgspec

from tests.contract.wire import Wire, a_job
from tests.controlplane.api import Json
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES

STRICT = {"fieldValidation": "Strict"}
BAD, INVALID = (400, "BadRequest"), (422, "Invalid")
SPEC, POD = "spec.", "spec.template.spec."
CONTAINER = POD + "containers[0]."
ON_EXIT = {"operator": "In", "values": [1]}
DISRUPTED = [{"type": "DisruptionTarget", "status": "True"}]
MOUNT = {"name": "x", "mountPath": "/x"}
VOLUME: Json = {"name": "x", "emptyDir": {}}


def named(name: str) -> Json:
    return a_job(name)


def with_meta(**meta: Json) -> Json:
    job = a_job("a")
    return job | {"metadata": job["metadata"] | meta}


def with_spec(**spec: object) -> Json:
    return a_job("a", spec)


def with_pod(**pod: object) -> Json:
    return a_job("a", None, pod)


def with_container(**container: object) -> Json:
    return a_job("a", None, None, **container)


def with_env(**env: object) -> Json:
    return with_container(env=[{"value": "x", **env}])


def from_field(**field: object) -> Json:
    return {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name", **field}}}


UNKNOWN = {
    "nonsense": a_job("a") | {"nonsense": 1},
    "metadata.nonsense": with_meta(nonsense={}),
    "spec.nonsense": with_spec(nonsense=1),
    "spec.backofflimit": with_spec(backofflimit=1),
    "spec.template.nonsense": with_spec(template=a_job("a")["spec"]["template"] | {"nonsense": 1}),
    POD + "nonsense": with_pod(nonsense=1),
    POD + "affinity.nonsense": with_pod(affinity={"nonsense": {}}),
    POD + "tolerations[0].nonsense": with_pod(tolerations=[{"operator": "Exists", "nonsense": 1}]),
    POD + "volumes[0].emptyDir.nonsense": with_pod(volumes=[{"name": "x", "emptyDir": {"nonsense": 1}}]),
    CONTAINER + "nonsense": with_container(nonsense=1),
    CONTAINER + "resources.nonsense": with_container(resources={"nonsense": {}}),
    CONTAINER + "env[0].nonsense": with_container(env=[{"name": "A", "nonsense": 1}]),
    CONTAINER + "env[0].valueFrom.fieldRef.nonsense": with_container(env=[from_field(nonsense=1)]),
    CONTAINER + "volumeMounts[0].nonsense": with_container(volumeMounts=[MOUNT | {"nonsense": 1}]),
}


class TestUnknownFields:
    async def test_strict_server_names_the_unknown_field(self, wire: Wire) -> None:
        for field, body in UNKNOWN.items():
            answer = await wire.post("jobs", body, **STRICT)
            assert answer.refusal == BAD
            assert f'strict decoding error: unknown field "{field}"' in answer.body["message"]

    async def test_strict_server_names_all_unknown_fields(self, wire: Wire) -> None:
        answer = await wire.post("jobs", a_job("a", {"nonsense": 1}, {"more": 2}), **STRICT)
        assert answer.refusal == BAD
        for field in (SPEC + "nonsense", POD + "more"):
            assert f'unknown field "{field}"' in answer.body["message"]

    async def test_unknown_fields_are_found_before_invalid_ones(self, wire: Wire) -> None:
        answer = await wire.post("jobs", a_job("a", {"nonsense": 1}, {"restartPolicy": "Always"}), **STRICT)
        assert answer.refusal == BAD

    async def test_lenient_server_drops_unknown_fields(self, wire: Wire) -> None:
        for name, how in {"a": {"fieldValidation": "Warn"}, "b": {"fieldValidation": "Ignore"}, "c": {}}.items():
            answer = await wire.post("jobs", a_job(name, {"nonsense": 1, "backoffLimit": 4}), **how)
            assert answer.status == 201
            assert "nonsense" not in answer.body["spec"]
            assert answer.body["spec"]["backoffLimit"] == 4

    async def test_job_with_known_fields_passes(self, wire: Wire) -> None:
        assert (await wire.post("jobs", a_job("a"), **STRICT)).status == 201

    async def test_lenient_server_takes_the_last_of_two_keys(self, wire: Wire) -> None:
        text = msgspec.json.encode(with_spec(backoffLimit=1))
        answer = await wire.post("jobs", text.replace(b'"backoffLimit":1', b'"backoffLimit":1,"backoffLimit":2'))
        assert (answer.status, answer.body["spec"]["backoffLimit"]) == (201, 2)


OF_ANOTHER_TYPE = {
    "string for number": with_spec(backoffLimit="1"),
    "fraction": with_spec(backoffLimit=1.5),
    "too big a number": with_spec(backoffLimit=3_000_000_000),
    "string for boolean": with_spec(suspend="true"),
    "number for string": with_env(name="A", value=1),
    "number for label": with_meta(labels={"a": 1}),
    "map for list": with_pod(containers={}),
    "list for map": with_pod(nodeSelector=[]),
    "no quantity": with_container(resources={"requests": {"cpu": "lots"}}),
}


class TestTypes:
    async def test_value_of_another_type_is_a_bad_request(self, wire: Wire) -> None:
        answers = {what: await wire.post("jobs", body) for what, body in OF_ANOTHER_TYPE.items()}
        assert {what: answer.refusal for what, answer in answers.items()} == dict.fromkeys(answers, BAD)

    async def test_quantity_may_be_a_number_and_is_kept_in_its_shortest_form(self, wire: Wire) -> None:
        asked = {"requests": {"cpu": 1, "memory": "1024Mi"}, "limits": {"cpu": "1500m", "memory": "0.5Ti"}}
        made = await wire.made("jobs", with_container(resources=asked))
        (container,) = made["spec"]["template"]["spec"]["containers"]
        kept = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1500m", "memory": "512Gi"}}
        assert container["resources"] == kept


REQUIRED, WRONG, TWICE = "FieldValueRequired", "FieldValueInvalid", "FieldValueDuplicate"
UNSUPPORTED, NOT_FOUND = "FieldValueNotSupported", "FieldValueNotFound"
NEVER_VALID = {
    "restarts-always": (with_pod(restartPolicy="Always"), REQUIRED, POD + "restartPolicy"),
    "restart-not-said": (with_pod(restartPolicy=None), REQUIRED, POD + "restartPolicy"),
    "restart-unknown": (with_pod(restartPolicy="Sometimes"), UNSUPPORTED, POD + "restartPolicy"),
    "no-containers": (with_pod(containers=[]), REQUIRED, POD + "containers"),
    "containers-null": (with_pod(containers=None), REQUIRED, POD + "containers"),
    "no-image": (with_pod(containers=[{"name": "a"}]), REQUIRED, CONTAINER + "image"),
    "no-container-name": (with_pod(containers=[{"image": "x"}]), REQUIRED, CONTAINER + "name"),
    "container-name": (with_container(name="Task_1"), WRONG, CONTAINER + "name"),
    "two-of-a-name": (with_pod(containers=[{"name": "a", "image": "x"}] * 2), TWICE, POD + "containers[1].name"),
    "pull-policy": (with_container(imagePullPolicy="Perhaps"), UNSUPPORTED, CONTAINER + "imagePullPolicy"),
    "name-upper-case": (named("Upper"), WRONG, "metadata.name"),
    "name-underscore": (named("a_b"), WRONG, "metadata.name"),
    "name-of-64": (named("a" * 64), WRONG, "spec.template.labels"),
    "label-key": (with_meta(labels={"-bad-": "x"}), WRONG, "metadata.labels"),
    "label-value": (with_meta(labels={"a": "b@d"}), WRONG, "metadata.labels"),
    "label-of-64": (with_meta(labels={"a": "x" * 64}), WRONG, "metadata.labels"),
    "annotation-key": (with_meta(annotations={"bad key": "x"}), WRONG, "metadata.annotations"),
    "env-equals": (with_env(name="A=B"), WRONG, CONTAINER + "env[0].name"),
    "env-nameless": (with_env(name=""), REQUIRED, CONTAINER + "env[0].name"),
    "env-twofold": (with_env(**from_field()), WRONG, CONTAINER + "env[0].valueFrom"),
    "env-from-nothing": (
        with_container(envFrom=[{"secretRef": {}}]),
        REQUIRED,
        CONTAINER + "envFrom[0].secretRef.name",
    ),
    "cpu-negative": (
        with_container(resources={"requests": {"cpu": "-1"}}),
        WRONG,
        CONTAINER + "resources.requests[cpu]",
    ),
    "more-than-its-limit": (
        with_container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
        WRONG,
        CONTAINER + "resources.requests",
    ),
    "resource-unknown": (
        with_container(resources={"requests": {"nonsense": "2"}}),
        WRONG,
        CONTAINER + "resources.requests[nonsense]",
    ),
    "backoff-negative": (with_spec(backoffLimit=-1), WRONG, "spec.backoffLimit"),
    "parallelism-negative": (with_spec(parallelism=-1), WRONG, "spec.parallelism"),
    "deadline-negative": (with_spec(activeDeadlineSeconds=-1), WRONG, "spec.activeDeadlineSeconds"),
    "ttl-negative": (with_spec(ttlSecondsAfterFinished=-1), WRONG, "spec.ttlSecondsAfterFinished"),
    "completion-mode": (with_spec(completionMode="Odd"), UNSUPPORTED, "spec.completionMode"),
    "policy-and-restarts": (
        a_job(
            "a",
            {"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": DISRUPTED}]}},
            {"restartPolicy": "OnFailure"},
        ),
        WRONG,
        POD + "restartPolicy",
    ),
    "policy-action": (
        with_spec(podFailurePolicy={"rules": [{"action": "Odd", "onExitCodes": ON_EXIT}]}),
        UNSUPPORTED,
        "spec.podFailurePolicy.rules[0].action",
    ),
    "mount-of-nothing": (with_container(volumeMounts=[MOUNT]), NOT_FOUND, CONTAINER + "volumeMounts[0].name"),
    "mount-path-twice": (
        a_job("a", None, {"volumes": [VOLUME]}, volumeMounts=[MOUNT, MOUNT]),
        WRONG,
        CONTAINER + "volumeMounts[1].mountPath",
    ),
    "volume-twice": (with_pod(volumes=[VOLUME, VOLUME]), TWICE, POD + "volumes[1].name"),
    "node-selector": (with_pod(nodeSelector={"a b": "c"}), WRONG, POD + "nodeSelector"),
    "toleration": (
        with_pod(tolerations=[{"key": "a", "operator": "Odd"}]),
        UNSUPPORTED,
        POD + "tolerations[0].operator",
    ),
}


class TestInvalid:
    async def test_cause_of_an_invalid_job_is_named(self, wire: Wire) -> None:
        for fault, (body, *cause) in NEVER_VALID.items():
            answer = await wire.post("jobs", body)
            assert (fault, *answer.refusal) == (fault, *INVALID)
            assert (fault, answer.causes) == (fault, [tuple(cause)])
            assert {"kind": "Job", "group": "batch"}.items() <= answer.body["details"].items()

    async def test_every_cause_is_named(self, wire: Wire) -> None:
        answer = await wire.post("jobs", a_job("a", {"backoffLimit": -1}, {"restartPolicy": "Always"}))
        assert answer.refusal == INVALID
        assert set(answer.causes) == {(WRONG, "spec.backoffLimit"), (REQUIRED, POD + "restartPolicy")}

    async def test_job_needs_containers_and_a_restart_policy(self, wire: Wire) -> None:
        empty: list[Json] = [{}, {"spec": {}}, {"spec": {"template": {}}}]
        for body in empty:
            answer = await wire.post("jobs", {"metadata": {"name": "a"}} | body)
            assert answer.refusal == INVALID
            assert set(answer.causes) == {(REQUIRED, POD + "containers"), (REQUIRED, POD + "restartPolicy")}

    async def test_selector_of_a_job_is_set_by_the_server(self, wire: Wire) -> None:
        answer = await wire.post("jobs", with_spec(selector={"matchLabels": {"a": "b"}}))
        assert answer.refusal == INVALID
        assert set(answer.causes) == {(WRONG, "spec.selector"), (WRONG, "spec.template.metadata.labels")}

    async def test_name_of_63_letters_is_not_too_long(self, wire: Wire) -> None:
        await wire.made("jobs", a_job("a" * 63))


class TestDryRun:
    async def test_dry_run_is_answered_as_a_create_and_leaves_nothing(self, wire: Wire) -> None:
        answer = await wire.post("jobs", a_job("a"), dryRun="All")
        assert (answer.status, answer.body["kind"], answer.body["metadata"]["name"]) == (201, "Job", "a")
        assert answer.body["spec"]["completions"] == 1
        assert answer.body["metadata"]["uid"]
        assert "resourceVersion" not in answer.body["metadata"]
        assert await wire.names("jobs") == []

    async def test_dry_run_is_refused_as_a_create(self, wire: Wire) -> None:
        await wire.made("jobs", a_job("a"))
        dry_run = {"dryRun": "All"}
        assert (await wire.post("jobs", a_job("a"), **dry_run)).refusal == (409, "AlreadyExists")
        assert (await wire.post("jobs", with_spec(backoffLimit=-1), **dry_run)).refusal == INVALID
        assert (await wire.post("jobs", with_spec(nonsense=1), **dry_run, **STRICT)).refusal == BAD
        elsewhere = "/apis/batch/v1/namespaces/nowhere/jobs"
        assert (await wire.post(elsewhere, a_job("a"), **dry_run)).refusal == (404, "NotFound")

    async def test_create_may_have_a_timeout(self, wire: Wire) -> None:
        assert (await wire.post("jobs", a_job("a"), timeout="5s")).status == 201
        assert (await wire.post("jobs", a_job("b"), timeout="long")).refusal == BAD
