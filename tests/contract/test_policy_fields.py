"""Every field of a Job that the API server knows is judged by the policy, or stands here among those that stay open.

A new version of Kubernetes with a new field fails this test. Then somebody decides: a field that names something of
others, or opens a way out of the container, goes into the policy. What stays is an accepted risk of THREAT_MODEL.md.
Then the policy when its lists change, when it is installed again, in one namespace, and an installation without it.
"""

import re
from collections.abc import Iterator

import pytest

from tests.contract.installed import Site, installed
from tests.contract.policy_cases import OTHER_SECRET, STOLEN, volume
from tests.controlplane.api import Json, KubeFault
from tests.controlplane.cluster import ControlPlane
from tests.rig.deployed import POLICY_KINDS, RENDERED, rendered

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


DRY_RUN = {"dryRun": "All"}


def thief(site: Site) -> Json:
    """A Job that mounts the login of the schema's owner."""
    job = site.job()
    job["spec"]["template"]["spec"] |= volume(secret={"secretName": STOLEN})
    return job


def of_lists(places: tuple[str, str], **lists: list[str]) -> tuple[Json, ...]:
    """An installation in two namespaces whose policy has these lists."""
    ours, jobs = places
    return rendered(namespace=ours, jobsNamespace=jobs, policy=lists)


async def is_accepted(site: Site, job: Json) -> bool:
    try:
        await site.sends(site.dispatcher, job, **DRY_RUN)
    except KubeFault:
        return False
    return True


@pytest.mark.slow
async def test_policy_that_is_installed_again_judges_by_its_new_lists(
    control_plane: ControlPlane, namespace: str
) -> None:
    """An API server that read lists from a ConfigMap (`paramKind`) would refuse everything the second time."""
    places = namespace, await control_plane.create_namespace()
    policy = [one for one in of_lists(places) if one["kind"] in POLICY_KINDS]
    rest = [one for one in of_lists(places) if one["kind"] not in POLICY_KINDS]
    again = of_lists(places, secrets=[STOLEN])
    async with installed(control_plane, namespace, rest) as there:
        site = Site(there, again)
        async with installed(control_plane, namespace, policy):
            await site.is_guarded()
            with pytest.raises(KubeFault, match=OTHER_SECRET):
                await site.sends(site.dispatcher, thief(site), **DRY_RUN)

        async def is_gone() -> bool:
            return await is_accepted(site, thief(site))

        await control_plane.wait_for(is_gone, "the policy is gone")
        async with installed(control_plane, namespace, [one for one in again if one["kind"] in POLICY_KINDS]):
            await site.is_guarded()
            await site.sends(site.dispatcher, thief(site), **DRY_RUN)


@pytest.mark.slow
async def test_list_is_extended_without_a_rollout(control_plane: ControlPlane, namespace: str) -> None:
    places = namespace, await control_plane.create_namespace()
    objects = of_lists(places)
    async with installed(control_plane, namespace, objects) as there:
        site = Site(there, objects)
        await site.is_guarded()
        assert not await is_accepted(site, thief(site))
        opened = of_lists(places, secrets=[STOLEN])
        assert [one for one in opened if one not in objects] == [
            one for one in opened if one["kind"] == POLICY_KINDS[0] and "-words." not in one["metadata"]["name"]
        ]
        await control_plane.apply([one for one in opened if one["kind"] in POLICY_KINDS], namespace=namespace)

        async def is_open() -> bool:
            return await is_accepted(site, thief(site))

        await control_plane.wait_for(is_open, "the Secret is listed")
        await control_plane.apply(
            [one for one in of_lists(places, serviceAccounts=[]) if one["kind"] in POLICY_KINDS], namespace=namespace
        )

        async def is_closed() -> bool:
            return not await is_accepted(site, site.job())

        await control_plane.wait_for(is_closed, "an empty list opens nothing")


async def test_policy_in_one_namespace_protects_our_logins_from_tasks(
    control_plane: ControlPlane, namespace: str
) -> None:
    objects = rendered("one-namespace", namespace)
    async with installed(control_plane, namespace, objects) as there:
        site = Site(there, objects)
        await site.is_guarded()
        with pytest.raises(KubeFault, match=OTHER_SECRET):
            await site.sends(site.dispatcher, thief(site))
        await site.sends(site.dispatcher, site.job(), **DRY_RUN)


async def test_namespaced_installation_bounds_jobs_only_by_their_namespace(
    control_plane: ControlPlane, namespace: str
) -> None:
    """As its values say."""
    objects = rendered("namespaced", namespace, jobsNamespace=await control_plane.create_namespace())
    async with installed(control_plane, namespace, objects) as there:
        site = Site(there, objects)
        for account in (site.dispatcher, site.janitor):
            await site.sends(account, thief(site), **DRY_RUN)
        with pytest.raises(KubeFault, match="cannot create resource"):
            await site.sends(site.dispatcher, thief(site) | {"metadata": {"name": "x"}}, namespace)


@pytest.mark.parametrize("variant", ["namespaced", "one-namespace"])
def test_variant_with_less_protection_says_so_at_its_head(variant: str) -> None:
    text = (RENDERED / "values" / f"{variant}.yaml").read_text()
    head = [line for line in text.splitlines() if line.startswith("#")]
    assert "policy" in " ".join(head)
    assert "Secret" in " ".join(head)
