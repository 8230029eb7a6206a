"""A Job with parts of nearly every kind that a manifest can have. The API server takes it."""

import copy
from typing import Any, Final

CONDITIONS: Final = [{"key": "zone", "operator": "In", "values": ["a", "b"]}, {"key": "gpu", "operator": "Exists"}]
SELECTOR: Final = {"matchLabels": {"app": "a"}, "matchExpressions": CONDITIONS}
POD_TERM: Final = {"labelSelector": SELECTOR, "topologyKey": "zone", "namespaces": ["other"]}
PROBE: Final = {"periodSeconds": 5, "failureThreshold": 3, "terminationGracePeriodSeconds": 9}
ITEMS: Final = [{"key": "k", "path": "p", "mode": 256}]
TASK: Final[dict[str, Any]] = {
    "name": "task", "image": "registry.example/app:1", "imagePullPolicy": "IfNotPresent", "workingDir": "/work",
    "command": ["run"], "args": ["--all", "x"], "stdin": True, "tty": False, "terminationMessagePolicy": "File",
    "terminationMessagePath": "/dev/log",
    "env": [
        {"name": "A", "value": "1"},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
        {"name": "D", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "E", "valueFrom": {"resourceFieldRef": {
            "containerName": "task", "resource": "limits.cpu", "divisor": "1m"}}},
    ],
    "envFrom": [{"prefix": "P_", "configMapRef": {"name": "c", "optional": True}}, {"secretRef": {"name": "s"}}],
    "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP"}],
    "resources": {"limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": 1}, "requests": {"cpu": 0.5}},
    "volumeMounts": [
        {"name": "scratch", "mountPath": "/scratch", "readOnly": False, "mountPropagation": "None"},
        {"name": "all", "mountPath": "/all", "subPath": "x", "readOnly": True},
        {"name": "config", "mountPath": "/config", "subPathExpr": "$(A)"},
    ],
    "volumeDevices": [{"name": "claim", "devicePath": "/dev/x"}],
    "livenessProbe": {**PROBE, "httpGet": {
        "path": "/", "port": "http", "host": "h", "scheme": "HTTP", "httpHeaders": [{"name": "a", "value": "b"}]}},
    "startupProbe": {"tcpSocket": {"port": 80, "host": "h"}},
    "readinessProbe": {"grpc": {"port": 80, "service": "s"}, "initialDelaySeconds": 1, "timeoutSeconds": 1},
    "lifecycle": {"preStop": {"exec": {"command": ["end"]}}, "postStart": {"sleep": {"seconds": 1}}},
    "securityContext": {
        "runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": True, "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False, "privileged": False, "procMount": "Default",
        "capabilities": {"add": ["SYS_TIME"], "drop": ["ALL"]}, "seLinuxOptions": {"level": "s0"},
        "seccompProfile": {"type": "Localhost", "localhostProfile": "x"}, "appArmorProfile": {"type": "RuntimeDefault"},
    },
}  # fmt: skip
POD: Final[dict[str, Any]] = {
    "restartPolicy": "Never", "serviceAccountName": "a", "automountServiceAccountToken": False, "dnsPolicy": "None",
    "dnsConfig": {"nameservers": ["1.1.1.1"], "searches": ["a"], "options": [{"name": "ndots", "value": "2"}]},
    "enableServiceLinks": False, "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}], "hostname": "h",
    "imagePullSecrets": [{"name": "pull"}], "nodeSelector": {"disk": "ssd"}, "preemptionPolicy": "Never",
    "priorityClassName": "high", "schedulerName": "other", "shareProcessNamespace": False, "subdomain": "s",
    "terminationGracePeriodSeconds": 30, "setHostnameAsFQDN": False, "os": {"name": "linux"},
    "readinessGates": [{"conditionType": "example.com/ready"}], "overhead": {"cpu": "1m"},
    "runtimeClassName": "kata", "schedulingGates": [{"name": "example.com/wait"}], "hostNetwork": False,
    "securityContext": {
        "fsGroup": 1, "supplementalGroups": [1], "sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}],
        "fsGroupChangePolicy": "Always",
    },
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": CONDITIONS,
                 "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]},
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": CONDITIONS}}],
        },
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [POD_TERM]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": POD_TERM}]},
    },
    "tolerations": [{"key": "gpu", "operator": "Equal", "value": "x", "effect": "NoExecute", "tolerationSeconds": 60}],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": SELECTOR,
         "minDomains": 1}],
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
    "initContainers": [
        {"name": "first", "image": "i", "restartPolicy": "Always", "resources": {"claims": [{"name": "gpu"}]}}],
    "containers": [TASK],
    "volumes": [
        {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        {"name": "config", "configMap": {"name": "c", "defaultMode": 420, "items": ITEMS, "optional": True}},
        {"name": "keys", "secret": {"secretName": "s", "defaultMode": 256, "items": ITEMS}},
        {"name": "host", "hostPath": {"path": "/x", "type": "Directory"}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
        {"name": "files", "nfs": {"server": "s", "path": "/x", "readOnly": True}},
        {"name": "driver", "csi": {
            "driver": "d", "volumeAttributes": {"a": "b"}, "nodePublishSecretRef": {"name": "s"}}},
        {"name": "down", "downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"name": "image", "image": {"reference": "r", "pullPolicy": "Always"}},
        {"name": "all", "projected": {"defaultMode": 256, "sources": [
            {"secret": {"name": "s", "items": ITEMS, "optional": True}}, {"configMap": {"name": "c"}},
            {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600, "audience": "a"}},
            {"downwardAPI": {"items": [{"path": "q", "resourceFieldRef": {
                "containerName": "task", "resource": "limits.cpu"}}]}}]}},
        {"name": "own", "ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "resources": {"requests": {"storage": "1Gi"}}}}}},
    ],
}  # fmt: skip


def whole_job() -> dict[str, Any]:
    """A copy that a test may change."""
    return copy.deepcopy({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "whole", "labels": {"app": "a"}, "annotations": {"example.com/note": "x"}},
        "spec": {
            "backoffLimit": 0, "completions": 1, "parallelism": 1, "suspend": False, "completionMode": "NonIndexed",
            "template": {"metadata": {"labels": {"app": "a"}, "annotations": {"a": "b"}}, "spec": POD},
        },
    })  # fmt: skip


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of each part of a value."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [one for key, part in parts for one in [(*path, key), *paths(part, (*path, key))]]


def parent_of(manifest: Any, path: tuple[Any, ...]) -> Any:
    for step in path[:-1]:
        manifest = manifest[step]
    return manifest
