"""`dispatcher doctor` on a real control plane: each planted fault of a template, or of what its Pod meets, named alone.

One installation serves all tests of this file. Each test removes the fault that it planted.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from dispatcher.doctor.finding import FindingState
from dispatcher.doctor.program import DoctorEnvironment
from tests.controlplane.cluster import ControlPlane
from tests.rig.admission import changing
from tests.rig.doctoring import Site, an_installation
from tests.rig.planting import added, enforced, templated, without
from tests.rig.postgres import Database

Settings = dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(
    control_plane: ControlPlane, nodes: list[str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    caches = {"CACHE_ROOT": "/var/cache/tasks"}
    async with an_installation(control_plane, tmp_path_factory.mktemp("doctor"), settings=caches) as made:
        yield made


@pytest.fixture
def settings(site: Site, one_database: Database) -> Settings:
    return site.environment(one_database.url("reader"))


async def test_pod_security_is_judged_with_the_field_that_fails(site: Site, settings: Settings) -> None:
    async with enforced(site, "restricted"):
        found = await site.names(settings, "PodSecurity")
        assert found.where == "template default"
        assert "containers[task].securityContext.allowPrivilegeEscalation is not false" in found.message
        assert f"label --overwrite namespace {site.jobs}" in found.mend
        assert found.mend.split("enforce=")[1].startswith("baseline")


async def test_pod_security_of_an_older_version_is_not_checked(site: Site, settings: Settings) -> None:
    async with enforced(site, "restricted", "v1.25"):
        found = await site.findings(settings)
        assert [one for one in found if one.state is FindingState.FAULT] == []
        (told,) = [one for one in found if one.what == "PodSecurity"]
        assert (told.state, "enforces restricted of v1.25" in told.message) == (FindingState.NOT_CHECKED, True)


async def test_cache_root_under_pod_security_baseline_is_named(site: Site, settings: Settings) -> None:
    async with enforced(site, "baseline"):
        assert await site.faults(settings) == {}
        found = await site.names(settings | {"DISPATCHER_CACHE_ROOT": "/var/cache/tasks"}, "PodSecurity")
        assert "DISPATCHER_CACHE_ROOT" in found.message


async def test_quota_that_fits_no_job_is_named(site: Site, settings: Settings) -> None:
    quota = {"metadata": {"name": "tiny"}, "spec": {"hard": {"requests.cpu": "1m"}}}
    async with added(site, "resourcequotas", quota):
        found = await site.names(settings, "QuotaFitsNoJob")
        assert "ResourceQuota tiny: requests.cpu 10m asked, 0 of 1m used" in found.message


async def test_quota_that_demands_an_amount_is_named(site: Site, settings: Settings) -> None:
    quota = {"metadata": {"name": "strict"}, "spec": {"hard": {"limits.memory": "1Gi"}}}
    resources = {"requests": {"cpu": "10m", "memory": "16Mi"}}
    async with added(site, "resourcequotas", quota), templated(site, **site.container(resources=resources)):
        found = await site.names(settings, "QuotaFitsNoJob")
        assert "container task names none" in found.message


async def test_full_quota_is_no_fault(site: Site, settings: Settings) -> None:
    quota = {"metadata": {"name": "full"}, "spec": {"hard": {"count/secrets": "1"}}}
    async with added(site, "resourcequotas", quota):
        assert await site.faults(settings) == {}


async def test_limit_range_that_refuses_the_pod_is_named(site: Site, settings: Settings) -> None:
    limits = {"metadata": {"name": "low"}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "5m"}}]}}
    async with added(site, "limitranges", limits):
        found = await site.names(settings, "LimitRangeRefuses")
        assert "LimitRange low: container task has a limit of cpu above the maximum 5m" in found.message


async def test_secret_that_is_missing_is_named(site: Site, settings: Settings) -> None:
    async with without(site, f"/api/v1/namespaces/{site.jobs}/secrets/task-database"):
        found = await site.names(settings, "SecretMissing")
        assert (found.where, found.message) == (
            "template default",
            f"Secret task-database in namespace {site.jobs} does not exist",
        )


async def test_object_that_is_missing_is_named(site: Site, settings: Settings) -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    async with templated(site, volumes=[claim], **site.container()):
        found = await site.names(settings, "ObjectMissing")
        assert found.message == f"PersistentVolumeClaim data in namespace {site.jobs} does not exist"


async def test_policy_refuses_a_secret_that_is_not_listed(site: Site, settings: Settings) -> None:
    """The policy judges our accounts alone. An administrator acts for the account of `run` in the dry run."""
    other = {"metadata": {"name": "other"}}
    async with (
        added(site, "secrets", other),
        templated(site, "gpu", **site.container(envFrom=[{"secretRef": {"name": "other"}}])),
    ):
        told = await site.names(settings, "JobRefused")
        assert "Secret other is not in the list secrets" in told.message
        found = await site.findings(settings, DoctorEnvironment(log_in=site.own_login))
        assert [one for one in found if one.state is FindingState.FAULT] == [told]


async def test_key_that_a_secret_lacks_is_named(site: Site, settings: Settings) -> None:
    env = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "task-database", "key": "token"}}}]
    async with templated(site, **site.container(env=env)):
        found = await site.names(settings, "SecretKeyMissing")
        assert found.message.endswith("has no key token")


async def test_job_that_the_api_server_refuses_is_named(site: Site, settings: Settings) -> None:
    async with templated(site, "odd", **site.container(imagePullPolicy="Sometimes")):
        found = await site.names(settings, "JobRefused")
        assert found.where == "template odd"
        assert "imagePullPolicy" in found.message


async def test_policy_that_changes_jobs_is_named(site: Site, settings: Settings) -> None:
    ttl = "Object{spec: Object.spec{ttlSecondsAfterFinished: 60}}"
    async with changing(site.plane, site.jobs, ttl, lambda job: "ttlSecondsAfterFinished" in job["spec"]):
        found = await site.names(settings, "JobChanged")
        assert found.message == "spec.ttlSecondsAfterFinished is 60, not absent"


async def test_faulty_template_is_named(site: Site, settings: Settings) -> None:
    async with templated(site, "late", activeDeadlineSeconds=5):
        found = await site.names(settings, "InvalidTemplate")
        assert "activeDeadlineSeconds" in found.message


async def test_installation_without_a_template_is_named(site: Site, settings: Settings) -> None:
    await site.names({name: value for name, value in settings.items() if "TEMPLATES" not in name}, "NoTemplate")


async def test_template_that_fits_no_node_is_named(site: Site, settings: Settings) -> None:
    huge = {"requests": {"cpu": "1000", "memory": "1Gi"}, "limits": {"cpu": "1000", "memory": "1Gi"}}
    async with templated(site, "huge", **site.container(resources=huge)):
        found = await site.names(settings, "NoNodeFits")
        assert "no node is large enough" in found.message


async def test_template_for_nodes_that_are_not_there_is_named(site: Site, settings: Settings) -> None:
    async with templated(site, "elsewhere", nodeSelector={"pool": "moon"}):
        found = await site.names(settings, "NoNodeFits")
        assert "may have it" in found.message
