"""The Debian packages of the node suite, and whether this machine can run the suite.

With them come a pooler, and those that check the SQL functions. Debian 12 alone has the latter.

python -m tests.node.packages     installs the missing ones
"""

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.rig import debian
from tests.rig.debian import CannotRun

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
POSTGRES: Final = ("postgresql-15", "postgresql-15-plpgsql-check")  # for tests/integration/test_function_bodies.py
POOLER: Final = ("pgbouncer",)  # for tests/integration/test_pgbouncer.py
NO_CLUSTER: Final = Path("/etc/postgresql-common/createcluster.d/tests-of-the-dispatcher.conf")
"""A file of Debian's settings for new clusters. The package reads it when it is installed."""


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
    if debian.missing(names()):
        with without_cluster():
            debian.install(names())


def names() -> tuple[str, ...]:
    is_debian_12 = platform.freedesktop_os_release().get("VERSION_CODENAME") == "bookworm"
    return NEEDED + POOLER + (POSTGRES if is_debian_12 else ())


@contextmanager
def without_cluster() -> Iterator[None]:
    """Meanwhile, a new package of Postgres makes and starts no server of its own on this machine."""
    NO_CLUSTER.parent.mkdir(parents=True, exist_ok=True)
    NO_CLUSTER.write_text("create_main_cluster = false\n")
    try:
        yield
    finally:
        NO_CLUSTER.unlink()
        with suppress(OSError):  # the folder has files of others
            NO_CLUSTER.parent.rmdir()
            NO_CLUSTER.parent.parent.rmdir()


if __name__ == "__main__":
    try:
        install()
    except CannotRun as reason:
        sys.exit(str(reason))
