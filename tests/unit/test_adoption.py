"""Templates of other systems' manifests: what each field becomes. The API server compares them in tests/contract."""

import copy
from typing import Any

import pytest

from dispatcher.commands.adopt import adopt
from dispatcher.commands.adoption import AdoptedField, Did, Statement, template_name
from dispatcher.commands.manifests import inserting_cron_job, inserting_name
from dispatcher.jobs.fields import dotted
from dispatcher.jobs.offered import why_unusable
from dispatcher.jobs.templates import judge_template
from dispatcher.model.launches import DOMAIN
from tests.rig.corpus import (
    CORPUS,
    MOUNT,
    PROXY,
    SPACE,
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
from tests.unit.adopting import adopted, told


def annotations(name: str) -> dict[str, str]:
    found: dict[str, str] = adopted(manifest(name)).manifest["metadata"]["annotations"]
    return {key.removeprefix(f"{DOMAIN}/"): value for key, value in found.items()}


def test_corpus_has_sixty_manifests() -> None:
    assert len(CORPUS) >= 60


@pytest.mark.parametrize("name", CORPUS)
def test_adopted_template_is_accepted(name: str) -> None:
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
def test_terms_of_a_manifest_become_annotations(name: str, expected: dict[str, str]) -> None:
    assert annotations(name) == annotations(name) | expected


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


def test_cron_trigger_goes_on_in_a_cron_job_that_inserts_the_rows() -> None:
    def cron(start: str, desired: str) -> dict[str, Any]:
        more = {"timezone": "Asia/Kolkata", "end": "0 8 * * *", "desiredReplicas": desired}
        return {"type": "cron", "metadata": {"start": start, **more}}

    found = adopted(scaled_job(triggers=[cron("0 6 * * *", "9"), cron("0 22 * * *", "1")]))
    assert found.schedule == {"schedule": "0 6 * * *", "timeZone": "Asia/Kolkata"}
    assert found.in_time == Statement("rows", {"template": "scaled", "count": 9}, has_own_queue=True)
    first, second = (one.words for one in found.fields if one.field.startswith("spec.triggers"))
    assert first.startswith("the CronJob below inserts 9 rows at 0 6 * * * in Asia/Kolkata: give it a login")
    assert first.endswith("KEDA kept 9 Jobs running until 0 8 * * *: insert as many rows as there is work")
    assert second.startswith("write a second CronJob as the one below, for a row at 0 22 * * * in Asia/Kolkata. KEDA")
    several = adopted(scaled_job(of_job={"completions": 6}, triggers=[cron("0 6 * * *", "9")])).in_time
    assert several == Statement("rows", {"template": "scaled", "count": 54}, has_own_queue=True)
    assert adopted(scaled_job(triggers=[cron("@daily", "x")])).in_time == Statement(
        "row", {"template": "scaled"}, has_own_queue=True
    )


def test_times_of_a_cron_job_without_a_schedule_are_left_to_a_person() -> None:
    document = cron_job(timeZone="Asia/Tokyo", suspend=True, schedule="")
    assert (adopted(document).in_time, told(document, "spec.schedule")) == (None, [(Did.OPEN, "it says no time")])
    assert told(document, "spec.timeZone") == [(Did.OPEN, "its times are those of Asia/Tokyo")]


def test_cron_jobs_of_long_names_are_two() -> None:
    """The second apply would end the first schedule."""
    names = [inserting_name(f"{'a' * 44}-{last}") for last in ("x", "y")]
    assert len({*names}) == 2
    several = {inserting_name(name, number) for name in ("a", "a-2", "2-a", "a" * 63) for number in (1, 2)}
    assert len(several) == 8, "no schedule of a template takes the place of another one"
    assert all(len(name) <= 52 and name.startswith(f"insert-{'a' * 36}-") for name in names)


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


MANAGER = "app.kubernetes.io/managed-by"
READS_MANAGER = {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{MANAGER}']"}}}
READS_A_LOST_LABEL = {"metadata": {"labels": {MANAGER: "x"}}, "spec": pod(container(env=[READS_MANAGER]))}


@pytest.mark.parametrize(
    ("document", "field", "did", "words"),
    [
        (job(suspend=True), "spec.suspend", Did.OPEN, "paused_until"),
        (job(podReplacementPolicy="TerminatingOrFailed"), "spec.podReplacementPolicy", Did.LEFT_OUT,
         "the API server's default"),
        (job(manualSelector=True), "spec.manualSelector", Did.OPEN, "False here"),
        (job(parallelism=0), "spec.parallelism", Did.OPEN, "paused"),
        (job(activeDeadlineSeconds="60"), "spec.activeDeadlineSeconds", Did.OPEN, "no whole number"),
        (job(activeDeadlineSeconds=-1), "spec.activeDeadlineSeconds", Did.OPEN, "above 0"),
        (
            job(template=READS_A_LOST_LABEL),
            "spec.template.spec.containers[0].env[0].valueFrom.fieldRef.fieldPath", Did.OPEN, "would be blank",
        ),
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
        (cron_job(of_job={"completions": 3}), "spec.schedule", Did.OPEN, "inserts 3 rows at 0 3 * * *"),
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
        (job(completions=5, parallelism=2), "spec.parallelism", Did.TRANSLATED, "max_jobs: 2, of a queue of its own"),
        (job(completions=5), "spec.parallelism", Did.TRANSLATED, "max_jobs: 1, of a queue of its own, the default"),
        (job(completions=5, parallelism=5), "spec.parallelism", Did.LEFT_OUT, "all rows may run at once"),
        (job(completions=5, parallelism=0), "spec.parallelism", Did.OPEN, "max_jobs: 0, of a queue of its own: raise"),
        (job(completions=5, backoffLimit=3), "spec.backoffLimit", Did.TRANSLATED,
         "max-failures: 4, for each row; it was for all together"),
        (scaled_job(of_job={"completions": 6, "parallelism": 3}, maxReplicaCount=4), "spec.maxReplicaCount",
         Did.TRANSLATED, "max_jobs: 12, for 4 Jobs of 3 Pods"),
        (scaled_job(of_job={"completions": 6, "parallelism": 3}), "spec.jobTargetRef.parallelism", Did.TRANSLATED,
         "3 Pods of each Job count in queues.max_jobs"),
        (job(completions="5"), "spec.completions", Did.OPEN, "no whole number"),
        (job(backoffLimit="5"), "spec.backoffLimit", Did.OPEN, "no whole number"),
        (job(backoffLimit=-1), "spec.backoffLimit", Did.OPEN, "no whole number"),
        (job(pod(beside=({"name": "b", "image": "b"},))), "spec.template.spec.containers", Did.OPEN, "is work the one"),
        (job(pod(schedulerName="v")), "spec.template.spec.schedulerName", Did.KEPT, "SCHEDULER_NAME"),
        (
            job(pod(container(env=[{"name": "TASK_ID", "value": "x"}]))),
            "spec.template.spec.containers[0].env[0]", Did.OPEN, "give it another one",
        ),
        (manifest("index by its note"), "spec.template.spec.containers[0].env[0]", Did.TRANSLATED, "of the row has it"),
        (manifest("index by its note"), "spec.template.spec.containers[0].env[1]", Did.TRANSLATED,
         "its value is $(JOB_COMPLETION_INDEX)"),
        (cron_job(concurrencyPolicy="Replace"), "spec.concurrencyPolicy", Did.OPEN,
         "the new row is dropped, and the old one goes on: end that by dispatch.task_cancel"),
        (cron_job(concurrencyPolicy="Odd"), "spec.concurrencyPolicy", Did.OPEN, "'Odd' is not known"),
        (cron_job(of_job={"completions": 3}, concurrencyPolicy="Replace"), "spec.concurrencyPolicy", Did.OPEN,
         "dispatch.batch_cancel first"),
        (cron_job(of_job={"completions": 3}, concurrencyPolicy="Allow"), "spec.concurrencyPolicy", Did.LEFT_OUT,
         "so anyway"),
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
        (scaled_job(), "spec.triggers[0]", Did.OPEN, "a message of rabbitmq (queueName: q) or instead"),
        (scaled_job(triggers=[{"type": "kafka", "metadata": {
            "topic": "t", "password": "p", "passwordFromEnv": "PW", "host": "amqp://u:p@h", "sasl": "x"}}]),
         "spec.triggers[0]", Did.OPEN, "kafka (topic: t, password: …, passwordFromEnv: PW, host: …, sasl: …) or"),
        (scaled_job(triggers=[{"type": "postgresql", "metadata": {"query": "SELECT 1"}}]), "spec.triggers[0]", Did.OPEN,
         "whoever writes the rows that postgresql (query: SELECT 1) counts inserts"),
        (scaled_job(triggers=[{"type": "cpu"}]), "spec.triggers[0]", Did.OPEN, "cpu is a number"),
        (alone(pod(container(name="base"))), "spec.containers", Did.OPEN, "spec.args of a row"),
        (alone(pod(container(name="base"))), "spec.containers", Did.OPEN, "max-failures: n + 1"),
        (workflow(step(when="x")), "spec.templates[0].when", Did.OPEN, "only if this holds"),
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
        (manifest("CronWorkflow with one step first"), "spec.when", Did.OPEN, "into the INSERT"),
        (manifest("workflow volumes"), "spec.volumes", Did.KEPT, "mounts them"),
        (manifest("step of its own labels"), "spec.podMetadata", Did.KEPT, "says otherwise"),
        (manifest("CronWorkflow that forbids"), "spec.when", Did.OPEN, "into the INSERT"),
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
        (alone(pod(ephemeralContainers=[{"name": "debugger", "image": "a"}])), "spec.ephemeralContainers", Did.LEFT_OUT,
         "to a Pod that ran"),
        (alone(pod(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])), "spec.schedulingGates", Did.LEFT_OUT,
         "docs/kueue.md"),
        (job(backOffLimit=2), "spec.backOffLimit", Did.OPEN, "it is not known here: is it backoffLimit?"),
        (alone(pod(priority=0)), "spec.priority", Did.LEFT_OUT, "from priorityClassName"),
        (job(pod(preemptionPolicy="Never")), "spec.template.spec.preemptionPolicy", Did.LEFT_OUT, "from priorityClass"),
        (job(pod(schedulingGroup={"podGroupName": "g"})), "spec.template.spec.schedulingGroup", Did.OPEN, "one by one"),
        *((alone(pod(container(name="base", image=image))), "spec.containers[0].image", Did.OPEN, "Airflow gives the")
          for image in ("dummy_image", "dummy-image", "dummy_image:latest")),
        (job(pod(subdomain="all"), completions=3, completionMode="Indexed"),
         "spec.template.spec.subdomain", Did.OPEN, "find each other"),
        *((job(pod(container(image=image))), "spec.template.spec.containers[0].image", Did.OPEN, "nobody fills in")
          for image in ("{{ .Values.image }}", "${REGISTRY}/app:1", "<IMAGE>", "https://reg.example/x:1", " a", "A B")),
    ],
)  # fmt: skip
def test_field_that_is_left_to_a_person_or_kept_is_told(
    document: dict[str, Any], field: str, did: Did, words: str
) -> None:
    assert [one for one in told(document, field) if one[0] is did and words in one[1]], adopted(document).fields


NEAR = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}


