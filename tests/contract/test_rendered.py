"""`deploy/rendered` by kubectl alone, and the way from an installation by kustomize to the chart (docs/install.md)."""

from pathlib import Path

import pytest
import yaml

from tests.contract.helming import Helm
from tests.contract.installed import a_job, installed
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.operator_kinds import operator_kinds
from tests.rig.deployed import CLUSTER_KINDS, RENDERED, VARIANTS, rendered

SHARED = {"CustomResourceDefinition", "ClusterRole"}
"""Kinds of which other tests of this control plane need objects. They stay."""
SAID_EACH_TIME = {"poddisruptionbudget.policy"}
"""kubectl sends the selector of such an object each time, which changes nothing: its generation stays."""


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
async def test_second_apply_of_a_rendered_file_changes_nothing(
    control_plane: ControlPlane, tmp_path: Path, variant: str
) -> None:
    admin = Helm(control_plane, tmp_path, "default")
    await control_plane.apply(operator_kinds(), namespace="default")
    await control_plane.wait_for(lambda: admin.knows("PodMonitor", "PrometheusRule"), "the kinds are served", 30)
    for name in ("dispatcher", "dispatcher-jobs"):
        if not await control_plane.exists(f"/api/v1/namespaces/{name}"):
            await control_plane.admin("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    apply = ("apply", "--filename", RENDERED / f"{variant}.yaml")
    try:
        first = await admin.kubectl(*apply)
        assert first.status == 0, first.err
        paths = [await admin.path(one) for one in rendered(variant) if one["kind"] == "PodDisruptionBudget"]
        versions = [await version(control_plane, path) for path in paths]
        second = await admin.kubectl(*apply)
        assert second.status == 0, second.err
        lines = second.out.splitlines()
        assert len(lines) == len(rendered(variant))
        changed = {line.split("/")[0] for line in lines if not line.endswith(" unchanged")}
        assert changed <= SAID_EACH_TIME, lines
        assert [await version(control_plane, path) for path in paths] == versions
    finally:
        for one in reversed(rendered(variant)):
            if one["kind"] not in SHARED:
                await control_plane.remove(await admin.path(one))


async def version(plane: ControlPlane, path: str) -> int:
    """The generation, which grows with each change of the spec."""
    return int((await plane.admin("GET", path))["metadata"]["generation"])


OLD = Path(__file__).with_name("kustomize_installation.yaml")


def old_objects(namespace: str, jobs: str) -> list[Json]:
    """The objects, in these namespaces. Those of the cluster keep their names."""
    text = OLD.read_text(encoding="utf-8").replace("namespace: dispatcher-jobs\n", f"namespace: {jobs}\n")
    return list(yaml.load_all(text.replace("namespace: dispatcher\n", f"namespace: {namespace}\n"), yaml.CSafeLoader))


@pytest.mark.slow
async def test_chart_takes_the_place_of_a_deleted_installation(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    jobs = await control_plane.create_namespace()
    helm = Helm(control_plane, tmp_path, namespace)
    collection = f"/apis/batch/v1/namespaces/{jobs}/jobs"
    kept: dict[str, Json] = {
        f"/api/v1/namespaces/{namespace}/secrets": {"metadata": {"name": "dispatcher-database"}},
        f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases": {"metadata": {"name": "dispatcher-leader"}},
    }
    async with installed(control_plane, namespace, old_objects(namespace, jobs)):
        kept[collection] = a_job(suspend=True)
        before = {path: (await control_plane.admin("POST", path, one))["metadata"]["uid"] for path, one in kept.items()}
        refused = await helm.install(jobsNamespace=jobs)
        assert refused.status == 1
        assert "exists and cannot be imported into the current release" in refused.err
        for one in old_objects(namespace, jobs):
            if one["kind"] not in CLUSTER_KINDS:
                await control_plane.remove(await helm.path(one))
    said = await helm.install(jobsNamespace=jobs)
    assert said.status == 0, said.err
    for path, one in kept.items():
        found = await control_plane.admin("GET", f"{path}/{one['metadata']['name']}")
        assert found["metadata"]["uid"] == before[path]
    await helm("uninstall", "dispatcher")
