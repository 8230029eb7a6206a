"""Templates of other systems' manifests: what each field becomes. The API server compares them in tests/contract."""

import copy
from typing import Any

import pytest

from dispatcher.commands.adopt import adopt
from dispatcher.commands.adoption import AdoptedField, Adoption, Did, Statement, template_name
from dispatcher.commands.manifests import inserting_cron_job
from dispatcher.jobs.fields import dotted
from dispatcher.jobs.offered import why_unusable
from dispatcher.jobs.templates import judge_template
from dispatcher.model.launches import DOMAIN
from tests.rig.corpus import (
    CORPUS,
    MOUNT,
    PROXY,
    alone,
    container,
    cron_job,
    job,
    manifest,
    pod,
    scaled_job,
    step,
    workflow,
)
from tests.rig.whole_job import parent_of, paths, whole_job


def adopted(document: dict[str, Any]) -> Adoption:
    found = adopt(document)
    assert isinstance(found, list)
    return found[0]


def annotations(name: str) -> dict[str, str]:
    found: dict[str, str] = adopted(manifest(name)).manifest["metadata"]["annotations"]
    return {key.removeprefix(f"{DOMAIN}/"): value for key, value in found.items()}


def told(document: dict[str, Any], field: str) -> list[tuple[Did, str]]:
    return [(one.did, one.words) for one in adopted(document).fields if one.field == field]


def test_corpus_has_sixty_manifests() -> None:
    assert len(CORPUS) >= 60


@pytest.mark.parametrize("name", CORPUS)
def test_what_is_adopted_is_accepted(name: str) -> None:
    found = adopt(manifest(name))
    assert isinstance(found, list)
    for one in found:
        if one.manifest:
            assert why_unusable(judge_template(one.name, one.manifest)) == ""
        else:
            assert Did.OPEN in {field.did for field in one.fields}


INNER = {
    "spec", "template", "jobTemplate", "jobTargetRef", "metadata", "labels", "annotations", "workflowSpec", "templates",
    "inputs", "retryStrategy",
}  # fmt: skip


@pytest.mark.parametrize("name", CORPUS)
def test_no_field_is_lost_without_a_word(name: str) -> None:
    """Each field down to those of the Pod's spec, or of a step, has a word, or the object above it has one."""
    document = manifest(name)
    found = adopt(document)
    assert isinstance(found, list)
    words = {field.field for one in found for field in one.fields}
    for path in paths(document):
        leaf = next((at for at, key in enumerate(path) if key not in INNER and type(key) is not int), None)
        if leaf is None or leaf < len(path) - 1 or path[0] in {"apiVersion", "kind", "status"}:
            continue
        if parent_of(document, path)[path[-1]] is not None:
            assert words & {dotted(path), dotted(path[:-1]), f"{dotted(path)}[0]"}, (dotted(path), words)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("plain", {"max-failures": "7", "timeout-seconds": "604800", "report": "exit-code"}),
        ("backoffLimit 0", {"max-failures": "1"}),
        ("backoffLimit 4", {"max-failures": "5"}),
        ("backoffLimit 500", {"max-failures": "100"}),
        ("OnFailure", {"max-failures": "3"}),
        ("failure policy", {"final-codes": "42", "report": "exit-code"}),
        ("deadline", {"timeout-seconds": "7200"}),
        ("deadline of the Pod", {"timeout-seconds": "60"}),
        ("indexed", {"row-may-set": "env.JOB_COMPLETION_INDEX"}),
        ("sidecar", {"container": "work"}),
        ("cron limits", {"max-failures": "2", "timeout-seconds": "600"}),
        ("scaled limits", {"max-failures": "5", "timeout-seconds": "600"}),
        ("Pod", {"max-failures": "1"}),
        ("Pod that restarts", {"max-failures": "100"}),
        ("Pod of CI", {"timeout-seconds": "3600"}),
        ("Airflow", {"container": "base"}),
        ("step retries", {"max-failures": "4", "timeout-seconds": "60"}),
        ("parameters", {"row-may-set": "env.IN_FILE,env.MODE,env.X"}),
    ],
)
def test_what_a_manifest_says_becomes_an_annotation(name: str, expected: dict[str, str]) -> None:
    assert annotations(name) == annotations(name) | expected


