"""What the API refuses, as the metav1.Status that says so."""

from typing import Any, Final

from msgspec import Struct

REASONS: Final = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed",
    409: "Conflict", 410: "Expired", 413: "RequestEntityTooLarge", 415: "UnsupportedMediaType", 422: "Invalid",
    500: "", 504: "Timeout",
}  # fmt: skip


class Cause(Struct, frozen=True):
    """One fault of one field; `reason` as field.ErrorType: FieldValueRequired, FieldValueInvalid…"""

    field: str
    reason: str
    message: str


class ApiFault(Exception):
    """A request is refused; `status` is the whole answer."""

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
    """Of a request itself, not of an object."""
    details = {"causes": [{"reason": reason, "message": message, "field": field}]}
    return ApiFault(422, f"{field}: {message}", details=details)


def not_found() -> ApiFault:
    return ApiFault(404, "the server could not find the requested resource", details={})


def missing(group: str, plural: str, name: str) -> ApiFault:
    details = {"name": name, "group": group, "kind": plural}
    what = f"{plural}.{group}" if group else plural
    return ApiFault(404, f'{what} "{name}" not found', details={k: v for k, v in details.items() if v})


def conflict(group: str, plural: str, name: str, why: str, reason: str = "Conflict") -> ApiFault:
    details = {"name": name, "group": group, "kind": plural}
    what = f"{plural}.{group}" if group else plural
    return ApiFault(409, f'{what} "{name}" {why}', reason, {k: v for k, v in details.items() if v})


def invalid(group: str, kind: str, name: str, causes: list[Cause]) -> ApiFault:
    """Every fault of the object at once."""
    told = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
    details: dict[str, Any] = {"name": name, "group": group, "kind": kind, "causes": told}
    words = [f"{cause.field}: {cause.message}" for cause in causes]
    listed = words[0] if len(words) == 1 else f"[{', '.join(words)}]"
    what = f"{kind}.{group}" if group else kind
    return ApiFault(422, f'{what} "{name}" is invalid: {listed}', details={k: v for k, v in details.items() if v})


def expired(message: str) -> ApiFault:
    return ApiFault(410, message)
