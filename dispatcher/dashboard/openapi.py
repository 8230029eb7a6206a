"""The description of the API in OpenAPI 3.1, made from the types of its answers."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from dispatcher.explain.explanation import Explanation
from dispatcher.explain.listing import Page
from dispatcher.explain.nodes import NodeStatus
from dispatcher.explain.status import InstallationStatus, QueueStatus
from dispatcher.model.history import Wanted

API: Final = "/api/v1"
Json = dict[str, Any]
REF: Final = "#/components/schemas/{name}"


class Fault(Struct, frozen=True):
    """Why there is no answer, and what to do."""

    error: str


class Answer(Struct, frozen=True):
    """What one address of the API answers.

    body: type of the answer.
    refusals: why there is a Fault instead, by status.
    path: the parameter in the path; empty: none.
    query: type of the parameters in the query; None: there are none.
    """

    summary: str
    body: Any
    refusals: Mapping[int, str]
    path: str = ""
    query: type[Struct] | None = None


AWAY: Final = {503: "no cycle has ended yet, or the database cannot be read"}
ANSWERS: Final[Mapping[str, Answer]] = {
    "/status": Answer("The whole installation.", InstallationStatus, AWAY),
    "/queues": Answer("Every queue.", list[QueueStatus], AWAY),
    "/queues/{name}": Answer("One queue.", QueueStatus, {404: "there is no such queue", **AWAY}, "name"),
    "/nodes": Answer("Every node, and its free room.", list[NodeStatus], {404: "no node is watched", **AWAY}),
    "/tasks": Answer("A page of rows, the newest first.", Page, {400: "no such filter", **AWAY}, query=Wanted),
    "/tasks/{id}/explain": Answer(
        "Why a row waits, and what became of its launches.", Explanation,
        {400: "no id of a row", 404: "there is no such row", **AWAY}, "id",
    ),
}  # fmt: skip


def openapi(version: str) -> Json:
    """The whole description."""
    schemas, components = msgspec.json.schema_components(
        [*(one.body for one in ANSWERS.values()), Fault], ref_template=REF
    )
    paths = {
        API + path: {"get": operation(answer, schema)}
        for (path, answer), schema in zip(ANSWERS.items(), schemas[:-1], strict=True)
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "dispatcher", "version": version, "summary": "Why does a row wait? Everything is read-only."},
        "paths": paths,
        "components": {"schemas": components},
    }


def operation(answer: Answer, schema: Json) -> Json:
    refusals = {
        str(status): described(why, {"$ref": REF.format(name="Fault")}) for status, why in answer.refusals.items()
    }
    parameters = [*path_parameters(answer), *query_parameters(answer)]
    return {
        "summary": answer.summary,
        **({"parameters": parameters} if parameters else {}),
        "responses": {"200": described(answer.summary, schema), **refusals},
    }


def described(words: str, schema: Json) -> Json:
    return {"description": words, "content": {"application/json": {"schema": schema}}}


def path_parameters(answer: Answer) -> Iterator[Json]:
    if answer.path:
        kind = {"type": "integer", "minimum": 1} if answer.path == "id" else {"type": "string"}
        yield {"name": answer.path, "in": "path", "required": True, "schema": kind}


def query_parameters(answer: Answer) -> Iterator[Json]:
    if answer.query is not None:
        schema = msgspec.json.schema(answer.query)
        fields: Json = schema["$defs"][answer.query.__name__]["properties"]
        for name, field in fields.items():
            yield {"name": name, "in": "query", "required": False, "schema": inlined(field, schema["$defs"])}


def inlined(field: Any, definitions: Json) -> Any:
    """The schema without references: parameters stand outside the components of the answers."""
    if isinstance(field, dict) and "$ref" in field:
        return definitions[field["$ref"].rpartition("/")[2]]
    if isinstance(field, dict):
        return {key: inlined(value, definitions) for key, value in field.items()}
    return [inlined(one, definitions) for one in field] if isinstance(field, list) else field
