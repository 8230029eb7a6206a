"""The Debian packages of the node suite, and whether this machine can run the suite.

python -m tests.node.packages     installs the missing ones
"""

import os
import sys
from typing import Final

from tests import debian
from tests.debian import CannotRun

NEEDED: Final = (
    "buildah",  # builds the images
    "busybox-static",  # the task image without Python
    "containerd",
    "containernetworking-plugins",
    "curl",  # a line of the operator's page
    "e2fsprogs",  # makes the small disk of a node
    "iproute2",
    "mmdebstrap",  # makes the base image
    "runc",
)


def check_machine() -> None:
    """CannotRun: not Linux, not root, or no Debian."""
    if os.geteuid() != 0:
        raise CannotRun("real nodes need namespaces, mounts and cgroups: run `make node` as root")
    if not debian.has_apt():
        raise CannotRun(f"real nodes are made of Debian packages, and here is no apt-get: {' '.join(NEEDED)}")
    if not os.access("/sys/fs/cgroup", os.W_OK):
        raise CannotRun("real nodes need cgroups that can be written: /sys/fs/cgroup")
    if not os.access("/dev/loop-control", os.R_OK):
        raise CannotRun("the small disk of a node is a file, which needs a loop device: /dev/loop-control")


def install() -> None:
    """Installs the missing packages. CannotRun: this machine cannot run the suite, or apt-get failed."""
    check_machine()
    debian.install(NEEDED)


if __name__ == "__main__":
    try:
        install()
    except CannotRun as reason:
        sys.exit(str(reason))