@pytest.mark.parametrize(
    ("term", "meta", "is_told"),
    [
        (NEAR, {"namespace": "app"}, True),
        (NEAR, {}, False),
        ({**NEAR, "namespaces": ["app"]}, {"namespace": "app"}, False),
        ({**NEAR, "namespaceSelector": {}}, {"namespace": "app"}, False),
        (NEAR, {"namespace": "app", "labels": {"app": "db"}}, False),
    ],
)
def test_pod_that_looks_at_others_of_its_namespace_is_told(
    term: dict[str, Any], meta: dict[str, Any], is_told: bool
) -> None:
    affinity = {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]
        },
    }
    found = [one.field for one in adopted(alone(pod(affinity=affinity), **meta)).fields if "[app]" in one.words]
    assert found == is_told * [
        "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]",
        "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm",
    ]


def test_program_that_reads_its_namespace_is_told_of_another_one() -> None:
    place = "spec.initContainers[0].env[0]"
    spec = pod(initContainers=[container(name="first", env=[SPACE])])
    assert [one.did for one in adopted(alone(spec)).fields if one.field == place] == []
    words = "it is the namespace of the dispatcher's Jobs: write app, if the program works on that"
    assert told(alone(spec, namespace="app"), place) == [(Did.OPEN, words)]


