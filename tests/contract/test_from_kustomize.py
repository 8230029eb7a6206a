"""The way from an installation by kustomize to the chart, as docs/install.md describes it."""

from pathlib import Path

import pytest
import yaml

from tests.contract.helming import Helm
from tests.contract.installed import installed
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.rig.deployed import CLUSTER_KINDS

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
    job = {"metadata": {"name": "of-a-task"}, "spec": {"suspend": True, "template": {"spec": a_pod()}}}
    collection = f"/apis/batch/v1/namespaces/{jobs}/jobs"
    kept: dict[str, Json] = {
        f"/api/v1/namespaces/{namespace}/secrets": {"metadata": {"name": "dispatcher-database"}},
        f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases": {"metadata": {"name": "dispatcher-leader"}},
    }
    async with installed(control_plane, namespace, old_objects(namespace, jobs)):
        kept[collection] = job
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


def a_pod() -> Json:
    return {"restartPolicy": "Never", "containers": [{"name": "task", "image": "x:1"}]}
