"""Manifests as teams bring them: a few plain ones of each kind, and each with one habit that real ones have."""

import copy
from typing import Any, Final

Json = dict[str, Any]
ME: Final = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}
SPACE: Final = {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
SECRET: Final = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
PROXY: Final = {"name": "proxy", "image": "proxy:1"}
MOUNT: Final[Json] = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
CLAIM: Final[Json] = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]}
GPU: Final[Json] = {"resources": {"limits": {"nvidia.com/gpu": 1, "memory": "8Gi"}, "requests": {"cpu": "500m"}}}
ON_EXIT: Final = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}
EXPORTED: Final = {"controller-uid": "u", "batch.kubernetes.io/job-name": "x", "app": "a"}


def container(**more: Any) -> Json:
    return {"name": "work", "image": "registry.example/work:1", "command": ["run"], "args": ["--all"], **more}


def pod(main: Json | None = None, *, beside: tuple[Json, ...] = (), **more: Any) -> Json:
    return {"containers": [main or container(), *beside], "restartPolicy": "Never", **more}


def job(spec: Json | None = None, *, name: str = "load", meta: Json | None = None, **more: Any) -> Json:
    parts = {"template": {"spec": spec or pod()}, **more}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, **(meta or {})}, "spec": parts}


def cron_job(spec: Json | None = None, *, of_job: Json | None = None, **more: Any) -> Json:
    inner = {"spec": {"template": {"spec": spec or pod(restartPolicy="OnFailure")}, **(of_job or {})}}
    parts = {"schedule": "0 3 * * *", "jobTemplate": inner, **more}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"}, "spec": parts}


def scaled_job(spec: Json | None = None, *, of_job: Json | None = None, **more: Any) -> Json:
    inner = {"template": {"spec": spec or pod()}, **(of_job or {})}
    parts = {"jobTargetRef": inner, "triggers": [{"type": "rabbitmq", "metadata": {"queueName": "q"}}], **more}
    return {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledJob", "metadata": {"name": "scaled"}, "spec": parts}


def alone(spec: Json | None = None, **meta: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "alone", **meta}, "spec": spec or pod()}


def workflow(*steps: Json, kind: str = "WorkflowTemplate", more: Json | None = None, **parts: Any) -> Json:
    """`parts`: of the spec that has the steps. `more`: of the spec of a CronWorkflow."""
    spec = {"templates": list(steps), **parts}
    whole = {"schedule": "@daily", **(more or {}), "workflowSpec": spec} if kind == "CronWorkflow" else spec
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": kind, "metadata": {"name": "flow"}, "spec": whole}


def step(**more: Any) -> Json:
    return {"name": "one", "container": {"image": "a:1", "command": ["run"]}, **more}


