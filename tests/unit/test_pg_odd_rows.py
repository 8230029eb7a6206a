"""What a row holds that no Job can be made of is that row's fault, and no fault of the look."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dispatcher.admission.dispatch import readable
from dispatcher.model.tasks import Request
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.pg.connect import EPOCH, FEWEST, FIRST, LAST, MOST, read_time, write_time
from dispatcher.pg.tasks import NO_JOB, read_kind, read_request
from tests.unit.scanning import a_candidate

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
