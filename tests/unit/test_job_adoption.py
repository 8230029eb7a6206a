"""Templates of Jobs: their count, their index, their failure rules and their metadata, of whatever kind they are."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dispatcher.commands.adoption import Did, Statement
from dispatcher.commands.pod_adoption import closed_parts
from dispatcher.jobs.fields import CAPABILITIES, KINDS, SELINUX_TYPES, SYSCTLS, dotted
from dispatcher.jobs.offered import why_unusable
from dispatcher.jobs.templates import judge_template
from dispatcher.model.launches import DOMAIN
from tests.rig.corpus import (
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
from tests.unit.adopting import adopted, told


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
        ([rule("FailIndex", "In", 1), rule("FailJob", "In", 1, 2)], "1-2"),
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
        (rule("Count", "In", 1), Did.LEFT_OUT, "every failure counts here"),
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


def test_rule_that_fails_a_job_ends_its_row_alone() -> None:
    policy = {"rules": [rule("FailJob", "In", 1), rule("FailIndex", "In", 2)]}
    found = job(completions=3, completionMode="Indexed", podFailurePolicy=policy)
    words = [(one.field, one.did, one.words) for one in adopted(found).fields if "podFailurePolicy" in one.field]
    assert words == [
        ("spec.podFailurePolicy.rules[0]", Did.OPEN, "the other rows go on: end them with batch_cancel"),
        ("spec.podFailurePolicy", Did.TRANSLATED, f"{DOMAIN}/final-codes: 1-2"),
    ]


def test_policy_of_a_command_of_exec_is_left_to_its_options() -> None:
    spec = pod(container(command=["dispatcher", "exec", "--", "run"]))
    found = told(job(spec, podFailurePolicy={"rules": [rule("FailJob", "In", 1)]}), "spec.podFailurePolicy.rules[0]")
    assert found == [(Did.OPEN, "`dispatcher exec --final CODES` says which statuses end the row")]


QUEUE = {"kueue.x-k8s.io/queue-name": "team-a"}
GROUP = {"kueue.x-k8s.io/pod-group-name": "g"}


@pytest.mark.parametrize(
    ("document", "field", "did", "words"),
    [
        (alone(labels=GROUP), "metadata.labels[kueue.x-k8s.io/pod-group-name]", Did.OPEN, "has one Pod"),
        (job(meta={"annotations": {"kueue.x-k8s.io/job-min-parallelism": "2"}}),
         "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]", Did.OPEN, "docs/kueue.md"),
        (alone(annotations={"scheduling.k8s.io/group-name": "g"}), "metadata.annotations[scheduling.k8s.io/group-name]",
         Did.OPEN, "one by one"),
        (alone(annotations={"yunikorn.apache.org/task-group-name": "g"}),
         "metadata.annotations[yunikorn.apache.org/task-group-name]", Did.OPEN, "one by one"),
        (job(suspend=True, meta={"labels": QUEUE}), "spec.suspend", Did.LEFT_OUT, "Kueue suspends each Job itself"),
        (cron_job() | {"metadata": {"labels": QUEUE}}, "metadata.labels[kueue.x-k8s.io/queue-name]", Did.MOVED,
         "metadata.labels of the template"),
        (cron_job() | {"metadata": {"annotations": {"argocd.argoproj.io/hook": "Sync"}}},
         "metadata.annotations[argocd.argoproj.io/hook]", Did.OPEN, "a release"),
        (workflow(step()) | {"metadata": {"annotations": {"argocd.argoproj.io/hook": "Sync"}}},
         "metadata.annotations[argocd.argoproj.io/hook]", Did.OPEN, "a release"),
        (workflow(step()) | {"metadata": {"labels": QUEUE}}, "metadata.labels[kueue.x-k8s.io/queue-name]", Did.OPEN,
         "into metadata.labels of the templates"),
        (job(meta={"labels": {"applyset.kubernetes.io/part-of": "a"}}),
         "metadata.labels[applyset.kubernetes.io/part-of]", Did.LEFT_OUT, ""),
        (alone(labels={"kapp.k14s.io/app": "1"}), "metadata.labels[kapp.k14s.io/app]", Did.LEFT_OUT, ""),
        (job(meta={"annotations": {"argocd.argoproj.io/tracking-id": "a"}}),
         "metadata.annotations[argocd.argoproj.io/tracking-id]", Did.LEFT_OUT, ""),
        (alone(annotations={"k8s.ovn.org/pod-networks": "a"}), "metadata.annotations[k8s.ovn.org/pod-networks]",
         Did.LEFT_OUT, ""),
        (job(meta={"labels": {"kueue.x-k8s.io/max-exec-time-seconds": "60"}}),
         "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]", Did.OPEN, "timeout-seconds"),
        (job(meta={"annotations": {"janitor/ttl": "2d"}}), "metadata.annotations[janitor/ttl]", Did.OPEN,
         "would run again"),
        (job(meta={"annotations": {"secret.reloader.stakater.com/reload": "db"}}),
         "metadata.annotations[secret.reloader.stakater.com/reload]", Did.OPEN, "Reloader would start it again"),
        (job(meta={"annotations": {"reloader.stakater.com/ignore": "true"}}),
         "metadata.annotations[reloader.stakater.com/ignore]", Did.KEPT, ""),
        (job(meta={"labels": {"app.kubernetes.io/instance": "shop"}}), "metadata.labels[app.kubernetes.io/instance]",
         Did.LEFT_OUT, "by it Argo CD deletes"),
        (alone(labels={"app.kubernetes.io/instance": "shop"}), "metadata.labels[app.kubernetes.io/instance]", Did.KEPT,
         ""),
        (cron_job() | {"metadata": {"labels": {"app": "a"}}}, "metadata.labels.app", Did.LEFT_OUT, "the CronJob's"),
        (job(meta={"labels": "app=a"}), "metadata.labels", Did.OPEN, "no object of texts"),
        (job() | {"metadata": {"generateName": "load-"}}, "metadata.generateName", Did.MOVED,
         "the name of the template: load"),
    ],
)  # fmt: skip
def test_metadata_has_its_like(document: dict[str, Any], field: str, did: Did, words: str) -> None:
    assert [one for one in told(document, field) if one[0] is did and words in one[1]], adopted(document).fields


@pytest.mark.parametrize("document", [alone(labels=QUEUE), cron_job() | {"metadata": {"labels": QUEUE}}])
def test_queue_of_kueue_is_a_label_of_the_job(document: dict[str, Any]) -> None:
    made = adopted(document).manifest
    assert (made["metadata"]["labels"], "metadata" in made["spec"]["template"]) == (QUEUE, False)


def test_annotations_of_the_dispatcher_win_wherever_they_stand() -> None:
    """Those of the Job before those of its CronJob."""
    document = cron_job(of_job={"backoffLimit": 4})
    own = {f"{DOMAIN}/max-failures": "2", f"{DOMAIN}/timeout-seconds": "60"}
    document["metadata"] |= {"annotations": own}
    document["spec"]["jobTemplate"]["metadata"] = {"name": "x", "annotations": {f"{DOMAIN}/timeout-seconds": "30"}}
    made = adopted(document).manifest["metadata"]["annotations"]
    assert made == made | {f"{DOMAIN}/max-failures": "2", f"{DOMAIN}/timeout-seconds": "30"}
    words = {one.field: (one.did, one.words) for one in adopted(document).fields}
    assert words[f"metadata.annotations[{DOMAIN}/timeout-seconds]"] == (Did.LEFT_OUT, "that of the Job counts")
    assert words["spec.jobTemplate.spec.backoffLimit"] == (Did.LEFT_OUT, f"its own {DOMAIN}/max-failures counts")
    assert words["metadata.name"] == (Did.MOVED, "the name of the template")
    assert words["spec.jobTemplate.metadata.name"] == (Did.LEFT_OUT, "each Job gets a name of its own")
    pod_alone = adopted(alone(annotations={f"{DOMAIN}/max-failures": "2"})).manifest
    assert why_unusable(judge_template("alone", pod_alone)) == ""
    assert pod_alone["metadata"]["annotations"][f"{DOMAIN}/max-failures"] == "2"


@pytest.mark.parametrize(
    ("name", "statements"),
    [
        ("completions", [("queue", {"count": 2}), ("rows", {"template": "load", "count": 5})]),
        ("indexed", [("queue", {"count": 1}), ("indexed_rows", {"template": "load", "count": 4})]),
        ("parallel", [("rows", {"template": "load", "count": 3})]),
        ("cron forbids", [("one_at_a_time", {"template": "nightly"})]),
        ("cron", [("again", {"template": "nightly"})]),
        ("scaled cap", [("queue", {"count": 20}), ("row", {"template": "scaled"})]),
        ("scaled", [("queue", {"count": 100}), ("row", {"template": "scaled"})]),
        ("plain", []),
    ],
)
def test_rows_to_insert_are_shown(name: str, statements: list[tuple[str, dict[str, object]]]) -> None:
    assert [(one.file, one.values) for one in adopted(manifest(name)).statements] == statements


def test_index_needs_the_own_list_of_what_rows_may_set() -> None:
    document = job(completions=3, completionMode="Indexed", meta={"annotations": {f"{DOMAIN}/row-may-set": "cpu"}})
    assert (Did.OPEN, f"add env.JOB_COMPLETION_INDEX to its own {DOMAIN}/row-may-set") in told(
        document, "spec.completionMode"
    )
    document["metadata"]["annotations"][f"{DOMAIN}/row-may-set"] = "cpu, env.JOB_COMPLETION_INDEX"
    assert told(document, "spec.completionMode") == [(Did.LEFT_OUT, f"its own {DOMAIN}/row-may-set counts")]


def test_secrets_of_a_store_close_all_variables_to_rows() -> None:
    store = {"driver": "secrets-store.csi.k8s.io", "volumeAttributes": {"secretProviderClass": "keys"}}
    annotations = adopted(job(pod(volumes=[{"name": "keys", "csi": store}]))).manifest["metadata"]["annotations"]
    assert annotations[f"{DOMAIN}/row-may-set"] == ""


@pytest.mark.parametrize(
    ("spec", "meta", "names"),
    [
        (pod(), {"annotations": {"vault.hashicorp.com/agent-inject": "true"}},
         "vault.hashicorp.com/agent-inject (annotation)"),
        (pod(volumes=[{"name": "aws", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]),
         {"labels": {"azure.workload.identity/use": "true"}},
         "aws (serviceAccountToken), azure.workload.identity/use (label)"),
    ],
)  # fmt: skip
def test_tokens_and_what_a_webhook_brings_close_all_variables_to_rows(
    spec: dict[str, Any], meta: dict[str, Any], names: str
) -> None:
    found = adopted(alone(spec, **meta))
    assert found.manifest["metadata"]["annotations"][f"{DOMAIN}/row-may-set"] == ""
    assert [one.words for one in found.fields if f"because it has Secret {names}: a row" in one.words]


def test_claim_of_another_namespace_is_left_to_a_person() -> None:
    """A Job that finds an empty volume there may well succeed."""
    spec = pod(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}])
    words = "claim c and its data stay in prod: in another namespace, a new claim is empty"
    assert told(alone(spec, namespace="prod"), "spec.volumes[0]") == [(Did.OPEN, words)]
    assert told(alone(spec), "spec.volumes[0]") == []


def test_container_that_was_restarted_in_its_pod_loses_its_scratch_space() -> None:
    """A program that goes on from a checkpoint in an emptyDir begins anew."""
    words = "a new Pod each time, as max_failures says"
    for volumes, blank in (([{"name": "a", "emptyDir": {}}], ", with a blank emptyDir"), ([{"name": "a"}], "")):
        found = told(job(pod(restartPolicy="OnFailure", volumes=volumes)), "spec.template.spec.restartPolicy")
        assert found == [(Did.TRANSLATED, f"{words}{blank}")]


ONCE: dict[str, Any] = {"completionMode": "Indexed", "completions": 1, "parallelism": 1}
NOTE = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}


@pytest.mark.parametrize("made", [lambda spec: job(spec, **ONCE), lambda spec: cron_job(spec, of_job=ONCE),
                                  lambda spec: scaled_job(spec, of_job=ONCE)])  # fmt: skip
def test_only_index_of_a_job_is_in_its_template(made: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """As in each Pod of an Indexed Job, be there one or many."""
    env = [{"name": "RANK", "value": "$(JOB_COMPLETION_INDEX)"}, {"name": "SHARD", "valueFrom": NOTE}]
    files = {"name": "files", "downwardAPI": {"items": [{"path": "index", **NOTE}]}}
    first = [{"name": "i", "image": "i", "env": [{"name": "JOB_COMPLETION_INDEX", "valueFrom": NOTE}, 7]},
             {"name": "j", "image": "j", "env": "odd"}]  # fmt: skip
    found = adopted(made(pod(container(env=env), initContainers=first, volumes=[files], subdomain="all")))
    spec = found.manifest["spec"]["template"]["spec"]
    index = {"name": "JOB_COMPLETION_INDEX", "value": "0"}
    assert spec["containers"][0]["env"] == [index, env[0], {"name": "SHARD", "value": "0"}]
    assert [one["env"] for one in spec["initContainers"]] == [[index, 7], "odd"]
    words = {re.sub(r".*(spec|jobTargetRef)[.]", "", one.field): (one.did, one.words) for one in found.fields}
    assert words["completionMode"] == (Did.TRANSLATED, "JOB_COMPLETION_INDEX: 0 in each container")
    assert words["containers[0].env[1]"] == words["initContainers[0].env[0]"] == (Did.TRANSLATED, "its value is 0")
    assert (words["volumes[0]"][0], words["subdomain"][0]) == (Did.OPEN, Did.OPEN)
    assert "let the program read JOB_COMPLETION_INDEX" in words["volumes[0]"][1]


def test_variable_of_no_index_stays() -> None:
    made = adopted(job(pod(container(env=[{"name": "SHARD", "valueFrom": NOTE}])))).manifest["spec"]["template"]["spec"]
    assert made["containers"][0]["env"] == [{"name": "SHARD", "valueFrom": NOTE}]


JOB_FIELDS: dict[str, list[Any]] = {
    "activeDeadlineSeconds": [60], "backoffLimit": [2], "backoffLimitPerIndex": [2], "completions": [0, 1, 3, "x"],
    "completionMode": ["Indexed", "NonIndexed"], "managedBy": ["x/y"], "manualSelector": [True, False],
    "maxFailedIndexes": [1], "parallelism": [0, 1, 3, "x"], "podReplacementPolicy": ["Failed", "TerminatingOrFailed"],
    "podFailurePolicy": [{}, {"rules": [rule("Count", "In", 1)]}, {"rules": [rule("FailJob", "In", 1)]}],
    "selector": [{"matchLabels": {"a": "b"}}], "successPolicy": [{"rules": []}], "suspend": [True, False],
    "ttlSecondsAfterFinished": [60],
}  # fmt: skip


def test_each_field_of_a_job_has_one_word() -> None:
    """Of what the API server knows, alone and beside others."""
    known = KINDS["JobSpec"].needed.keys() | KINDS["JobSpec"].others.keys()
    assert known - {"template"} == JOB_FIELDS.keys()
    others: list[dict[str, Any]] = [
        {}, {"completions": 5}, {"completions": 1}, {"completions": 3, "parallelism": 2, "completionMode": "Indexed"},
    ]  # fmt: skip
    for (field, values), beside in itertools.product(JOB_FIELDS.items(), others):
        for value in values:
            places = [one.field for one in adopted(job(**{**beside, field: value})).fields]
            found = [place for place in places if re.match(rf"spec\.{field}\b", place)]
            assert len(found) == len({*found}) > 0, (field, value, beside, found)


def test_cron_job_of_an_indexed_job_inserts_all_its_rows() -> None:
    found = adopted(cron_job(of_job={"completions": 5, "completionMode": "Indexed"}))
    rows = Statement("indexed_rows", {"template": "nightly", "count": 5}, has_own_queue=True)
    assert (found.in_time, found.statements[-1]) == (rows, rows)
    assert adopted(cron_job(schedule=None)).in_time is None


def test_names_that_the_chart_closes_are_told() -> None:
    """Rows of an adopted template would be refused by the admission policy, where nobody looks for the cause."""
    pod = {
        "serviceAccountName": "vacuum", "imagePullSecrets": [{"name": "registry"}],
        "containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "pg"}}]}],
        "volumes": [{"name": "v", "configMap": {"name": "vac"}}],
    }  # fmt: skip
    ((path, words),) = closed_parts(pod, ("spec",))
    assert path == ("spec",)
    assert words.endswith("configMaps: [vac], secrets: [pg, registry], serviceAccounts: [vacuum]")
    usual = {"serviceAccountName": "default", "schedulerName": "default-scheduler", "volumes": [{"emptyDir": {}}]}
    assert list(closed_parts(usual, ("spec",))) == []


def test_parts_that_the_chart_closes_are_told() -> None:
    """A list opens them for the template alone, or nothing does. A list for all would open them to other teams."""
    context = {"privileged": True, "capabilities": {"add": ["SYS_ADMIN", "CHOWN"]}, "procMount": "Unmasked"}
    pod = {
        "priorityClassName": "high", "runtimeClassName": "gvisor", "schedulerName": "volcano", "hostNetwork": True,
        "containers": [{"name": "c", "securityContext": context, "ports": [{"hostPort": 80}, {"containerPort": 1}]}],
        "volumes": [
            {"name": "a", "hostPath": {"path": "/data"}}, {"name": "b", "nfs": {"server": "s"}, "csi": None},
            {"name": "c", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}, {"secret": {}}]}},
            {"name": "d", "hostPath": {"path": "//"}},
        ],
        "securityContext": {
            "seLinuxOptions": {"type": "container_t"}, "sysctls": [{"name": "net.core.somaxconn", "value": "1024"}],
        },
    }  # fmt: skip
    told = [(dotted(path), words.partition(" of the chart")) for path, words in closed_parts(pod, ("spec",))]
    assert [(path, after or before) for path, (before, _, after) in told] == [
        ("spec", ": " + ", ".join((
            "capabilities: [SYS_ADMIN]", "hostPathPrefixes: [/data]", "hostPorts: [80]", "priorityClasses: [high]",
            "privileged: true", "runtimeClasses: [gvisor]", "schedulers: [volcano]", "volumeKinds: [nfs]",
        ))),
        ("spec.hostNetwork", " lets no Job have it"),
        ("spec.containers[0].securityContext.procMount", " lets no Job have it"),
        ("spec.volumes[3].hostPath", " lets no Job have it"),
        ("spec.securityContext.sysctls", " lets no Job have it"),
        ("spec.volumes[2]", " wants a ServiceAccount for it: name one"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["kube-api-access-x7k2m", "default-token-b9wqz"])
def test_token_that_the_api_server_gave_an_exported_pod_is_left_out(name: str) -> None:
    """Each Pod gets its own. The policy of the chart refuses the old one, and its Secret may not be there."""
    token = {"name": name, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
    own, data = {"name": "data", "mountPath": "/data"}, {"name": "data", "emptyDir": {}}
    spec = pod(
        container(volumeMounts=[own, token]), initContainers=[{"name": "i", "image": "i", "volumeMounts": [token]}],
        volumes=[data, {"name": name, "secret": {"secretName": name}}],
    )  # fmt: skip
    made = adopted(alone(spec)).manifest["spec"]["template"]["spec"]
    assert made["volumes"] == [data]
    assert made["containers"][0]["volumeMounts"] == [own]
    assert made["initContainers"] == [{"name": "i", "image": "i"}]
    assert told(alone(spec), "spec.volumes[1]") == [(Did.LEFT_OUT, "the API server mounts it in each Pod")]
    elsewhere = pod(container(volumeMounts=[{**token, "mountPath": "/token"}]), volumes=[{"name": name}])
    assert adopted(alone(elsewhere)).manifest["spec"]["template"]["spec"]["volumes"] == [{"name": name}]


def test_name_with_a_digest_of_its_content_is_told() -> None:
    """kustomize names the next content otherwise, and prunes this one: Pods of the template would wait for it."""
    maps = [{"configMapRef": {"name": name}} for name in ("etl-8564k45km9", "etl-8564k45km0", "8564k45km9")]
    found = adopted(job(pod(container(envFrom=maps)))).fields
    assert [one.words.partition(" another name")[0] for one in found if "kustomize" in one.words] == [
        "kustomize gives ConfigMap etl-8564k45km9"
    ]


def test_variable_of_the_contract_is_not_told_to_be_written() -> None:
    """A template that writes POD_NAMESPACE is refused."""
    ((_, words),) = told(alone(pod(container(env=[SPACE])), namespace="app"), "spec.containers[0].env[0]")
    assert "let it read app from a variable of another name" in words


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("curl -sf http://api:8080/run", "api"), ("postgres://me:$(PASSWORD)@db/x", "db"),
        ("$(REDIS_CACHE_SERVICE_HOST):1", "redis-cache"), ("$(KUBERNETES_SERVICE_HOST)", ""),
        ("--redis=redis:6379", "redis"), ("kafka:9092", "kafka"), ("http://web", "web"),
        ("jdbc:postgresql://db:5432/x", "db"),
        ("http://api.prod:80", ""), ("http://localhost:80", ""), ("s3://bucket/x", ""), ("python:3", ""),
        ("--year=y:2024", ""), ("http://$(HOST)/", ""), ("at 10:3000", ""),
        ("registry:5000/app", ""), ("localhost:5432", ""),
    ],
)  # fmt: skip
def test_service_that_a_pod_calls_in_its_namespace_is_told(text: str, host: str) -> None:
    """A name without a namespace is another one, or none, in the namespace of the dispatcher's Jobs."""
    words = [f"{host} looks like a Service of its own namespace: in another one, call {host}.prod"] * bool(host)
    for spec, place in (
        (container(args=["-x", text]), "args[1]"),
        (container(env=[{"name": "URL", "value": text}]), "env[0].value"),
    ):
        assert [one for _, one in told(alone(pod(spec), namespace="prod"), f"spec.containers[0].{place}")] == words
        assert told(alone(pod(spec)), f"spec.containers[0].{place}") == []


@pytest.mark.parametrize(("value", "is_told"), [("redis", True), ("redis.prod", False), ("localhost", False)])
def test_variable_of_a_host_is_read_as_one(value: str, is_told: bool) -> None:
    env = [{"name": "REDIS_HOST", "value": value}, {"name": "A_HOST"}, {"name": "HOST_MODE", "value": "redis"}]
    found = adopted(alone(pod(container(env=env)), namespace="prod")).fields
    assert [one.field for one in found if "looks like" in one.words] == ["spec.containers[0].env[0].value"] * is_told


def test_policy_of_the_chart_allows_what_baseline_does() -> None:
    """`adopt` and the doctor say so. The sysctls of two buffers came with Kubernetes 1.32."""
    policy = Path("deploy/chart/templates/policy.yaml").read_text(encoding="utf-8")
    for allowed in (SYSCTLS, SELINUX_TYPES, CAPABILITIES):
        assert [name for name in sorted(allowed) if not re.search(rf"""['"]{name}['"]""", policy)] == []
