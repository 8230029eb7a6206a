"""Where the node suite runs: its network, and whether this process is in it."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.node.packages import check_machine
from tests.rig.debian import CannotRun

FOLDER: Final = "NODE_SUITE"
"""Variable with the folder of the run. `python -m tests.node` sets it in the namespaces that it makes."""
SERVICES: Final = "10.0.0.1"
"""Address of all servers. It is the first one of the cluster's Services, so Pods find the API server there."""
API_PORT: Final = 443
EVERYBODY: Final = "10.0.0.0/8"
REGISTRY: Final = "127.0.0.1:5000"
"""On loopback, because containerd pulls from other addresses by TLS alone."""


def why_not_here() -> str | None:
    """Why the suite cannot run in this process. None: it can."""
    if FOLDER in os.environ:
        return None
    try:
        check_machine()
    except CannotRun as reason:
        return str(reason)
    return "real nodes need namespaces of their own: run `make node`"


def ip(*words: str) -> None:
    run("ip", *words)


def run(*words: object) -> str:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, words))}: {done.stderr}"
    return done.stdout


def make_network(bridges: Sequence[tuple[str, int]]) -> None:
    """Loopback with the address of the servers, and a bridge for each node, by name and number.

    A bridge without an address of its own would take that of a Pod, and change it when the Pod ends.
    """
    ip("link", "set", "lo", "up")
    ip("address", "add", f"{SERVICES}/32", "dev", "lo")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    for name, number in bridges:
        ip("link", "add", name, "address", f"02:00:00:00:00:{number:02x}", "type", "bridge")
        ip("address", "add", f"{gateway(number)}/24", "dev", name)
        ip("link", "set", name, "up")


def gateway(number: int) -> str:
    """The node's own address, and that of its bridge."""
    return f"10.244.{number}.1"
