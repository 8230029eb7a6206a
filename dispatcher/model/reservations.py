"""NodeReservations, and the names by which a reservation may call a Pod."""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from dispatcher.model.amounts import Amounts
from dispatcher.model.identity import LABEL_TASK_ID

LANDED: Final = "Landed"

JOB_NAMES: Final = ("batch.kubernetes.io/job-name", "job-name")


class Reservation(Struct, frozen=True, gc=False):
    """A NodeReservation: so much of a node is held for a Pod still to come. `name` with its namespace; `target`: one of
    the Pod's keys; `made_at` and `ends_at` in seconds of the API server's clock; `phase` and `message`: as its status
    says.
    """

    name: str
    uid: str
    node: str
    amounts: Amounts
    target: str
    ends_at: float
    made_at: float = 0
    phase: str = ""
    message: str = ""

    @property
    def has_landed(self) -> bool:
        """For good: of what a status says, this alone counts."""
        return self.phase == LANDED


def key_of(kind: str, namespace: str, value: object) -> str:
    """What a reservation is for, and what a Pod answers to: `jobName builds/dispatcher-7-…`. `kind`: a field of the
    reservation's target.
    """
    return f"{kind} {namespace}/{value}"


def keys_of(
    namespace: str, name: str, uid: str, labels: Mapping[str, str], owners: Iterable[str]
) -> tuple[str, ...]:  # fmt: skip
    """All that a Pod answers to, each once. `uid` is that of the Pod, or of its Job (`owners`)."""
    jobs = {labels[label] for label in JOB_NAMES if label in labels}
    tasks = [labels[LABEL_TASK_ID]] if LABEL_TASK_ID in labels else []
    return (
        key_of("podName", namespace, name),
        *(key_of("uid", namespace, one) for one in dict.fromkeys((uid, *owners))),
        *(key_of("jobName", namespace, job) for job in sorted(jobs)),
        *(key_of("taskId", namespace, task) for task in tasks),
    )