def test_gate_of_another_controller_stays() -> None:
    gates = [{"name": "kueue.x-k8s.io/admission"}, {"name": "example.com/quota"}]
    made = adopted(alone(pod(schedulingGates=gates, ephemeralContainers=[{"name": "d"}]))).manifest["spec"]["template"]
    assert (made["spec"]["schedulingGates"], "ephemeralContainers" in made["spec"]) == (gates[1:], False)


@pytest.mark.parametrize(
    ("words", "reports"),
    [
        ({"args": ["python3", "-m", "dispatcher", "exec"]}, True),
        ({"command": ["/dispatcher/bin/dispatcher", "exec", "--"]}, True),
        ({"env": [{"name": "TASK_DATABASE_URL", "value": "x"}]}, True),
        ({}, False),
    ],
)
def test_container_that_can_report_needs_no_exit_code(words: dict[str, Any], reports: bool) -> None:
    made = adopted(job(pod({"name": "w", "image": "i", **words}))).manifest["metadata"]["annotations"]
    assert (f"{DOMAIN}/report" not in made) is reports


def test_container_that_works_is_the_one_that_the_author_names() -> None:
    """In a Job each container has to exit 0. Here the status of the task's container counts."""
    document = job(pod(PROXY, beside=(container(),)))
    document["spec"]["template"]["metadata"] = {"annotations": {"kubectl.kubernetes.io/default-container": "work"}}
    made = adopted(document)
    assert made.manifest["metadata"]["annotations"][f"{DOMAIN}/container"] == "work"
    (words,) = (words for did, words in told(document, "spec.template.spec.containers") if did is Did.OPEN)
    assert words == (
        "only the status of work counts, where each container had to exit 0: a helper belongs into initContainers, with"
        " restartPolicy Always"
    )
    assert not [one for one in adopted(workflow(step(sidecars=[PROXY]))).fields if "only the status" in one.words]


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


