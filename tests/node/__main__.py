"""`python -m tests.node COMMAND…` prepares the node suite, and runs the command in namespaces of its own.

* Packages, images and programs are made first, because they need the machine's network.
* The command gets a network without any way out, and its own mounts and processes. All that it starts ends with it,
  even if it is killed. No server of it can be reached from the machine.
* Its temporary folder and its cgroups are removed at the end. Those of a killed run are removed by the next run.

On a machine that cannot run real nodes the command runs as it is: its tests say why they are skipped.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.controlplane.binaries import CONTROL_PLANE, CRANE, HELM, KUBECTL, KUBELET, BuildFault, programs
from tests.node import ahead
from tests.node.book import SIZES, add
from tests.node.cgroups import PREFIX, Cgroups, remove_abandoned
from tests.node.images import BuildFailed, images
from tests.node.packages import check_machine, install
from tests.node.place import FOLDER
from tests.node.versions import baseline
from tests.rig.debian import CannotRun

NAMESPACES: Final = ("unshare", "--net", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child")
FIRST: Final = '"$@"; exit $?'
"""The first process of a PID namespace: a shell, because it also ends the processes that nobody waits for."""


def main(command: list[str]) -> int:
    try:
        check_machine()
    except CannotRun as reason:
        sys.stderr.write(f"{reason}\n")
        return subprocess.run(command, check=False).returncode
    try:
        install()
        for module in (CONTROL_PLANE, HELM, KUBECTL, CRANE, KUBELET):
            programs(module)
        if ahead.why_not_here() is None:
            ahead.kubelet_ahead()
        images()
        baseline()
    except (CannotRun, BuildFault, BuildFailed) as fault:
        sys.exit(str(fault))
    remove_abandoned()
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    folder.chmod(0o711)  # Postgres runs as an account of its own
    cgroups = Cgroups(f"{PREFIX}{os.getpid()}")
    try:
        environ = os.environ | {FOLDER: str(folder), "TMPDIR": str(folder), "NODE_CGROUP": cgroups.name}
        signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is for the command, which ends by it
        began = time.monotonic()
        status = subprocess.run(inside(command), env=environ, check=False).returncode
        if SIZES.exists():
            add(SIZES, "the whole command", f"{time.monotonic() - began:.0f} s")
        return status
    finally:
        cgroups.remove()
        keep_logs(folder)
        shutil.rmtree(folder)


def keep_logs(folder: Path) -> None:
    """Copies the logs of the nodes to where those of the control plane are kept."""
    if kept := os.environ.get("CONTROL_PLANE_LOGS"):
        for log in folder.glob("real-*/*.log"):
            shutil.copy(log, Path(kept) / f"{log.parent.name}-{log.name}")


def inside(command: list[str]) -> list[str]:
    die_with_us = ["setpriv", "--pdeathsig", "KILL"]
    return [*die_with_us, *NAMESPACES, "--mount-proc", "/bin/sh", "-c", FIRST, "sh", *command]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
