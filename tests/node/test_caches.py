"""The cache keeper of the chart on a real node: it removes what other users left, and has no right beyond that."""

import os
from pathlib import Path

from dispatcher.placement.placing import cache_digest
from tests.integration.cache_places import of_ours
from tests.node.confinement import STRICT, pods_of_ours, status_of_each_process
from tests.node.install import OURS, SETTINGS, upgrade
from tests.node.installation import Installation

NODE = "real-1"
DAC_OVERRIDE, FOWNER = 1, 3
"""Numbers of the capabilities (linux/capability.h)."""
OWN = f"{1 << DAC_OVERRIDE | 1 << FOWNER:016x}"
OF_KEEPER = STRICT | {"Uid": "\t".join(["0"] * 4), "CapPrm": OWN, "CapEff": OWN, "CapBnd": OWN}
SOMEBODY = 12345
DIGEST = cache_digest("dispatcher", "default", "maps")


def leave_files(cache: Path) -> None:
    """Files of a user who lets nobody else in."""
    closed = cache / "closed"
    closed.mkdir()
    (closed / "file").write_bytes(b"x" * 4096)
    for path, mode in ((closed / "file", 0), (closed, 0o1000)):
        os.chown(path, SOMEBODY, SOMEBODY)
        path.chmod(mode)


async def test_keeper_tells_what_a_task_left_and_removes_it(there: Installation, tmp_path: Path) -> None:
    plane, cache = there.site.plane, tmp_path / "dispatcher" / DIGEST
    settings, only = {**SETTINGS, "CACHE_ROOT": str(tmp_path)}, {"kubernetes.io/hostname": NODE}
    await upgrade(there.site, there.shell, settings=settings, cacheKeeper={"nodeSelector": only})
    try:
        row = await there.insert("sleep", 0.1, cache_key="maps")
        assert (await there.ended(row))["status"] == "succeeded"
        leave_files(cache)
        await there.shell.run(f"kubectl -n {OURS} rollout restart daemonset/dispatcher-cache-keeper")
        await there.shell.run(f"kubectl -n {OURS} rollout status daemonset/dispatcher-cache-keeper --timeout=60s")
        (pod,) = await pods_of_ours(there, "cache-keeper")
        assert status_of_each_process(pod) == {"cache-keeper": [OF_KEEPER]}
        told = f"kubectl -n {OURS} get configmap dispatcher-cache-{NODE} -o jsonpath='{{.data}}'"

        async def is_told() -> bool:
            return DIGEST in await there.shell.run(f"{told} || true")

        await plane.wait_for(is_told, "the keeper tells the directory", 30)
        explained = await there.shell.run(f"kubectl -n {OURS} exec deploy/dispatcher -- dispatcher status")
        assert "caches: 1 on 1 node" in explained
        await there.shell.run(f"dispatcher cache drop --namespace {OURS} --queue default --key maps")
        await there.shell.run(f"kubectl -n {OURS} delete pod {pod['metadata']['name']}")  # its next round is at once
        await plane.wait_for(lambda: not cache.exists(), "the keeper removes the directory", 60)
        await plane.wait_for(lambda: of_ours(tmp_path / "dispatcher") == [], "nothing is left of it", 30)
    finally:
        await upgrade(there.site, there.shell)