def rule(action: str, operator: str, *values: int, **more: str) -> dict[str, Any]:
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(values), **more}}


@pytest.mark.parametrize(
    ("rules", "codes"),
    [
        ([rule("FailJob", "In", 3, 1, 2, 64)], "1-3,64"),
        ([rule("FailJob", "NotIn", 0, 75, 100)], "1-74,76-99,101-255"),
        ([rule("Count", "In", 2), rule("FailJob", "In", 1, 2, 3)], "1,3"),
        ([rule("FailJob", "In", 1), rule("Count", "NotIn", 0)], "1"),
        ([rule("FailJob", "In", 1, containerName="work")], "1"),
        ([rule("FailJob", "In", 1, containerName="beside")], None),
        ([rule("Ignore", "In", 1)], None),
        ([rule("Count", "In", 1)], None),
        ([rule("Ignore", "In", 75), rule("FailJob", "NotIn", 0)], "1-74,76-255"),
        ([rule("FailIndex", "In", 1), rule("FailJob", "In", 1, 2)], "2"),
        ([{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}], None),
        ([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": "1"}}], None),
        ([{"action": "FailJob"}, 7, None], None),
    ],
)
def test_rules_of_exit_codes_become_final_codes(rules: list[Any], codes: str | None) -> None:
    made = adopted(job(podFailurePolicy={"rules": rules}))
    assert made.manifest["metadata"]["annotations"].get("dispatcher.internal/final-codes") == codes
    judge_template("a", made.manifest)


@pytest.mark.parametrize(
    ("given", "did", "words"),
    [
        (rule("Ignore", "In", 1), Did.OPEN, "every failure counts here"),
        (rule("FailIndex", "In", 1), Did.OPEN, "every failure counts here"),
        (rule("FailJob", "In", 1, containerName="beside"), Did.OPEN, "the task's container"),
        ({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}, Did.LEFT_OUT, "it is so anyway"),
        ({"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}, Did.OPEN, "no failure here"),
        ({"action": "Ignore", "onPodConditions": [{"type": "Odd"}]}, Did.OPEN, "are not read"),
    ],
)
def test_rule_without_a_like_is_told(given: dict[str, Any], did: Did, words: str) -> None:
    ((found, said),) = told(job(podFailurePolicy={"rules": [given]}), "spec.podFailurePolicy.rules[0]")
    assert found is did
    assert words in said


def test_policy_of_a_command_of_exec_is_left_to_its_options() -> None:
    spec = pod(container(command=["dispatcher", "exec", "--", "run"]))
    found = told(job(spec, podFailurePolicy={"rules": [rule("FailJob", "In", 1)]}), "spec.podFailurePolicy.rules[0]")
    assert found == [(Did.OPEN, "`dispatcher exec --final CODES` says which statuses end the row")]


def test_schedule_goes_on_in_a_cron_job_that_inserts_the_row() -> None:
    found = adopted(cron_job(timeZone="Europe/Vienna", suspend=True, startingDeadlineSeconds=60))
    kept = {"schedule": "0 3 * * *", "timeZone": "Europe/Vienna", "suspend": True, "startingDeadlineSeconds": 60}
    assert found.schedule == kept
    made = inserting_cron_job("nightly", found.schedule, "INSERT")
    assert made["metadata"]["name"] == "insert-nightly", "an apply over the old one would run both"
    assert {field: made["spec"][field] for field in kept} == kept
    (container,) = made["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["command"][-2:] == ["--command", "INSERT"]
    assert adopted(job()).schedule == {}


@pytest.mark.parametrize("name", CORPUS)
def test_unknown_field_is_kept_or_told_wherever_it_stands(name: str) -> None:
    """It is in the template, or it or an object around it has a word that is not `kept`."""
    places = [(), *(path for path in paths(manifest(name)) if isinstance(part_of(manifest(name), path), dict))]
    for path in places:
        if path[:1] == ("status",):
            continue
        document = manifest(name)
        part_of(document, path)["zzz"] = "new"
        found = adopt(document)
        assert isinstance(found, list)
        told_of = {one.field for each in found for one in each.fields if one.did is not Did.KEPT}
        around = {dotted((*path, "zzz")[:length]) for length in range(1, len(path) + 2)}
        is_kept = any("zzz" in str(each.manifest) for each in found)
        is_told = around & told_of or any(field.endswith(".zzz") for field in told_of)  # also as that of a step
        assert is_kept or is_told, (path, sorted(told_of))


def part_of(document: dict[str, Any], path: tuple[str | int, ...]) -> Any:
    return parent_of(document, path)[path[-1]] if path else document


@pytest.mark.parametrize(
    ("document", "field", "did", "words"),
    [
        (job(suspend=True), "spec.suspend", Did.OPEN, "paused_until"),
        (job(podReplacementPolicy="TerminatingOrFailed"), "spec.podReplacementPolicy", Did.OPEN, "'Failed' here"),
        (job(parallelism=0), "spec.parallelism", Did.OPEN, "paused"),
        (job(activeDeadlineSeconds="60"), "spec.activeDeadlineSeconds", Did.OPEN, "no whole number"),
        (job(activeDeadlineSeconds=60), "spec.activeDeadlineSeconds", Did.TRANSLATED, "for all tries together"),
        (job(activeDeadlineSeconds=9**9), "spec.activeDeadlineSeconds", Did.TRANSLATED, "that is the most"),
        (job(backoffLimitPerIndex=2, backoffLimit=9), "spec.backoffLimitPerIndex", Did.TRANSLATED, "max-failures: 3"),
        (job(backoffLimitPerIndex=2, backoffLimit=9), "spec.backoffLimit", Did.LEFT_OUT, "of its own"),
        (job(backoffLimitPerIndex=2), "spec.backoffLimitPerIndex", Did.TRANSLATED, "max-failures: 3"),
        (
            workflow(step(container={"image": "{{inputs.parameters.x}}"}, inputs={"parameters": [{"name": "x"}]})),
            "spec.templates[0].inputs.parameters[0]", Did.OPEN, "no variable is read",
        ),
        (workflow(step(container={"image": "a:{{item}}"})), "spec.templates[0].container.image", Did.OPEN, "let rows"),
        (job(pod(nodeName="n17")), "spec.template.spec.nodeName", Did.OPEN, "bound to n17"),
        (
            job(pod(initContainers=[{"name": "i", "image": "i", "args": ["$(JOB_COMPLETION_INDEX)"]}]), completions=3,
                completionMode="Indexed"),
            "spec.template.spec.initContainers[0]", Did.OPEN, "of the task alone",
        ),
        (
            job(meta={"annotations": {"helm.sh/hook": "pre-upgrade"}}), "metadata.annotations[helm.sh/hook]", Did.OPEN,
            "a release",
        ),
        (cron_job(schedule=None), "spec.schedule", Did.OPEN, "no time"),
        (
            cron_job(of_job={"completions": 3}, concurrencyPolicy="Forbid"), "spec.concurrencyPolicy", Did.OPEN,
            "several",
        ),
        (scaled_job(maxReplicaCount="30"), "spec.maxReplicaCount", Did.OPEN, "no whole number"),
        (scaled_job(minReplicaCount=2), "spec.minReplicaCount", Did.OPEN, "only for a row"),
        (job(managedBy="x/y"), "spec.managedBy", Did.OPEN, "other controllers"),
        (job(successPolicy={}), "spec.successPolicy", Did.OPEN, "batch"),
        (job(newField=1), "spec.newField", Did.OPEN, "not known here"),
        (job(completions=5, parallelism=2), "spec.completions", Did.OPEN, "one row for each of the 5"),
        (job(completions=5, parallelism=2), "spec.parallelism", Did.OPEN, "max_jobs 2"),
        (job(completions="5"), "spec.completions", Did.OPEN, "no whole number"),
        (job(backoffLimit="5"), "spec.backoffLimit", Did.OPEN, "no whole number"),
        (job(pod(beside=({"name": "b", "image": "b"},))), "spec.template.spec.containers", Did.OPEN, "is work the one"),
        (job(pod(schedulerName="v")), "spec.template.spec.schedulerName", Did.KEPT, "SCHEDULER_NAME"),
        (
            job(pod(container(env=[{"name": "TASK_ID", "value": "x"}]))),
            "spec.template.spec.containers[0].env[0]", Did.OPEN, "give it another one",
        ),
        (manifest("index by its note"), "spec.template.spec.containers[0].env[0]", Did.TRANSLATED, "of the row has it"),
        (manifest("index by its note"), "spec.template.spec.containers[0].env[1]", Did.OPEN, "read that"),
        (cron_job(concurrencyPolicy="Replace"), "spec.concurrencyPolicy", Did.OPEN, "dedupe_key"),
        (cron_job(concurrencyPolicy="Forbid"), "spec.concurrencyPolicy", Did.TRANSLATED, "dedupe_key"),
        (cron_job(timeZone="Europe/Vienna"), "spec.schedule", Did.OPEN, "0 3 * * * in Europe/Vienna"),
        (job(name="default"), "metadata.name", Did.MOVED, "the name of the template: default-work"),
        (cron_job(), "spec.schedule", Did.OPEN, "delete the old CronJob first, or both run"),
        (cron_job(schedule="CRON_TZ=Europe/Vienna 0 3 * * *"), "spec.schedule", Did.OPEN, "0 3 * * * in Europe/Vienna"),
        (job(meta={"namespace": "prod"}), "metadata.namespace", Did.LEFT_OUT, "must be there"),
        ({**cron_job(), "metadata": {"namespace": "prod"}}, "metadata.namespace", Did.LEFT_OUT, "must be there"),
        (workflow(step(), kind="Workflow") | {"metadata": {"namespace": "prod"}}, "metadata.namespace", Did.LEFT_OUT,
         "must be there"),
        (job({"nodeSelector": {}}), "spec.template.spec.containers", Did.OPEN, "`kubectl kustomize DIR"),
        (job(pod(container(**MOUNT))), "spec.template.spec.containers[0].volumeMounts[0]", Did.OPEN, "called data"),
        (alone({"containers": [container()]}), "spec.restartPolicy", Did.OPEN, "has it an end?"),
        (alone(pod(restartPolicy="Always")), "spec.restartPolicy", Did.OPEN, "has it an end?"),
        (manifest("env twice"), "spec.template.spec.containers[0].env[0]", Did.LEFT_OUT, "stands again below"),
        (job(pod(container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "$(A) 2"}]))),
         "spec.template.spec.containers[0].env[0]", Did.OPEN, "env[1] reads this one"),
        (job(pod(container(env=[{"name": "A"}, {"name": "B", "value": "$(A)"}, {"name": "A", "value": "2"}]))),
         "spec.template.spec.containers[0].env[0]", Did.OPEN, "env[1] reads this one"),
        (scaled_job(), "spec.maxReplicaCount", Did.TRANSLATED, "queues.max_jobs: 100, the default of a ScaledJob"),
        (scaled_job(), "spec.triggers[0]", Did.OPEN, "rabbitmq"),
        (alone(pod(container(name="base"))), "spec.containers", Did.OPEN, "spec.args of a row"),
        (alone(pod(container(name="base"))), "spec.containers", Did.OPEN, "max-failures: n + 1"),
        (workflow(step(when="x")), "spec.templates[0].when", Did.OPEN, "no like here"),
        (manifest("workflow places"), "spec.nodeSelector", Did.KEPT, "none of its own"),
        (manifest("workflow places"), "spec.arguments", Did.OPEN, "by env"),
        (manifest("workflow places"), "spec.synchronization", Did.OPEN, "max_jobs"),
        (manifest("workflow of steps elsewhere"), "spec.templates", Did.OPEN, "the file that has them"),
        (manifest("CronWorkflow that forbids"), "spec.schedule", Did.OPEN, "pg_cron"),
        (manifest("CronWorkflow that forbids"), "spec.concurrencyPolicy", Did.OPEN, "dedupe_key"),
        (manifest("CronWorkflow with one step first"), "spec.schedule", Did.OPEN, "5 4 * * * in Europe/Vienna"),
        (manifest("CronWorkflow with one step first"), "spec.concurrencyPolicy", Did.OPEN, "dedupe_key"),
        (manifest("CronWorkflow with one step first"), "spec.timezone", Did.TRANSLATED, "CronJob below"),
        (manifest("CronWorkflow with one step first"), "spec.suspend", Did.LEFT_OUT, "so anyway"),
        (manifest("CronWorkflow with one step first"), "spec.when", Did.OPEN, "no like here"),
        (manifest("workflow volumes"), "spec.volumes", Did.KEPT, "mounts them"),
        (manifest("step of its own labels"), "spec.podMetadata", Did.KEPT, "says otherwise"),
        (manifest("CronWorkflow that forbids"), "spec.when", Did.OPEN, "no like here"),
        (manifest("step tries for ever"), "spec.templates[0].retryStrategy.limit", Did.OPEN, "at most 100"),
        (manifest("step tries for ever"), "spec.templates[0].retryStrategy.backoff", Did.OPEN, "10 min"),
        (manifest("step tries for ever"), "spec.templates[0].retryStrategy.retryPolicy", Did.LEFT_OUT, "disruption"),
        (manifest("step retries"), "spec.templates[0].retryStrategy.limit", Did.TRANSLATED, "max-failures: 4"),
        (manifest("step reads"), "spec.templates[0].inputs.artifacts", Did.OPEN, "fetch"),
        (manifest("step reads"), "spec.templates[0].inputs.parameters[0]", Did.LEFT_OUT, "does not use it"),
        (manifest("step reads"), "spec.templates[0].inputs.parameters[1]", Did.OPEN, "put '1' into env"),
        (workflow(step(sidecars=[{**PROXY, "restartPolicyRules": [1]}])),
         "spec.templates[0].sidecars[0].restartPolicyRules", Did.OPEN, "final"),
        (
            job(pod(container(restartPolicy="Never", restartPolicyRules=[{"action": "Restart"}]))),
            "spec.template.spec.containers[0].restartPolicyRules",
            Did.OPEN,
            "final",
        ),
        (job(pod(topologySpreadConstraints=[{"labelSelector": {"matchLabels": {"job-name": "x"}}}])),
         "spec.template.spec.topologySpreadConstraints[0].labelSelector", Did.OPEN, "a label of your own"),
        (job(pod(affinity={"podAntiAffinity": {"required": [{"matchLabelKeys": ["controller-uid"]}]}})),
         "spec.template.spec.affinity.podAntiAffinity.required[0].matchLabelKeys", Did.OPEN, "a label of your own"),
        (job(pod(subdomain="all"), completions=3, completionMode="Indexed"),
         "spec.template.spec.subdomain", Did.OPEN, "find each other"),
        *((job(pod(container(image=image))), "spec.template.spec.containers[0].image", Did.OPEN, "nobody fills in")
          for image in ("{{ .Values.image }}", "${REGISTRY}/app:1", "<IMAGE>", "https://reg.example/x:1", " a", "A B")),
    ],
)  # fmt: skip
def test_what_is_left_to_a_person_or_kept_is_told(document: dict[str, Any], field: str, did: Did, words: str) -> None:
    assert [one for one in told(document, field) if one[0] is did and words in one[1]], adopted(document).fields


@pytest.mark.parametrize(
    ("name", "statements"),
    [
        ("completions", [("rows", {"template": "load", "count": 5})]),
        ("indexed", [("indexed_rows", {"template": "load", "count": 4})]),
        ("cron forbids", [("one_at_a_time", {"template": "nightly"})]),
        ("cron", [("again", {"template": "nightly"})]),
        (
            "scaled cap",
            [("queue", {"queue": "scaled", "count": 20}), ("row", {"queue": "scaled", "template": "scaled"})],
        ),
        (
            "scaled",
            [("queue", {"queue": "scaled", "count": 100}), ("row", {"queue": "scaled", "template": "scaled"})],
        ),
        ("plain", []),
    ],
)
def test_rows_to_insert_are_shown(name: str, statements: list[tuple[str, dict[str, object]]]) -> None:
    assert [(one.file, one.values) for one in adopted(manifest(name)).statements] == statements


@pytest.mark.parametrize(
    ("words", "reports"),
    [
        ({"command": ["dispatcher", "exec", "--", "x"]}, True),
        ({"args": ["python3", "-m", "dispatcher", "exec"]}, True),
        ({"env": [{"name": "TASK_DATABASE_URL", "value": "x"}]}, True),
        ({}, False),
    ],
)
def test_container_that_can_report_needs_no_exit_code(words: dict[str, Any], reports: bool) -> None:
    made = adopted(job(pod({"name": "w", "image": "i", **words}))).manifest["metadata"]["annotations"]
    assert (f"{DOMAIN}/report" not in made) is reports


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"max-failures": "2", "timeout-seconds": "300"}, {"max-failures": "2", "timeout-seconds": "300"}),
        ({"max-seconds": "600"}, {"max-seconds": "600", "timeout-seconds": "600"}),
        ({"max-seconds": "odd"}, {"max-seconds": "odd", "timeout-seconds": "604800"}),
    ],
)
def test_own_annotation_wins(own: dict[str, str], expected: dict[str, str]) -> None:
    made = adopted(job(meta={"annotations": {f"{DOMAIN}/{key}": value for key, value in own.items()}})).manifest
    given = {key.removeprefix(f"{DOMAIN}/"): value for key, value in made["metadata"]["annotations"].items()}
    assert given == given | expected


