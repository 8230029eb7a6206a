"""Free loopback ports for the servers of the tests, which run in several processes at once.

A port is handed out before its server listens on it. So looking whether it is free is not enough: another process would
find the same port free, and the second server could not start. Each process therefore takes a block of ports for
itself alone, by a lock that ends with the process, and hands out the ports of its block in turn.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from functools import cache
from itertools import cycle, islice
from pathlib import Path

from dispatcher_demo.postgres import is_free

# Below the kernel's range for clients. A client that calls a stopped server again and again could otherwise get the
# server's port for itself, connect to itself, and keep the server from starting.
FIRST, LAST = 20_000, 30_000
BLOCK = 500


def free_ports(count: int) -> list[int]:
    """Distinct ports on which nobody listens and which no other process of the tests hands out."""
    turn = _own_ports(os.getpid())
    free = (port for port in islice(turn, BLOCK) if is_free(port))
    found = list(islice(free, count))
    assert len(found) == count, f"fewer than {count} of the {BLOCK} ports of this process are free"
    return found


@cache
def _own_ports(pid: int) -> Iterator[int]:
    """The ports of this process, again and again. A fork has another pid, and so takes a block of its own."""
    folder = Path(tempfile.gettempdir()) / f"dispatcher-test-ports-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for first in range(FIRST, LAST, BLOCK):
        lock = os.open(folder / str(first), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return cycle(range(first, first + BLOCK))
    raise AssertionError(f"all blocks of ports are taken; {folder} has their locks, and `lslocks` tells the processes")
