"""The Pods of the built-in template at the Pod Security of the real API server."""

import pytest

from dispatcher.jobs.catalog import built_in
from dispatcher.jobs.templates import Template
from dispatcher.settings.loading import load
from tests.contract.in_force import pod_security_in_force
from tests.controlplane.api import Json, KubeFault
from tests.controlplane.cluster import ControlPlane


def a_pod(**settings: str) -> Json:
    loaded = load({f"DISPATCHER_{name}": given for name, given in {"IMAGE": "x:1", **settings}.items()}, str)
    template = built_in(loaded.settings.jobs)["default"]
    assert isinstance(template, Template)
    spec = template.manifest["spec"]["template"]["spec"]
    return {"metadata": {"name": "tried"}, "spec": {**spec, "restartPolicy": "Never"}}


async def try_at(plane: ControlPlane, namespace: str, level: str, pod: Json) -> None:
    await pod_security_in_force(plane, namespace, level)
    await plane.admin("POST", f"/api/v1/namespaces/{namespace}/pods", pod, params={"dryRun": "All"})


async def test_pod_passes_baseline(control_plane: ControlPlane, namespace: str) -> None:
    await try_at(control_plane, namespace, "baseline", a_pod())


async def test_pod_passes_restricted_by_one_setting(control_plane: ControlPlane, namespace: str) -> None:
    await try_at(control_plane, namespace, "restricted", a_pod(RUN_AS_NON_ROOT="true"))
    with pytest.raises(KubeFault, match=r"runAsNonRoot != true"):
        await try_at(control_plane, namespace, "restricted", a_pod())
