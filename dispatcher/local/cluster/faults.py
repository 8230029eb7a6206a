"""Refusals of the API, as metav1.Status."""

from typing import Any, Final

import msgspec
from msgspec import Struct

from dispatcher.local.cluster.kinds import Kind, Target

REASONS: Final = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed",
    409: "Conflict", 410: "Expired", 413: "RequestEntityTooLarge", 415: "UnsupportedMediaType", 422: "Invalid",
    500: "", 504: "Timeout",
}  # fmt: skip


class Cause(Struct, frozen=True):
    """One fault of one field. `reason`: a field.ErrorType, like FieldValueRequired or FieldValueInvalid."""

    field: str
    reason: str
    message: str


class ApiFault(Exception):
    """A refused request. `status`: the whole answer."""

    def __init__(self, code: int, message: str, reason: str = "", details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status: dict[str, Any] = {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason or REASONS[code], "code": code,
        } | ({} if details is None else {"details": details})  # fmt: skip


def bad_request(message: str) -> ApiFault:
    return ApiFault(400, message)


def unprocessable(field: str, reason: str, message: str) -> ApiFault:
    """The fault of a request itself, not of an object."""
    details = {"causes": [{"reason": reason, "message": message, "field": field}]}
    return ApiFault(422, f"{field}: {message}", details=details)


def not_found() -> ApiFault:
    return ApiFault(404, "the server could not find the requested resource", details={})


def missing(target: Target) -> ApiFault:
    return about(404, target.kind, target.name, "not found")


def conflict(target: Target, why: str, reason: str = "") -> ApiFault:
    fault = about(409, target.kind, target.name, why, reason)
    if target.part == "binding":
        fault.status["details"]["kind"] = "pods/binding"
    return fault


def invalid(kind: Kind, name: str, causes: list[Cause]) -> ApiFault:
    """All faults of an object at once."""
    words = ", ".join(f"{cause.field}: {cause.message}" for cause in causes)
    fault = about(422, kind, name, f"is invalid: {words if len(causes) == 1 else f'[{words}]'}")
    fault.status["details"] |= {"kind": kind.kind, "causes": [msgspec.to_builtins(cause) for cause in causes]}
    return fault


def about(code: int, kind: Kind, name: str, words: str, reason: str = "") -> ApiFault:
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    what = (kind.kind if code == 422 else kind.plural) + (f".{kind.group}" if kind.group else "")
    return ApiFault(code, f'{what} "{name}" {words}', reason, {key: value for key, value in details.items() if value})


def expired(message: str) -> ApiFault:
    return ApiFault(410, message)
