"""The description of the API fits the API: addresses, parameters, and the types of its answers."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from dispatcher.model.history import RowFilter
from dispatcher.views.answers import ADDRESSES, API, openapi
from dispatcher.views.explanation import Explanation
from dispatcher.views.server import Dashboard

FOUND = openapi("1.2.3")


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        yield from ([part["$ref"]] if "$ref" in part else [])
        for value in part.values():
            yield from references(value)
    elif isinstance(part, list):
        for one in part:
            yield from references(one)


def test_every_address_of_the_api_is_described_and_no_other() -> None:
    app = Dashboard(None, None, None).app()  # type: ignore[arg-type]  # nothing is asked
    served = {
        route.resource.canonical
        for route in app.router.routes()
        if route.resource and route.resource.canonical.startswith(API)
    }
    assert served == {API + path for path in ADDRESSES} | {f"{API}/openapi.json"}
    assert set(FOUND["paths"]) == served - {f"{API}/openapi.json"}


def test_every_reference_leads_to_a_type() -> None:
    found = set(references(FOUND))
    assert found == {f"#/components/schemas/{name}" for name in FOUND["components"]["schemas"]}


def test_parameters_of_a_path_are_those_in_its_braces() -> None:
    for path, described in FOUND["paths"].items():
        named = {one["name"] for one in described["get"].get("parameters", ()) if one["in"] == "path"}
        assert named == set(re.findall(r"{(\w+)}", path))


def test_filters_are_those_of_the_list_of_rows() -> None:
    (rows,) = [described for path, described in FOUND["paths"].items() if path.endswith("/tasks")]
    by_name = {one["name"]: one["schema"] for one in rows["get"]["parameters"]}
    assert set(by_name) == set(RowFilter.__struct_fields__)
    assert not list(references(list(by_name.values())))
    assert by_name["limit"] == {"type": "integer", "minimum": 1, "maximum": 500, "default": 100}


def test_the_names_of_an_explanation_are_public() -> None:
    fields = FOUND["components"]["schemas"]["Explanation"]["properties"]
    assert set(fields) == set(Explanation.__struct_fields__) == {
        "task", "status", "queue", "attempt", "reason", "message", "since", "as_of", "whose_turn", "next_step",
        "position", "position_of", "before", "nodes", "also", "estimate", "launches", "cache",
    }  # fmt: skip


def test_the_version_is_told_and_all_is_json() -> None:
    assert FOUND["info"]["version"] == "1.2.3"
    assert msgspec.json.decode(msgspec.json.encode(FOUND))["openapi"] == "3.1.0"


@pytest.mark.parametrize("name", ["env", "payload", "result", "start_key", "run_digest", "token"])
def test_no_answer_has_a_field_for_what_a_row_keeps_to_itself(name: str) -> None:
    schemas = FOUND["components"]["schemas"].values()
    assert not [schema for schema in schemas if name in schema.get("properties", {})]


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [described["get"]["operationId"] for described in FOUND["paths"].values()]
    assert len(set(names)) == len(names) == len(ADDRESSES)
    assert all(re.fullmatch("get[A-Z][A-Za-z]+", name) for name in names)


def test_every_status_that_any_address_may_send_is_described() -> None:
    fault = {"schema": {"$ref": "#/components/schemas/ApiRefusal"}}
    for path, described in FOUND["paths"].items():
        told = described["get"]["responses"]
        assert {"200", "400", "403", "429", "503"} <= set(told), path
        assert all(one["content"]["application/json"] == fault for status, one in told.items() if status != "200")


def test_parameters_tell_what_they_take() -> None:
    by_path = {path.removeprefix(API): one["get"].get("parameters", ()) for path, one in FOUND["paths"].items()}
    schemas = {path: {one["name"]: one["schema"] for one in given} for path, given in by_path.items()}
    assert schemas["/tasks/{id}"]["id"] == {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}
    label = schemas["/tasks"]["label"]["anyOf"][0]["pattern"].replace("\\u0000", "\x00")
    assert [bool(re.search(label, one)) for one in ("a=b", "a=", "=b", "a", "a=\0")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    text = schemas["/batches"]["batch"]["anyOf"][0]["pattern"].replace("\\u0000", "\x00")
    assert [bool(re.search(text, one)) for one in ("", "nightly 5", "a\0")] == [True, True, False]
