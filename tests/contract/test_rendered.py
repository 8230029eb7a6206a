"""`deploy/rendered` by kubectl alone: the API server accepts everything, and a second apply changes nothing."""

from pathlib import Path

import pytest

from tests.contract.helming import Helm
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.operator_kinds import operator_kinds
from tests.rig.deployed import RENDERED, VARIANTS, rendered

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
