"""Writes `dispatcher/jobs/job_fields.json`, the fields of a Job and their types, from the API server of the tests.

tests/contract/test_job_fields.py compares the file with that server, so a new version of Kubernetes shows as a change
of the file. See `make docs`.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.controlplane.cluster import ControlPlane

FILE: Final = Path(__file__).parents[1] / "dispatcher" / "jobs" / "job_fields.json"
ROOT: Final = "io.k8s.api.batch.v1.Job"
SCALARS: Final = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "amount",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "integer or text",
}
"""Objects of the schema that are written as one value."""
PLAIN: Final = {"string": "text", "boolean": "boolean"}
Kind = dict[str, dict[str, str]]


def type_of(schema: Mapping[str, Any]) -> str:
    """One word; `[]X`: a list of X, `{}X`: an object whose values are X, a capital letter: a kind of the file."""
    named = schema.get("$ref") or next((one["$ref"] for one in schema.get("allOf", ()) if "$ref" in one), None)
    if named:
        name = named.rpartition("/")[2]
        return SCALARS.get(name) or name.rpartition(".")[2]
    if schema["type"] == "array":
        return f"[]{type_of(schema['items'])}"
    if schema["type"] == "object":
        return f"{{}}{type_of(schema['additionalProperties'])}"
    return PLAIN.get(schema["type"]) or schema["format"]  # int32, int64


def kinds_from(schemas: Mapping[str, Any]) -> Iterator[tuple[str, Kind]]:
    """Every kind of object that stands in a Job, by its short name."""
    by_name = {name.rpartition(".")[2]: schema for name, schema in schemas.items() if name not in SCALARS}
    open_, seen = [ROOT.rpartition(".")[2]], set[str]()
    while open_:
        if (name := open_.pop()) in seen or name not in by_name:
            continue
        seen.add(name)
        schema = by_name[name]
        if "properties" not in schema:  # a time, or fields of any name
            yield name, {}
            continue
        fields = {field: type_of(each) for field, each in schema["properties"].items()}
        needed = set(schema.get("required", ()))
        yield name, {"needed": {one: fields[one] for one in sorted(needed)}, "others": {
            one: fields[one] for one in sorted(set(fields) - needed)
        }}  # fmt: skip
        open_ += [kind.lstrip("[]{}") for kind in fields.values()]


async def fields_of(plane: ControlPlane) -> str:
    answer = await plane.admin("GET", "/openapi/v3/apis/batch/v1")
    kinds = dict(kinds_from(answer["components"]["schemas"]))
    lines = (f"{json.dumps(name)}: {json.dumps(kinds[name])}" for name in sorted(kinds))
    return "{\n" + ",\n".join(lines) + "\n}\n"


async def main() -> None:
    async with ControlPlane() as plane:
        FILE.write_text(await fields_of(plane), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
