"""The columns of a row as JSON. tests/integration/test_row_columns.py compares them with INSERT."""

from typing import Any

import pytest

from dispatcher.jobs.row_check import column_faults


@pytest.mark.parametrize(
    ("row", "name", "words"),
    [
        ({"timeot_seconds": 1}, "timeot_seconds", "did you mean timeout_seconds?"),
        ({"zzz": 1}, "zzz", "they are queue, priority"),
        ({"status": "waiting"}, "status", "the functions of the database keep this column"),
        ({"priority": 1001}, "priority", "Expected `int` <= 1000"),
        ({"timeout_seconds": "9"}, "timeout_seconds", "Expected `int | null`, got `str`"),
        ({"run_at": "soon"}, "run_at", "Invalid RFC3339"),
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
