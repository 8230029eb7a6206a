"""The history checker in cases that are rare on real servers: races, gaps of a watch, lines of the audit log."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tests.faults.history import careless_deletes, most_at_once, starts_fall, two_at_once
from tests.faults.history_reading import Sight, lives_of_sights, read_lines, writes_of
from tests.faults.history_records import Life, Start

NOW = datetime(2026, 3, 14, 12, tzinfo=UTC)


def test_taken_over_launch_may_have_asked_last() -> None:
    """Both launches wait for the row lock. `started_at` is the time at which each began to wait."""
    low, high = NOW + timedelta(milliseconds=2), NOW + timedelta(milliseconds=1)
    taken_over = [Start((1, 1, 1), "a", "t", low, ended_at=high), Start((1, 1, 2), "b", "u", high)]
    assert starts_fall(taken_over) == []
    assert starts_fall([replace(taken_over[0], ended_at=low), taken_over[1]]) != []


def test_job_follows_another_of_its_row_only_once_that_one_is_over() -> None:
    first, second = Life((1, 1, 1), "a", 0.0, ended=5.0), Life((1, 1, 2), "b", 5.0)
    assert two_at_once([second, first]) == []
    assert two_at_once([second, replace(first, ended=5.1)]) == ["I1: b made while ['a'] unfinished"]
    assert two_at_once([second, replace(first, ended=None)]) != []
    assert two_at_once([replace(second, key=(2, 1, 1)), replace(first, ended=None)]) == []


def test_job_missing_from_the_next_list_is_over() -> None:
    def sight(type_: str, name: str, *, is_over: bool = False) -> Sight:
        return Sight(type_, name, name and f"uid-{name}", (1, 1, 1) if name else None, is_over)

    end_of_list = sight("LIST", "")
    sights = [sight("LIST", "a"), sight("LIST", "old", is_over=True), end_of_list]
    sights += [sight("ADDED", "b"), sight("MODIFIED", "b", is_over=True), sight("DELETED", "b")]
    sights += [sight("ADDED", "c"), end_of_list, sight("ADDED", "d"), sight("DELETED", "d")]
    lives = {life.name: (life.began, life.ended) for life in lives_of_sights(sights)}
    assert lives == {"a": (1, 6), "old": (1, 1), "b": (2, 3), "c": (5, 6), "d": (7, 8)}


def test_jobs_that_end_and_begin_between_two_lists_do_not_overlap() -> None:
    """In an outage of the watch a Job ended and another Job of its row was created."""
    key, end_of_list = (1, 1, 1), Sight("LIST", "", "", None, False)
    before = [Sight("LIST", "old", "1", key, False), Sight("LIST", "gone", "2", key, False), end_of_list]
    after = [Sight("LIST", "new", "3", key, False), Sight("LIST", "newer", "4", key, False)]
    after += [Sight("LIST", "old", "1", key, True), end_of_list]
    assert most_at_once(lives_of_sights(before + after)) == 2


def deleted(stage: str = "ResponseComplete") -> bytes:
    """The audit log's line of a delete of Job `a`."""
    written = {
        "stage": stage,
        "verb": "delete",
        "user": {"username": "us:dispatcher"},
        "objectRef": {"resource": "jobs", "namespace": "here", "name": "a"},
        "responseStatus": {"code": 200},
        "requestReceivedTimestamp": NOW,
        "stageTimestamp": NOW,
        "requestObject": {},
    }
    return msgspec.json.encode(written) + b"\n"


def test_incomplete_unanswered_and_foreign_audit_lines_are_skipped(tmp_path: Path) -> None:
    whole = deleted()
    elsewhere = whole.replace(b'"here"', b'"there"')
    (tmp_path / "log").write_bytes(whole + elsewhere + deleted("ResponseStarted") + whole[:-1])
    (write,) = writes_of(read_lines(tmp_path / "log", "here"), "us:")
    assert (write.is_ours, write.verb, write.resource, write.name, write.code) == (True, "delete", "jobs", "a", 200)
    (careless,) = careless_deletes([write])
    assert careless.endswith("without resourceVersion, uid, propagationPolicy")