def test_blank_field_that_is_not_known_is_nothing() -> None:
    assert not [one for one in adopted(cron_job(odd=None)).fields if "odd" in one.field]


def test_items_that_are_no_objects_stay_for_the_check_of_the_template() -> None:
    own = container(env=[{"name": "A", "value": "b"}, "B=2"])
    spec = pod(own, initContainers={"name": "x"}) | {"containers": [own, "sidecar"]}
    made = adopted(job(spec)).manifest["spec"]["template"]["spec"]
    assert made["initContainers"] == {"name": "x"}
    assert made["containers"][1:] == ["sidecar"]
    assert made["containers"][0]["env"] == [{"name": "A", "value": "b"}, "B=2"]


MINE: dict[str, Any] = {"valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}}
FILES: dict[str, Any] = {"projected": {"sources": [{"secret": {"name": "tls"}}]}}
LOGIN: dict[str, Any] = {"valueFrom": {"secretKeyRef": {"name": "tasks", "key": "TASK_DATABASE_URL"}}}


@pytest.mark.parametrize(
    ("spec", "more", "opened", "names"),
    [
        (pod(container(env=[{"name": "PASSWORD", **MINE}])), {}, "", "db"),
        (pod(container(envFrom=[{"configMapRef": {"name": "c"}}, {"secretRef": {"name": "all"}}])), {}, "", "all"),
        (pod(volumes=[{"name": "a", "secret": {"secretName": "key"}}, {"name": "b", **FILES}]), {}, "", "key, tls"),
        (pod(container(env=[{"name": "PASSWORD", **MINE}])), {"completions": 3, "completionMode": "Indexed"},
         "env.JOB_COMPLETION_INDEX", "db"),
        (pod(container(env=[{"name": "TASK_DATABASE_URL", **LOGIN}]), imagePullSecrets=[{"name": "p"}]), {}, None, ""),
    ],
)  # fmt: skip
def test_rows_may_set_only_what_they_have_to_beside_a_secret(
    spec: dict[str, Any], more: dict[str, Any], opened: str | None, names: str
) -> None:
    """`render` warns of every open variable next to a Secret: it may turn the program against it."""
    found = adopted(job(spec, **more))
    assert found.manifest["metadata"]["annotations"].get(f"{DOMAIN}/row-may-set") == opened
    words = [one.words for one in found.fields if one.did is Did.TRANSLATED and "row-may-set" in one.words]
    shown = opened or "''"
    rule = f"{DOMAIN}/row-may-set: {shown}, because it has Secret {names}: a row may set no other variable"
    assert words == ([] if opened is None else [rule])


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
    ours = {"restartPolicy", "preemptionPolicy"}
    theirs = {key: value for key, value in document["spec"]["template"]["spec"].items() if key not in ours}
    assert kept == theirs
    assert AdoptedField(Did.KEPT, "spec.template.spec.volumes") in made.fields