def test_index_needs_the_own_list_of_what_rows_may_set() -> None:
    document = job(completions=3, completionMode="Indexed", meta={"annotations": {f"{DOMAIN}/row-may-set": "cpu"}})
    assert (Did.OPEN, f"add env.JOB_COMPLETION_INDEX to its own {DOMAIN}/row-may-set") in told(
        document, "spec.completionMode"
    )


def test_blank_field_that_is_not_known_is_nothing() -> None:
    assert not [one for one in adopted(cron_job(odd=None)).fields if "odd" in one.field]


def test_cron_job_of_an_indexed_job_inserts_all_its_rows() -> None:
    found = adopted(cron_job(of_job={"completions": 5, "completionMode": "Indexed"}))
    assert found.in_time == Statement("indexed_rows", {"template": "nightly", "count": 5})
    assert adopted(cron_job(schedule=None)).in_time is None


def test_items_that_are_no_objects_stay_for_the_check_of_the_template() -> None:
    own = container(env=[{"name": "A", "value": "b"}, "B=2"])
    spec = pod(own, initContainers={"name": "x"}) | {"containers": [own, "sidecar"]}
    made = adopted(job(spec)).manifest["spec"]["template"]["spec"]
    assert made["initContainers"] == {"name": "x"}
    assert made["containers"][1:] == ["sidecar"]
    assert made["containers"][0]["env"] == [{"name": "A", "value": "b"}, "B=2"]