JOBS: Final[dict[str, Json]] = {
    "plain": job(), "generated name": {**job(), "metadata": {"generateName": "load-"}},
    "namespace and labels": job(meta={"namespace": "prod", "labels": {"app": "a",
        "app.kubernetes.io/managed-by": "Helm"}}),
    "backoffLimit 0": job(backoffLimit=0), "backoffLimit 4": job(backoffLimit=4),
    "backoffLimit 500": job(backoffLimit=500),
    "OnFailure": job(pod(restartPolicy="OnFailure"), backoffLimit=2), "deadline": job(activeDeadlineSeconds=7200),
    "deadline of the Pod": job(pod(activeDeadlineSeconds=60), activeDeadlineSeconds=90),
    "ttl": job(ttlSecondsAfterFinished=100),
    "defaults": job(suspend=False, completionMode="NonIndexed", manualSelector=False, podReplacementPolicy="Failed",
                    parallelism=1, completions=1),
    "nulls": job(suspend=None, backoffLimit=None, completions=None, meta={"namespace": None,
        "creationTimestamp": None}),
    "exported": {**job(meta={"uid": "u", "resourceVersion": "1", "labels": EXPORTED,
        "ownerReferences": [{"name": "o"}]},
                       selector={"matchLabels": {"controller-uid": "u"}}), "status": {"succeeded": 1}},
    "suspended": job(suspend=True), "completions": job(completions=5, parallelism=2), "parallel": job(parallelism=3),
    "indexed": job(completions=4, completionMode="Indexed"), "failure policy": job(podFailurePolicy=ON_EXIT),
    "index by its note": job(pod(container(env=[
        {"name": name, "valueFrom": {"fieldRef": {
            "fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}}
        for name in ("JOB_COMPLETION_INDEX", "SHARD")])), completions=4, completionMode="Indexed"),
    "secret": job(pod(container(env=[SECRET], envFrom=[{"configMapRef": {"name": "c"}}]))),
    "own name in env": job(pod(container(env=[ME, SPACE, {"name": "URL", "value": "http://$(POD_NAME)"}]))),
    "env twice": job(pod(container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]))),
    "loader path": job(pod(container(env=[{"name": "LD_LIBRARY_PATH", "value": "/lib"}], **GPU))),
    "volume": job(pod(container(**MOUNT), **CLAIM)), "sidecar": job(pod(beside=(PROXY,))),
    "native sidecar": job(pod(initContainers=[{**PROXY, "restartPolicy": "Always"}])),
    "container that restarts": job(pod(container(restartPolicy="OnFailure"))),
    "init container that restarts": job(pod(initContainers=[{**PROXY, "restartPolicy": "OnFailure"}])),
    "sidecar and task": job(pod(container(name="task"), beside=(PROXY,))),
    "scheduler": job(pod(schedulerName="volcano")),
    "placed": job(pod(nodeSelector={"disk": "ssd"}, tolerations=[{"key": "gpu", "operator": "Exists"}],
                      priorityClassName="high", serviceAccountName="loader", imagePullSecrets=[{"name": "p"}])),
    "security": job(pod(container(securityContext={"runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}}),
                        securityContext={"fsGroup": 1})),
    "privileged": job(pod(container(securityContext={"privileged": True}), hostNetwork=True)),
    "probe": job(pod(container(livenessProbe={"exec": {"command": ["true"]}}))), "helm hook": job(meta={
        "annotations": {"helm.sh/hook": "pre-install", "kubectl.kubernetes.io/last-applied-configuration": "{}"}}),
    "of Kueue": job(suspend=True, meta={"labels": {"kueue.x-k8s.io/queue-name": "team-a"}}),
    "rules that count": job(completions=3, podFailurePolicy={"rules": [
        {"action": action, "onExitCodes": {"operator": "In", "values": [code]}}
        for code, action in enumerate(("Count", "FailIndex", "FailJob"), 1)]}),
    "odd name": job(name="Load_Data.v2"), "long name": job(name="a" * 100),
}  # fmt: skip
CRON_JOBS: Final[dict[str, Json]] = {
    "cron": cron_job(), "cron zone": cron_job(timeZone="Europe/Vienna"),
    "cron forbids": cron_job(concurrencyPolicy="Forbid"),
    "cron replaces": cron_job(concurrencyPolicy="Replace"), "cron allows": cron_job(concurrencyPolicy="Allow"),
    "cron suspended": cron_job(suspend=True), "cron late": cron_job(startingDeadlineSeconds=60),
    "cron of several": cron_job(of_job={"completions": 5, "parallelism": 2, "completionMode": "Indexed"},
                                concurrencyPolicy="Replace"),
    "cron history": cron_job(successfulJobsHistoryLimit=1, failedJobsHistoryLimit=3),
    "cron limits": cron_job(of_job={"backoffLimit": 1, "activeDeadlineSeconds": 600, "ttlSecondsAfterFinished": 60}),
    "cron secret": cron_job(pod(container(env=[SECRET], **MOUNT), restartPolicy="OnFailure", **CLAIM)),
}  # fmt: skip
SCALED_JOBS: Final[dict[str, Json]] = {
    "scaled": scaled_job(), "scaled cap": scaled_job(maxReplicaCount=20, pollingInterval=30),
    "scaled limits": scaled_job(of_job={"parallelism": 1, "completions": 1, "backoffLimit": 4,
        "activeDeadlineSeconds": 600}),
    "scaled strategy": scaled_job(scalingStrategy={"strategy": "eager"}, successfulJobsHistoryLimit=5),
    "scaled secret": scaled_job(pod(container(env=[SECRET]))),
    "scaled by a clock": scaled_job(of_job={"parallelism": 2}, triggers=[
        {"type": "cron", "metadata": {"start": "0 6 * * *", "timezone": "Asia/Kolkata", "desiredReplicas": "3"}},
        {"type": "cron", "metadata": {"start": "0 7 * * *"}}]),
}  # fmt: skip
PODS: Final[dict[str, Json]] = {
    "Pod": alone(), "Pod with labels": alone(labels={"app": "a"}, annotations={"a": "b"}), "Pod that restarts": alone(
        pod(restartPolicy="Always")), "Pod of CI": alone(pod(beside=(PROXY,), activeDeadlineSeconds=3600)),
    "Airflow": alone(pod(container(name="base"), beside=({"name": "git-sync", "image": "g"},))),
    "Airflow alone": alone(pod({"name": "base", "image": "airflow:2"}, serviceAccountName="a")),
    "Pod with a volume": alone(pod(container(**MOUNT), **CLAIM)), "Pod on a GPU": alone(pod(container(**GPU))),
}  # fmt: skip
WORKFLOWS: Final[dict[str, Json]] = {
    "step": workflow(step()), "steps": workflow(step(), step(name="two"), {"name": "all", "dag": {"tasks": []}}),
    "parameters": workflow(step(inputs={"parameters": [{"name": "in-file"}]}, container={
        "image": "a:1", "command": ["run"], "args": ["{{inputs.parameters.in-file}}", "--x={{workflow.parameters.x}}"],
        "env": [{"name": "MODE", "value": "{{inputs.parameters.mode}}"}]})),
    "step retries": workflow(step(retryStrategy={"limit": "3"}, activeDeadlineSeconds=60)),
    "step placed": workflow(step(nodeSelector={"a": "b"}, tolerations=[{"operator": "Exists"}],
        serviceAccountName="a")),
    "step volumes": workflow(step(container={"image": "a:1", "command": ["run"], **MOUNT}, **CLAIM)),
    "Workflow": workflow(step(sidecars=[PROXY]), kind="Workflow"),
    "CronWorkflow": workflow(step(), kind="CronWorkflow"),
    "workflow places": workflow(
        step(), step(name="two", nodeSelector={"c": "d"}), kind="Workflow", entrypoint="one", nodeSelector={"a": "b"},
        serviceAccountName="s", imagePullSecrets=[{"name": "p"}], parallelism=3, ttlStrategy={}, onExit="two",
        podMetadata={"labels": {"e": "f"}}, activeDeadlineSeconds=60, synchronization={"mutex": {"name": "m"}},
        arguments={"parameters": [{"name": "x", "value": "1"}]},
    ),
    "workflow volumes": workflow(
        step(container={"image": "a:1", "command": ["run"], **MOUNT}), step(name="two"), **CLAIM
    ),
    "workflow volumes beside": workflow(
        step(sidecars=[{**PROXY, **MOUNT}]), step(name="two", initContainers=[{**PROXY, **MOUNT}]),
        step(name="three", container={"image": "a:1", **MOUNT}, volumes=[{"name": "data", "emptyDir": {}}]), **CLAIM,
    ),
    "step of its own labels": workflow(
        step(metadata={"labels": {"a": "own"}, "annotations": {"x": "y"}}),
        podMetadata={"labels": {"a": "all", "b": "all"}},
    ),
    "workflow of steps elsewhere": {**workflow(kind="Workflow"), "spec": {"workflowTemplateRef": {"name": "other"}}},
    "CronWorkflow with one step first": workflow(step(name="two"), step(), kind="CronWorkflow", entrypoint="one", more={
        "schedule": "5 4 * * *", "timezone": "Europe/Vienna", "suspend": False, "concurrencyPolicy": "Replace",
        "startingDeadlineSeconds": 60, "failedJobsHistoryLimit": 3, "when": "x",
    }),
    "CronWorkflow of one list": workflow(step(), kind="CronWorkflow", entrypoint="one", more={
        "schedule": None, "schedules": ["5 4 * * *"],
    }),
    "CronWorkflow that forbids": workflow(step(), kind="CronWorkflow", more={
        "timezone": "Europe/Vienna", "suspend": True, "concurrencyPolicy": "Forbid", "startingDeadlineSeconds": 60,
        "failedJobsHistoryLimit": 3, "when": "x",
    }),
    "step tries for ever": workflow(
        step(retryStrategy={"retryPolicy": "Always", "backoff": {"duration": "5s"}, "expression": "x"}),
        step(name="two", retryStrategy={"limit": "{{n}}"}), retryStrategy={"limit": 2},
    ),
    "step reads": workflow(step(
        inputs={"artifacts": [{"name": "a"}], "parameters": [{"name": "unused"}, {"name": "day", "value": "1"}]},
        container={"image": "a", "args": ["{{inputs.parameters.day}}"]},
    )),
    "step that mirrors mounts": workflow(step(
        container={"image": "a:1", "command": ["run"], **MOUNT}, timeout="1h30m", hostAliases=[{"ip": "10.0.0.1"}],
        sidecars=[{**PROXY, "mirrorVolumeMounts": True}],
        initContainers=[{**PROXY, "name": "b", "mirrorVolumeMounts": True}],
    ), {"name": "all", "steps": [[{"name": "a", "template": "one"}]], "tolerations": [{}]}, **CLAIM,
        hostAliases=[{"ip": "10.0.0.2"}], arguments={"parameters": [{"name": "x", "value": "{{workflow.name}}"}]}),
    "script": workflow({"name": "s", "script": {"image": "a", "source": "print(1)"}}),
}  # fmt: skip
CORPUS: Final[dict[str, Json]] = JOBS | CRON_JOBS | SCALED_JOBS | PODS | WORKFLOWS


def manifest(name: str) -> Json:
    """A copy that a test may change."""
    return copy.deepcopy(CORPUS[name])
