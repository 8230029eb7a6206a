"""`dispatcher demo --kubeconfig`: the samples on the user's own cluster, which is left as it was."""

import yaml

from dispatcher.programs.demo.samples import shell_template
from tests.demoing import demo
from tests.dispatching import Place
from tests.noding import POOL, nodes


async def test_rows_run_as_jobs_of_a_real_cluster_and_none_is_left(place: Place) -> None:
    plane, manifest = place.control_plane, shell_template()
    manifest["spec"]["template"]["spec"]["nodeSelector"] = {POOL: place.namespace}
    template, config = place.folder / "own.yaml", place.folder / "admin.kubeconfig"
    template.write_text(yaml.safe_dump(manifest))
    plane.kubeconfig(config, token=plane.admin_token, namespace=place.namespace)
    asked = "--plain", "--tasks", 3, "--kubeconfig", config, "--template", template
    async with nodes(place, "one"), demo(*asked) as shown:
        assert await shown.ends(90) == 0, shown.said
        assert "3 succeeded" in shown.said, shown.said
        assert "task 3 (default) succeeded" in shown.said
        assert await place.jobs() == []
        leases = await plane.admin("GET", f"/apis/coordination.k8s.io/v1/namespaces/{place.namespace}/leases")
        assert leases["items"] == []
