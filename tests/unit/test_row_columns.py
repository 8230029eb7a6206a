"""The columns of a row as JSON and as jsonb, and rows that no Job can be made of.

tests/integration/test_row_columns.py compares them with Postgres.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dispatcher.admission.dispatch import readable
from dispatcher.jobs.row_check import column_faults
from dispatcher.model import stored_json as here
from dispatcher.model.stored_json import NotStoredJson, stored_json
from dispatcher.model.tasks import Request
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.pg.connect import EPOCH, FEWEST, FIRST, LAST, MOST, read_time, write_time
from dispatcher.pg.tasks import NO_JOB, read_kind, read_request
from tests.unit.scanning import a_candidate


@pytest.mark.parametrize(
    ("row", "name", "words"),
    [
        ({"timeot_seconds": 1}, "timeot_seconds", "did you mean timeout_seconds?"),
        ({"zzz": 1}, "zzz", "they are queue, priority"),
        ({"status": "waiting"}, "status", "the functions of the database keep this column"),
        ({"priority": 1001}, "priority", "Expected `int` <= 1000"),
        ({"timeout_seconds": "9"}, "timeout_seconds", "Expected `int | null`, got `str`"),
        ({"run_at": 5}, "run_at", "got `int`"),
        ({"env": {"A": 1}}, "env.A", "Expected `str`, got `int`"),
        ({"env": []}, "env", "Expected `object`, got `array`"),
        ({"spec": {"cpu": 2}}, "spec.cpu", "Expected `str`, got `int`"),
        ({"spec": {"id": 2}}, "spec.id", "not among the keys of spec"),
        ({"spec": {"args": ["a", 2]}}, "spec.args", "Expected `str`, got `int` (at [1])"),
        ({"labels": {"a": 7}}, "labels.a", "Expected `str`, got `int`"),
        ({"labels": {"": "x"}}, "labels", "length >= 1"),
        ({"cache_key": ""}, "cache_key", "length >= 1"),
    ],
)
def test_column_that_insert_refuses_is_named(row: dict[str, Any], name: str, words: str) -> None:
    ((found, told),) = column_faults(row)
    assert (found, words in told) == (name, True), told


def test_all_faults_are_named_at_once() -> None:
    row = {"priority": -1, "spec": {"cpu": 1, "x": 2}, "env": {"A": 1, "B": None}}
    assert [name for name, _ in column_faults(row)] == ["priority", "spec.cpu", "spec.x", "env.A", "env.B"]


def test_row_within_the_rules_has_no_fault() -> None:
    spec = {"image": "r/a:1", "command": ["a"], "args": [], "cpu": "500m", "memory": "1Gi", "private_machine": "a-1"}
    row = {"queue": "q", "spec": spec, "env": {"A": "1"}, "payload": None, "run_at": "2030-01-01T00:00:00Z"}
    assert list(column_faults(row | {"cache_key": None, "labels": {"a": "b"}, "timeout_seconds": None})) == []


def fault_of(text: str) -> NotStoredJson:
    with pytest.raises(NotStoredJson) as raised:
        stored_json(text)
    return raised.value


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        (" null ", "null"),
        ("[]", "[]"),
        ("{}", "{}"),
        ("[1,[true],{}]", "[1, [true], {}]"),
        ('{"b":1,"aa":[2],"a":{"c":3},"b":4}', '{"a": {"c": 3}, "b": 4, "aa": [2]}'),
        ('"\\u00e9\\u0007\\n"', '"é\\u0007\\n"'),
        ("1.50", "1.50"),
        ("1.5E+1", "15"),
        ("-1e-3", "-0.001"),
        ("-0.0", "0.0"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
    ],
)
def test_value_is_written_as_jsonb_writes_it(text: str, stored: str) -> None:
    assert stored_json(text) == stored


@pytest.mark.parametrize(
    ("text", "rule", "detail"),
    [
        ("", here.NO_SYNTAX, "line 1, column 1: the text ends too early"),
        ('{"a":\n [1', here.NO_SYNTAX, "line 2, column 4: the text ends too early"),
        ("[1,\n nope]", here.NO_SYNTAX, "line 2, column 2: 'nope]' is no JSON"),
        ("{'a': 1}", here.NO_SYNTAX, "line 1, column 2: \"'a': 1}\" is no JSON"),
        ("1 2", here.NO_SYNTAX, "line 1, column 3: '2' instead of the end of the text"),
        ("[1 2]", here.NO_SYNTAX, "line 1, column 4: '2' instead of `,`"),
        ("[1}", here.NO_SYNTAX, "line 1, column 3: '}' instead of `,`"),
        ("[1,]", here.NO_SYNTAX, "line 1, column 4: ']' instead of a value"),
        ('{"a" 1}', here.NO_SYNTAX, "line 1, column 6: '1' instead of `:`"),
        ("{1: 2}", here.NO_SYNTAX, "line 1, column 2: '1' instead of a key in double quotes"),
        ('{"a": 1,}', here.NO_SYNTAX, "line 1, column 9: '}' instead of a key in double quotes"),
        (":", here.NO_SYNTAX, "line 1, column 1: ':' instead of a value"),
        ('"\\x"', here.NO_SYNTAX, "line 1, column 1: a string with a wrong escape"),
        ('"\\ud800"', here.NO_SYNTAX, "line 1, column 1: half of a surrogate pair, or no UTF-8"),
        ('{"a": "\\u0000"}', here.NO_ESCAPE, "line 1, column 7: \\u0000 cannot be converted to text."),
        ('"a\0"', here.NO_NUL, "line 1, column 3"),
        ("1e999999", here.TOO_LONG, "line 1, column 1: a number with too many digits"),
        ("1e99999999999999999999", here.TOO_LONG, "line 1, column 1: a number with too many digits"),
        ("1e-16384", here.TOO_LONG, "line 1, column 1: a number with too many digits"),
        ("[" * 5001, here.TOO_DEEP, "line 1, column 5001: more than 5000 levels"),
    ],
)
def test_text_that_no_column_keeps_is_refused_with_its_place(text: str, rule: str, detail: str) -> None:
    fault = fault_of(text)
    assert (fault.rule, fault.detail) == (rule, detail)
    assert str(fault) == f"{rule}\nDETAIL:  {detail}"


DEEP = "[" * 9000 + "]" * 9000


def request(**changes: Any) -> Request:
    return read_request({"id": 7, "attempt": 1, "env": "{}", "spec": "{}", "cache_key": None, **changes})  # type: ignore[arg-type]  # as a record


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"spec": "null"}, NO_JOB),
        ({"spec": f'{{"command": {DEEP}}}'}, NO_JOB),
        ({"spec": '{"cpu": 1e131071}'}, NO_JOB),
        ({"env": '{"A": 1e131071}'}, NO_JOB),
        ({"spec": '{"command": 7}'}, NO_JOB),
        ({"spec": '{"args": ["a", null]}'}, NO_JOB),
        ({"spec": '{"command": "sh"}'}, "spec.command has a value of a wrong type"),
        ({"spec": '{"image": ["a"]}'}, "spec.image has a value of a wrong type"),
    ],
)
def test_request_that_cannot_be_read_has_a_fault(columns: dict[str, str], words: str) -> None:
    assert words in request(**columns).fault


def test_request_of_texts_has_none() -> None:
    found = request(env='{"A": "b"}', spec='{"command": ["sh"], "cpu": "1"}')
    assert (found.env, found.spec, found.fault) == ({"A": "b"}, {"command": ["sh"], "cpu": "1"}, "")


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({}, ""),
        ({"are_objects": False, "spec": None}, "env or spec is no object"),
        ({"spec": '{"cpu": 1e131071}'}, NO_JOB),
    ],
)
def test_kind_says_why_it_cannot_be_read(columns: dict[str, Any], fault: str) -> None:
    row: dict[str, Any] = {
        "kind": b"k",
        "template": "t",
        "timeout_seconds": None,
        "spec": "{}",
        "spec_names": [],
        "env_names": [],
    }
    assert read_kind({**row, "are_objects": True, **columns}).fault == fault  # type: ignore[arg-type]  # as a record


def test_row_with_a_faulty_request_is_held_and_others_are_not() -> None:
    good, bad = a_candidate(1), a_candidate(2)
    requests = {id_: Request(id_, 1, {}, {}, None, fault) for id_, fault in ((1, ""), (2, "spec.cpu is odd"))}
    first, second = readable([good, bad], requests)
    assert first is good
    assert second.offer == Hold(HoldReason.POLICY_DENIED, "spec.cpu is odd")


@pytest.mark.parametrize("time", [EPOCH, FIRST, LAST, datetime(2026, 11, 26, 7, 30, 0, 123456, tzinfo=UTC)])
def test_time_comes_back_as_it_was(time: datetime) -> None:
    assert read_time(write_time(time)) == time


@pytest.mark.parametrize(
    ("written", "read"), [(2**63 - 1, LAST), (-(2**63), FIRST), (MOST + 1, LAST), (FEWEST - 1, FIRST)]
)
def test_time_that_python_has_not_is_the_nearest_one_with_room(written: int, read: datetime) -> None:
    assert read_time((written,)) == read
    assert read + timedelta(days=7) > read > read - timedelta(days=7)
