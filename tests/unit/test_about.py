"""The page about the installation, with nothing secret; and the description of the API, which fits the API."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dispatcher.model.cluster import StoreAge
from dispatcher.model.history import RowFilter
from dispatcher.settings.loading import load
from dispatcher.views.about import DOCS, AboutPage, AboutSources, Election, ReplicaCondition, about_page, stale_after
from dispatcher.views.answers import ADDRESSES, API, openapi
from dispatcher.views.explanation import Explanation
from dispatcher.views.server import Dashboard
from dispatcher.views.status import InstallationIdentity
from tests.rig.builders import NOW

ROOT = Path(__file__).parents[2]
NEVER = float("inf")
PASSWORD = "planted-secret-30be"


WELL = ReplicaCondition({}, "", ())


def a_page(condition: ReplicaCondition = WELL, **environ: str) -> AboutPage:
    settings = load(
        {f"DISPATCHER_{name}": value for name, value in environ.items()}, lambda path: f"read {path}"
    ).sources
    named = InstallationIdentity("builds", "1.2.3", "jobs", "me")
    election = Election("ours", "builds-leader", "somebody", leads=False)
    return about_page(AboutSources(named, settings, lambda: election, lambda: condition), NOW)


def test_replica_and_leader_are_told() -> None:
    page = a_page()
    assert (page.installation, page.version, page.jobs_namespace, page.replica) == ("builds", "1.2.3", "jobs", "me")
    assert (page.own_namespace, page.lease, page.leader, page.leads) == ("ours", "builds-leader", "somebody", False)


def test_settings_are_told_with_their_origin_and_without_secrets() -> None:
    by_name = {one.name: one for one in a_page(DATABASE_URL=f"postgresql://a:{PASSWORD}@db/x", MAX_JOBS="7").settings}
    assert (by_name["DISPATCHER_MAX_JOBS"].value, by_name["DISPATCHER_MAX_JOBS"].origin) == ("7", "environment")
    assert (by_name["DISPATCHER_POLL_SECONDS"].value, by_name["DISPATCHER_POLL_SECONDS"].origin) == ("2", "default")
    assert by_name["DISPATCHER_DATABASE_URL"].value == "(hidden)"
    assert PASSWORD not in str(by_name)
    (url,) = [one for one in a_page(DATABASE_URL_FILE="/run/url").settings if one.name == "DISPATCHER_DATABASE_URL"]
    assert (url.value, url.origin) == ("(hidden)", "file /run/url")


@pytest.mark.parametrize(
    ("one", "age", "most", "is_stale"),
    [
        (StoreAge("jobs", 9.12345, 100), 9.123, 100, False),
        (StoreAge("jobs", 100.5, 100), 100.5, 100, True),
        (StoreAge("jobs", 1, 100, "not listed yet"), 1, 100, True),
        (StoreAge("jobs", NEVER, 100), None, 100, True),
        (StoreAge("counts", NEVER, NEVER), None, None, False),
        (StoreAge("counts", 5000, NEVER), 5000, None, False),
        (StoreAge("jobs", -0.1, 100), 0, 100, False),
    ],
)
def test_store_is_stale_by_its_age_or_its_fault(
    one: StoreAge, age: float | None, most: float | None, is_stale: bool
) -> None:
    page = a_page(ReplicaCondition({}, "", [one]))
    (found,) = page.stores
    assert (found.age_seconds, found.stale_after_seconds, found.is_stale, found.fault) == (
        age,
        most,
        is_stale,
        one.fault,
    )
    assert b"Infinity" not in msgspec.json.encode(page)


def test_replica_is_ready_if_no_check_names_a_fault() -> None:
    assert a_page(ReplicaCondition({"database": "", "leader": ""}, "", ())).is_ready
    page = a_page(ReplicaCondition({"database": "gone", "leader": ""}, "a; b", ()))
    assert (page.is_ready, [one.fault for one in page.checks], page.missing_rights) == (False, ["gone", ""], ["a", "b"])


def test_store_that_is_read_often_is_not_stale_at_once() -> None:
    assert (stale_after(2), stale_after(100)) == (30, 300)


def test_pages_that_are_named_are_in_the_repository() -> None:
    assert [name for name in DOCS if not (ROOT / name).exists()] == []


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
        "position", "position_of", "before", "nodes", "also", "estimate", "launches", "cache", "leads",
    }  # fmt: skip


def types_in(answer: Any) -> dict[str, Any]:
    """The types of an answer by name, and of all its parts."""
    found, left = dict[str, Any](), [answer]
    while left:
        names = {reference.rpartition("/")[2] for reference in references(left.pop())} - found.keys()
        found |= {name: FOUND["components"]["schemas"][name] for name in names}
        left += [found[name] for name in names]
    return found


def test_answer_with_reasons_of_rows_says_whether_its_replica_leads() -> None:
    """Only the leader knows what the API server refuses. For another replica such a row is in line."""
    bodies = {path.removeprefix(API): types_in(one["get"]["responses"]["200"]) for path, one in FOUND["paths"].items()}
    silent = {
        path
        for path, types in bodies.items()
        if "HoldReason" in types and not any("leads" in one.get("properties", ()) for one in types.values())
    }
    assert silent == {"/queues", "/batches"}, "they have numbers by reason, and rows that have failed"


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
