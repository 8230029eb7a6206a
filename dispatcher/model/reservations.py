"""NodeReservations, and the keys by which a reservation names a Pod."""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from dispatcher.model.amounts import Amounts
from dispatcher.model.identity import LABEL_TASK_ID

LANDED: Final = "Landed"

JOB_NAMES: Final = ("batch.kubernetes.io/job-name", "job-name")


class Reservation(Struct, frozen=True, gc=False):
    """A NodeReservation: an amount of a node that is held for a Pod to come.

    name: `namespace/name`.
    node: name of the node.
    amounts: held amount of each resource.
    target: one of the Pod's keys.
    made_at, ends_at: seconds of the API server's clock.
    phase, message: from its status.
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
        """Whether its target has landed. `Landed` is final. Decisions use no other phase."""
        return self.phase == LANDED


def key_of(kind: str, namespace: str, value: object) -> str:
    """A key that a reservation's target and its Pod share, such as `jobName builds/dispatcher-7-…`.

    `kind`: a field of the reservation's target.
    """
    return f"{kind} {namespace}/{value}"


def keys_of(
    namespace: str, name: str, uid: str, labels: Mapping[str, str], owners: Iterable[str]
) -> tuple[str, ...]:  # fmt: skip
    """All keys of a Pod, each once. Keys of kind `uid` have the uid of the Pod or of an owner, such as its Job."""
    jobs = {labels[label] for label in JOB_NAMES if label in labels}
    tasks = [labels[LABEL_TASK_ID]] if LABEL_TASK_ID in labels else []
    return (
        key_of("podName", namespace, name),
        *(key_of("uid", namespace, one) for one in dict.fromkeys((uid, *owners))),
        *(key_of("jobName", namespace, job) for job in sorted(jobs)),
        *(key_of("taskId", namespace, task) for task in tasks),
    )
