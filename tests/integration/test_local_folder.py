"""`python -m dispatcher_demo.node`: its folder holds the files of Pods, and only its own account can enter it."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from dispatcher_demo.cluster.cluster import EmbeddedCluster
from dispatcher_demo.cluster.kinds import POD, SECRET, Target
from tests.controlplane.waiting import wait_for

Json = dict[str, Any]
LEAVES = "echo log; echo left | tee $TMPDIR/left $CACHE/left; exit 3"
OPEN_UMASK = ("sh", "-c", 'umask 0; exec "$@"', "sh")
POD_SPEC: Json = {
    "nodeName": "n",
    "restartPolicy": "Never",
    "volumes": [{"name": "cache", "hostPath": {"path": "/cache"}}, {"name": "key", "secret": {"secretName": "key"}}],
    "containers": [{
        "name": "task", "image": "x:1", "command": ["sh", "-c", LEAVES],
        "env": [{"name": "CACHE", "value": "/cache"}],
        "envFrom": [{"secretRef": {"name": "key"}}],
        "volumeMounts": [{"name": "cache", "mountPath": "/cache"}, {"name": "key", "mountPath": "/key"}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }],
}  # fmt: skip


async def start(folder: Path, kubeconfig: Path) -> asyncio.subprocess.Process:
    asked = ("--name", "n", "--folder", str(folder), "--kubeconfig", str(kubeconfig))
    return await asyncio.create_subprocess_exec(
        *OPEN_UMASK, sys.executable, "-m", "dispatcher_demo.node", *asked, stderr=asyncio.subprocess.PIPE
    )


@pytest.mark.slow
async def test_files_of_a_pod_are_closed_to_other_accounts(tmp_path: Path) -> None:
    folder, pod = tmp_path / "node", Target(POD, "default", "a")
    async with EmbeddedCluster() as cluster:
        cluster.registry.create(Target(SECRET, "default"), {"metadata": {"name": "key"}, "data": {"KEY": "a2V5"}})
        cluster.registry.create(Target(POD, "default"), {"metadata": {"name": "a"}, "spec": POD_SPEC})
        kubelet = await start(folder, cluster.write_kubeconfig(tmp_path / "kubeconfig"))
        try:
            await wait_for(
                lambda: cluster.registry.get(pod).object["status"].get("phase") == "Failed", "the Pod ran", 20
            )
        finally:
            kubelet.terminate()
            await kubelet.communicate()
    found = [Path(top, name) for top, folders, files in os.walk(folder) for name in folders + files]
    names = {path.name for path in found}
    assert {"spec.json", "running.json", "ended.json", "alive", "log", "left", "cache", "KEY", "tmp"} <= names
    assert [(path, oct(path.stat().st_mode)) for path in [folder, *found] if path.stat().st_mode & 0o077] == []


@pytest.mark.parametrize("mode", [0o711, 0o750, 0o777])
async def test_folder_that_other_accounts_may_enter_is_refused(mode: int, tmp_path: Path) -> None:
    folder = tmp_path / "node"
    folder.mkdir()
    folder.chmod(mode)
    kubelet = await start(folder, tmp_path / "none")
    _, said = await kubelet.communicate()
    assert (kubelet.returncode, list(folder.iterdir())) == (2, [])
    assert f"{folder} is of account {os.geteuid()} with mode {mode:04o}" in said.decode()
