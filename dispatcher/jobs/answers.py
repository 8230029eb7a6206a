"""The meaning of the API server's answers to a create (docs/protocol.md, section 4)."""

from collections.abc import Iterable
from enum import StrEnum

from dispatcher.model.jobs import ApiAnswer, Job


class Meaning(StrEnum):
    """Whether a Job was made, and why not."""

    CREATED = "created"
    EXISTS = "exists"  # ours or foreign: a GET is needed
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
    """The meaning of one answer. An answer that does not say for certain that no Job was made is UNKNOWN."""
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
    """Which of the four causes a 403 has. Kubernetes has a code for one of them. The others differ only by their text
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
    """Whether the API server itself says that the object does not exist. A 404 from a proxy is not believed."""
    return answer.status == 404 and answer.is_told


def are_over(jobs: Iterable[Job], identity: str) -> bool:
    """Whether all Jobs of the row are finished. The first create of a later attempt waits for this (section 4)."""
    return all(job.is_finished for job in jobs if job.identity == identity)