def test_own_annotations_of_a_template_stay() -> None:
    made = adopted(job(meta={"annotations": {f"{DOMAIN}/report": "sql", f"{DOMAIN}/identity": "x"}})).manifest
    assert made["metadata"]["annotations"][f"{DOMAIN}/report"] == "sql"
    assert f"{DOMAIN}/identity" not in made["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Load_Data.v2", "load-data-v2"),
        ("a" * 100, "a" * 63),
        ("--", "template"),
        ("nightly report", "nightly-report"),
        ("default", "default-work"),
    ],
)
def test_name_of_a_template_is_one_that_the_dispatcher_reads(name: str, expected: str) -> None:
    assert template_name(name) == expected


ODD: list[Any] = [None, "", "x", 3, True, [], [None], [3], {}, {"x": 3}, [{}], [[]]]


@pytest.mark.parametrize("name", CORPUS)
def test_odd_manifest_raises_nothing(name: str) -> None:
    for path in paths(manifest(name)):
        for odd in ODD:
            document = manifest(name)
            parent_of(document, path)[path[-1]] = copy.deepcopy(odd)
            found = adopt(document)
            assert isinstance(found, tuple | list)


def test_whole_job_keeps_its_pod() -> None:
    document = whole_job()
    made = adopted(document)
    kept = made.manifest["spec"]["template"]["spec"]
    theirs = {key: value for key, value in document["spec"]["template"]["spec"].items() if key != "restartPolicy"}
    assert kept == theirs
    assert AdoptedField(Did.KEPT, "spec.template.spec.volumes") in made.fields
