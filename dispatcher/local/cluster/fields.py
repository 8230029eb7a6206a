"""Names of the fields that a Job may have, for `fieldValidation=Strict`: a misspelled field must not be dropped.

A tree of field names. `ANY`: the content is not checked. A list with one tree: a list of such objects.
"""

from collections.abc import Iterator
from typing import Any, Final

Json = dict[str, Any]
ANY: Final = None
Tree = dict[str, Any]


def of(names: str, **branches: Any) -> Tree:  # a tree of trees
    return dict.fromkeys(names.split(), ANY) | branches


META: Final = of(
    "annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName generation "
    "labels managedFields name namespace ownerReferences resourceVersion selfLink uid"
)
REF: Final = of("key name optional")
ENV: Final = of(
    "name value",
    valueFrom=of(
        "fileKeyRef", configMapKeyRef=REF, secretKeyRef=REF, fieldRef=of("apiVersion fieldPath"),
        resourceFieldRef=of("containerName divisor resource"),
    ),
)  # fmt: skip
ENV_FROM: Final = of("prefix", configMapRef=of("name optional"), secretRef=of("name optional"))
CONTAINER: Final = of(
    "args command image imagePullPolicy lifecycle livenessProbe name ports readinessProbe resizePolicy restartPolicy "
    "restartPolicyRules securityContext startupProbe stdin stdinOnce terminationMessagePath terminationMessagePolicy "
    "tty volumeDevices workingDir",
    env=[ENV],
    envFrom=[ENV_FROM],
    resources=of("claims limits requests"),
    volumeMounts=[of("mountPath mountPropagation name readOnly recursiveReadOnly subPath subPathExpr")],
)
VOLUME: Final = of(
    "awsElasticBlockStore azureDisk azureFile cephfs cinder csi downwardAPI ephemeral fc flexVolume flocker "
    "gcePersistentDisk gitRepo glusterfs image iscsi name nfs persistentVolumeClaim photonPersistentDisk "
    "portworxVolume projected quobyte rbd scaleIO storageos vsphereVolume",
    configMap=of("defaultMode items name optional"),
    secret=of("defaultMode items optional secretName"),
    emptyDir=of("medium sizeLimit"),
    hostPath=of("path type"),
)
POD: Final = of(
    "activeDeadlineSeconds automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks ephemeralContainers "
    "hostAliases hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride imagePullSecrets nodeName "
    "nodeSelector os overhead preemptionPolicy priority priorityClassName readinessGates resourceClaims resources "
    "restartPolicy runtimeClassName schedulerName schedulingGates schedulingGroup securityContext serviceAccount "
    "serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain terminationGracePeriodSeconds "
    "topologySpreadConstraints workloadRef",
    affinity=of("nodeAffinity podAffinity podAntiAffinity"),
    containers=[CONTAINER],
    initContainers=[CONTAINER],
    tolerations=[of("effect key operator tolerationSeconds value")],
    volumes=[VOLUME],
)
JOB: Final = of(
    "apiVersion kind status",
    metadata=META,
    spec=of(
        "activeDeadlineSeconds backoffLimit backoffLimitPerIndex completionMode completions managedBy manualSelector "
        "maxFailedIndexes parallelism podFailurePolicy podReplacementPolicy selector successPolicy suspend "
        "ttlSecondsAfterFinished",
        template=of("", metadata=META, spec=POD),
    ),
)


def unknown_fields(given: Json, tree: Tree = JOB, at: str = "") -> Iterator[str]:
    """Yields the paths of unknown fields, as the server writes them. Removes these fields from `given`."""
    for name, held in list(given.items()):
        if name not in tree:
            del given[name]
            yield f"{at}{name}"
        elif isinstance(branch := tree[name], dict) and isinstance(held, dict):
            yield from unknown_fields(held, branch, f"{at}{name}.")
        elif isinstance(branch, list) and isinstance(held, list):
            for number, one in enumerate(held):
                if isinstance(one, dict):
                    yield from unknown_fields(one, branch[0], f"{at}{name}[{number}].")
