"""`dispatcher doctor` on a variant, without the namespace of Jobs, and with a slow Job controller."""

from pathlib import Path

import pytest

from dispatcher.doctor.finding import Finding, FindingState
from dispatcher.doctor.program import DoctorEnvironment, exit_status
from tests.controlplane.cluster import ControlPlane
from tests.rig.doctoring import Site, an_installation
from tests.rig.postgres import Database


async def test_installation_without_cluster_rights_has_no_fault(
    control_plane: ControlPlane, nodes: list[str], one_database: Database, tmp_path: Path
) -> None:
    """The variant has no admission policy and no room gate. Both are no fault, for an operator and in its own Pod."""
    async with an_installation(control_plane, tmp_path, "namespaced") as site:
        settings = site.environment(one_database.url("reader"), CHECK_ROOM="false")
        assert await site.faults(settings) == {}
        own = await site.findings(settings, DoctorEnvironment(log_in=site.own_login))
        assert [one for one in own if one.state is FindingState.FAULT] == []


async def test_installation_that_chose_to_have_no_policy_has_a_warning(
    control_plane: ControlPlane, nodes: list[str], one_database: Database, tmp_path: Path
) -> None:
    async with an_installation(control_plane, tmp_path, policy={"enabled": False}) as site:
        settings = site.environment(one_database.url("reader"))
        found = await site.findings(settings)
        assert [(one.what, one.state) for one in found if one.state in {FindingState.FAULT, FindingState.WARNING}] == [
            ("PolicyMissing", FindingState.WARNING), ("ProgramNotReady", FindingState.WARNING),
        ]  # fmt: skip
        told, _ = [one for one in found if one.state is FindingState.WARNING]
        assert told.message.endswith("as its value policy.enabled=false says")
        assert exit_status(found) == 0


@pytest.mark.slow
async def test_namespace_of_jobs_that_is_gone_is_named_alone(
    control_plane: ControlPlane, nodes: list[str], one_database: Database, tmp_path: Path
) -> None:
    async with an_installation(control_plane, tmp_path) as site:
        settings = site.environment(one_database.url("reader"))
        await control_plane.delete_namespace(site.jobs)
        found = await site.names(settings, "NamespaceMissing")
        assert found.where == f"namespace {site.jobs}"
        await control_plane.admin("POST", "/api/v1/namespaces", {"metadata": {"name": site.jobs}})


@pytest.mark.slow
async def test_job_controller_is_judged_by_recent_jobs(
    control_plane: ControlPlane, nodes: list[str], one_database: Database, tmp_path: Path
) -> None:
    """Six Jobs get their Pods at once. Of twelve, most have none after a while: their controller is gone."""
    async with an_installation(control_plane, tmp_path) as site:
        settings = site.environment(one_database.url("reader"))

        async def judged() -> Finding:
            found = await site.findings(settings)
            return next(one for one in found if one.what == "JobControllerSlow")

        async def is_good() -> bool:
            return (await judged()).state is FindingState.GOOD

        async def is_slow() -> bool:
            return (await judged()).state is FindingState.WARNING

        await make_jobs(site, range(6))
        await control_plane.wait_for(is_good, "the Job controller is quick", 30)
        await control_plane.kill("kube-controller-manager")
        try:
            await make_jobs(site, range(6, 14))
            await control_plane.wait_for(is_slow, "the Job controller is slow", 30)
            warned = [one.what for one in await site.findings(settings) if one.state is FindingState.WARNING]
            assert warned == ["JobControllerSlow", "ProgramNotReady"]
        finally:
            await control_plane.revive("kube-controller-manager")


async def make_jobs(site: Site, numbers: range) -> None:
    """Jobs as a dispatcher of the installation makes them."""
    labels = {"app.kubernetes.io/managed-by": "dispatcher", "dispatcher.internal/installation": "dispatcher"}
    pod = {"restartPolicy": "Never", "containers": [{"name": "task", "image": "registry.example/team/app:1"}]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    for number in numbers:
        meta = {"name": f"recent-{number}", "labels": labels}
        path = f"/apis/batch/v1/namespaces/{site.jobs}/jobs"
        await site.plane.admin("POST", path, {"metadata": meta, "spec": {"template": template}})
