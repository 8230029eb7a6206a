"""The description of the API in OpenAPI 3.1, made from the types of its answers."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from dispatcher.dashboard.addresses import ADDRESSES, API, Address, Fault

Json = dict[str, Any]
REF: Final = "#/components/schemas/{name}"


def openapi(version: str) -> Json:
    """The whole description."""
    schemas, components = msgspec.json.schema_components(
        [*(one.body for one in ADDRESSES.values()), Fault], ref_template=REF
    )
    paths = {
        API + path: {"get": operation(address, schema)}
        for (path, address), schema in zip(ADDRESSES.items(), schemas[:-1], strict=True)
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "dispatcher", "version": version, "summary": "Why does a row wait? Everything is read-only."},
        "paths": paths,
        "components": {"schemas": components},
    }


def operation(address: Address, schema: Json) -> Json:
    refusals = {
        str(status): described(why, {"$ref": REF.format(name="Fault")}) for status, why in address.refusals.items()
    }
    parameters = [*path_parameters(address), *query_parameters(address)]
    return {
        "summary": address.summary,
        **({"parameters": parameters} if parameters else {}),
        "responses": {"200": described(address.summary, schema), **refusals},
    }


def described(words: str, schema: Json) -> Json:
    return {"description": words, "content": {"application/json": {"schema": schema}}}


def path_parameters(address: Address) -> Iterator[Json]:
    if address.path:
        kind = {"type": "integer", "minimum": 1} if address.path == "id" else {"type": "string"}
        yield {"name": address.path, "in": "path", "required": True, "schema": kind}


def query_parameters(address: Address) -> Iterator[Json]:
    if address.query is not None:
        schema = msgspec.json.schema(address.query)
        fields: Json = schema["$defs"][address.query.__name__]["properties"]
        for name, field in fields.items():
            yield {"name": name, "in": "query", "required": False, "schema": inlined(field, schema["$defs"])}


def inlined(field: Any, definitions: Json) -> Any:
    """The schema without references: parameters stand outside the components of the answers."""
    if isinstance(field, dict) and "$ref" in field:
        return definitions[field["$ref"].rpartition("/")[2]]
    if isinstance(field, dict):
        return {key: inlined(value, definitions) for key, value in field.items()}
    return [inlined(one, definitions) for one in field] if isinstance(field, list) else field
