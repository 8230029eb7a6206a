"""The body of a request: JSON of the right types, without unknown fields."""

from typing import Any, Final

import msgspec
from aiohttp import web

from dispatcher.local.cluster.faults import ApiFault, bad_request
from dispatcher.local.cluster.fields import unknown_fields
from dispatcher.local.cluster.kinds import JOB, Kind
from dispatcher.model.quantity import parse_quantity

Json = dict[str, Any]
MERGE_PATCH: Final = "application/merge-patch+json"
LARGEST_BODY: Final = 3 * 2**20
TYPES: Final[dict[str, type]] = {
    **dict.fromkeys(("metadata", "spec", "template", "labels", "annotations", "nodeSelector"), dict),
    **dict.fromkeys(("containers", "env", "args", "command", "tolerations", "volumes", "finalizers"), list),
    **dict.fromkeys(("name", "namespace", "generateName", "image", "value", "renewTime"), str),
    **dict.fromkeys(("backoffLimit", "activeDeadlineSeconds", "parallelism", "completions"), int),
    "suspend": bool,
}
"""Types of fields by name, at any depth: those fields that a template is likely to get wrong."""
AT_TOP: Final[dict[str, type]] = {"value": int}
"""Types of fields at the top of an object. `value`: that of a PriorityClass."""
TEXTS: Final = frozenset({"labels", "annotations", "nodeSelector", "stringData", "data"})
AMOUNTS: Final = frozenset({"requests", "limits"})
LARGEST: Final = 2**31 - 1
GO: Final[dict[type, str]] = {int: "int32", bool: "bool", str: "string", dict: "map", list: "slice"}


async def read_body(request: web.Request, kind: Kind) -> Json:
    """The body. ApiFault 400: it is not an object. ApiFault 415: its content type is not JSON."""
    wanted = MERGE_PATCH if request.method == "PATCH" else "application/json"
    try:
        text = await request.read()
    except web.HTTPRequestEntityTooLarge as fault:
        raise ApiFault(413, f"Request entity too large: limit is {LARGEST_BODY}") from fault
    if text and request.content_type != wanted:
        raise ApiFault(415, f"the body of the request was {request.content_type}, and only {wanted} is served")
    if not text and request.method == "DELETE":
        return {}
    found = decode(text)
    if request.method == "DELETE":
        return found
    check_types(found)
    unknown = sorted(unknown_fields(found)) if kind is JOB else []
    if unknown and request.query.get("fieldValidation") == "Strict":
        faults = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise bad_request(f'{kind.kind} in version "v1" cannot be handled: strict decoding error: {faults}')
    return found if request.method == "PATCH" else without_nulls(found)


def decode(text: bytes) -> Json:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as fault:
        raise bad_request(f"the body is not JSON: {fault}") from fault
    if not isinstance(found, dict) or not isinstance(found.get("status", {}), dict | None):
        raise bad_request(f"json: cannot unmarshal {type(found).__name__} into an object of the API")
    return found


def without_nulls(found: Any) -> Any:
    """The JSON without its null fields: null means absent."""
    if isinstance(found, list):
        return [without_nulls(one) for one in found]
    if not isinstance(found, dict):
        return found
    return {key: without_nulls(value) for key, value in found.items() if value is not None}


def check_types(given: Json, at: str = "") -> None:
    """ApiFault 400: a value has another type than its field."""
    for name, held in given.items():
        where = f"{at}{name}"
        wanted = AT_TOP.get(where) or TYPES.get(name)
        if held is not None and wanted and type(held) is not wanted:
            raise not_of_type(held, where, wanted)
        if isinstance(held, int) and held > LARGEST:
            raise not_of_type(held, where, int)
        if isinstance(held, dict) and name in TEXTS:
            check_texts(held, where)
        if isinstance(held, dict) and name in AMOUNTS:
            check_amounts(held, where)
        for one in held if isinstance(held, list) else [held]:
            if isinstance(one, dict):
                check_types(one, f"{where}.")


def not_of_type(held: object, where: str, wanted: type) -> ApiFault:
    return bad_request(f"json: cannot unmarshal {type(held).__name__} into the field {where} of type {GO[wanted]}")


def check_texts(held: Json, where: str) -> None:
    if not all(isinstance(one, str | None) for one in held.values()):
        raise not_of_type(held, where, str)


def check_amounts(held: Json, where: str) -> None:
    for amount in held.values():
        try:
            parse_quantity(str(amount))
        except ValueError as fault:
            raise bad_request(f"{where}: {fault}") from fault
