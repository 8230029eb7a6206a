"""Our own Pods on real nodes: strict, small, and without a login that they do not use."""

from pathlib import Path

from tests.controlplane.api import Json
from tests.node.book import Book
from tests.node.confinement import STRICT, pids_of, pods_of_ours, status_of_each_process, wrong_in_specification
from tests.node.install import OURS
from tests.node.installation import Installation

MOST_BYTES = 120 * 2**20
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


async def test_every_container_of_ours_asks_for_confinement(there: Installation) -> None:
    pods = await pods_of_ours(there)
    assert len(pods) >= 3  # two replicas, the janitor
    assert [wrong for pod in pods if (wrong := wrong_in_specification(pod))] == []


async def test_every_process_of_ours_is_confined_by_the_kernel(there: Installation) -> None:
    """Read from the kernel: what a specification asks for could be ignored."""
    found = [status_of_each_process(pod) for pod in await pods_of_ours(there)]
    told = [status for one in found for statuses in one.values() for status in statuses]
    assert len(told) >= 3  # two replicas and the janitor
    assert [status for status in told if status != STRICT] == []


async def test_migration_has_no_token(there: Installation) -> None:
    """Its Pod may be gone with its node, so its Job is read."""
    migration, *_ = await there.jobs(OURS, **{"app.kubernetes.io/component": "migrate"})
    pod = migration["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert "token" not in str(pod).lower().replace("automountserviceaccounttoken", "")
    of_run = [str(pod["spec"]) for pod in await pods_of_ours(there, "run")]
    assert of_run
    assert all(ACCOUNT in text for text in of_run)


async def test_no_program_of_ours_was_restarted(there: Installation) -> None:
    restarts = [one["restartCount"] for pod in await pods_of_ours(there) for one in pod["status"]["containerStatuses"]]
    assert set(restarts) == {0}


async def test_each_program_takes_at_most_120_mib(there: Installation, book: Book) -> None:
    pods = [pod for pod in await pods_of_ours(there) if pod["status"]["phase"] == "Running"]
    taken = {pod["metadata"]["name"]: resident(pod) for pod in pods}
    for name, size in taken.items():
        book.note(f"memory of {name.rpartition('-')[0].rpartition('-')[0]}", f"{size / 2**20:.0f} MiB")
    assert len(taken) >= 3  # two replicas, the janitor
    assert {name: size for name, size in taken.items() if not 0 < size <= MOST_BYTES} == {}


def resident(pod: Json) -> int:
    """Bytes of memory that the processes of the Pod have in use."""
    return sum(map(kib_of, pids_of(pod))) * 1024


def kib_of(pid: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
