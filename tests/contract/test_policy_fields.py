"""Every field of a Job that the API server knows is judged by the policy, or stands here among those that stay open.

A new version of Kubernetes with a new field fails this test. Then somebody decides: a field that names something of
others, or opens a way out of the container, goes into the policy. What stays is an accepted risk of THREAT_MODEL.md.
"""

import re
from collections.abc import Iterator

import pytest

from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.rig.deployed import rendered

JUDGED = {
    "JobSpec": "activeDeadlineSeconds completions parallelism template",
    "PodSpec": "containers ephemeralContainers hostIPC hostNetwork hostPID imagePullSecrets initContainers nodeName "
    "priorityClassName runtimeClassName schedulerName securityContext serviceAccountName volumes",
    "Container": "env envFrom lifecycle livenessProbe ports readinessProbe restartPolicy restartPolicyRules "
    "securityContext startupProbe",
    "Volume": "",  # each kind but those of the value volumeKinds
    "VolumeProjection": "configMap podCertificate secret serviceAccountToken",
    "SecurityContext": "appArmorProfile capabilities privileged procMount seLinuxOptions seccompProfile windowsOptions",
    "PodSecurityContext": "appArmorProfile seLinuxOptions seccompProfile sysctls windowsOptions",
    "EnvVarSource": "configMapKeyRef secretKeyRef",
    "EnvFromSource": "configMapRef secretRef",
    "LifecycleHandler": "httpGet tcpSocket",
    "Probe": "httpGet tcpSocket",
}
OPEN = {
    "JobSpec": "backoffLimit backoffLimitPerIndex completionMode managedBy manualSelector maxFailedIndexes "
    "podFailurePolicy podReplacementPolicy selector successPolicy suspend ttlSecondsAfterFinished",
    # Nodes and devices that a Pod may ask for: a template needs them, so taints and quotas bound them.
    "PodSpec": "affinity nodeSelector tolerations topologySpreadConstraints resourceClaims resources overhead priority "
    "preemptionPolicy schedulingGates schedulingGroup "
    # The container's own: names inside of the Pod, times, and what the API server derives.
    "activeDeadlineSeconds automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks hostAliases hostUsers "
    "hostname hostnameOverride os readinessGates restartPolicy serviceAccount setHostnameAsFQDN shareProcessNamespace "
    "subdomain terminationGracePeriodSeconds",
    "Container": "args command image imagePullPolicy name resizePolicy resources "
    "stdin stdinOnce terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts workingDir",
    "VolumeProjection": "clusterTrustBundle downwardAPI",
    "SecurityContext": "allowPrivilegeEscalation readOnlyRootFilesystem runAsGroup runAsNonRoot runAsUser",
    "PodSecurityContext": "fsGroup fsGroupChangePolicy runAsGroup runAsNonRoot runAsUser seLinuxChangePolicy "
    "supplementalGroups supplementalGroupsPolicy",
    "EnvVarSource": "fieldRef fileKeyRef resourceFieldRef",
    "EnvFromSource": "prefix",
    "LifecycleHandler": "exec sleep",
    "Probe": "exec failureThreshold grpc initialDelaySeconds periodSeconds successThreshold "
    "terminationGracePeriodSeconds timeoutSeconds",
}
BY_ITS_KIND = frozenset({"Volume"})


@pytest.fixture(scope="module")
async def schemas(control_plane: ControlPlane) -> Json:
    found = await control_plane.admin("GET", "/openapi/v3/apis/batch/v1")
    return {name.rsplit(".", 1)[1]: schema for name, schema in found["components"]["schemas"].items()}


def expressions() -> Iterator[str]:
    for one in rendered():
        if one["kind"] == "ValidatingAdmissionPolicy" and "words" not in one["metadata"]["name"]:
            yield from (part["expression"] for part in (*one["spec"]["variables"], *one["spec"]["validations"]))


@pytest.mark.parametrize("kind", sorted({*JUDGED} - BY_ITS_KIND))
async def test_every_field_is_judged_or_stays_open_by_decision(schemas: Json, kind: str) -> None:
    judged, left = JUDGED[kind].split(), OPEN[kind].split()
    assert sorted([*judged, *left]) == sorted(schemas[kind]["properties"])
    text = " ".join(expressions())
    assert [name for name in judged if not re.search(rf"\b{name}\b", text)] == []


async def test_every_kind_of_volume_but_the_listed_ones_is_closed(schemas: Json) -> None:
    """So a kind of a later version is closed until the operator lists it."""
    text = " ".join(expressions())
    assert "kind != 'name' && !(kind in variables.volumeKinds)" in text
    assert "hostPath" in schemas["Volume"]["properties"]
