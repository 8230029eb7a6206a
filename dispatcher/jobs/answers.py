"""What the API server's answer to a create means (docs/protocol.md, section 4)."""

from collections.abc import Iterable
from enum import StrEnum

from dispatcher.model.jobs import ApiAnswer, Job


class Meaning(StrEnum):
    """Whether a Job was made, and who has to act."""

    CREATED = "created"
    EXISTS = "exists"  # ours or foreign: a GET tells
    QUOTA = "quota"
    TERMINATING = "terminating"
    NO_NAMESPACE = "no-namespace"
    FORBIDDEN = "forbidden"
    DENIED = "denied"
    UNAUTHORIZED = "unauthorized"
    POISON = "poison"
    NOT_SENT = "not-sent"
    UNKNOWN = "unknown"  # maybe made: counts as active, and the same POST is sent again


POISON_STATUS = frozenset({400, 413, 422})


def read_create(answer: ApiAnswer) -> Meaning:
    """Meaning of one answer. Everything that does not say for certain "not made" is UNKNOWN."""
    if not answer.is_sent:
        return Meaning.NOT_SENT
    if 200 <= answer.status < 300:
        return Meaning.CREATED
    if not answer.is_told:
        return Meaning.UNKNOWN
    if answer.status in POISON_STATUS:
        return Meaning.POISON
    if answer.status == 409 and answer.reason == "AlreadyExists":
        return Meaning.EXISTS
    return {401: Meaning.UNAUTHORIZED, 403: read_forbidden(answer), 404: Meaning.NO_NAMESPACE}.get(
        answer.status, Meaning.UNKNOWN
    )


def read_forbidden(answer: ApiAnswer) -> Meaning:
    """Which 403. Kubernetes has a code for one of the four alone; the others differ by their text only
    (apiserver `responsewriters/errors.go` and quota `admission/resourcequota/controller.go`).
    """
    if "NamespaceTerminating" in answer.causes:
        return Meaning.TERMINATING
    if "exceeded quota: " in answer.message or "status unknown for quota: " in answer.message:
        return Meaning.QUOTA
    if "is forbidden: User " in answer.message and " cannot create resource " in answer.message:
        return Meaning.FORBIDDEN
    return Meaning.DENIED


def is_absent(answer: ApiAnswer) -> bool:
    """The API server itself says that there is no such object; a proxy's 404 is nobody's word."""
    return answer.status == 404 and answer.is_told


def are_over(jobs: Iterable[Job], identity: str) -> bool:
    """What a later attempt's first create waits for: no Job of the row is unfinished (docs/protocol.md, section 4)."""
    return all(job.is_finished for job in jobs if job.identity == identity)
