"""The record of a directory, from round to round."""

from collections.abc import Sequence

import pytest
from msgspec import Struct

from dispatcher.keeper.plan import Directory
from dispatcher.keeper.record import (
    MEASURED_IN_USE_SECONDS,
    Entry,
    Users,
    directories_of,
    noted,
    read_record,
    write_record,
)
from dispatcher.keeper.users import users_of

A, B = "a" * 40, "b" * 40


class APod(Struct, frozen=True):
    uid: str
    paths: Sequence[str]


def test_new_directory_counts_as_used_when_it_changed_last() -> None:
    assert noted({}, {A: 50}, Users(), Users(), 90) == {A: Entry(50, 50)}


def test_clock_of_a_folder_that_is_ahead_keeps_it_no_longer() -> None:
    assert noted({}, {A: 500}, Users(), Users(), 90) == {A: Entry(90, 90)}
    assert noted({A: Entry(1, 500)}, {A: 1}, Users(), Users(), 90)[A].last_use == 90, "the node's clock was set back"


def test_use_is_noted_and_each_pod_counts_once() -> None:
    first = noted({}, {A: 50}, Users({A: {"p1"}}), Users(), 90)
    assert first == {A: Entry(50, 90, uses=1)}
    second = noted(first, {A: 50}, Users({A: {"p1", "p2"}}), Users({A: {"p1"}}), 95)
    assert second == {A: Entry(50, 95, uses=2)}
    assert noted(second, {A: 50}, Users(), Users({A: {"p1"}}), 99) == second


def test_directory_that_is_gone_is_forgotten() -> None:
    assert noted({A: Entry(1, 1), B: Entry(2, 2)}, {B: 2}, Users(), Users(), 9) == {B: Entry(2, 2)}


@pytest.mark.parametrize(
    ("entry", "changed_at", "is_in_use", "needed"),
    [
        (Entry(1, 1), 1, False, True),  # never
        (Entry(1, 50, measured_at=60, changed_at=5), 5, False, False),
        (Entry(1, 70, measured_at=60, changed_at=5), 5, False, True),  # used since
        (Entry(1, 50, measured_at=60, changed_at=5), 6, False, True),  # its folder changed
        (Entry(1, 1000, measured_at=1000 - MEASURED_IN_USE_SECONDS + 1, changed_at=5), 6, True, False),
        (Entry(1, 1000, measured_at=1000 - MEASURED_IN_USE_SECONDS, changed_at=5), 6, True, True),
        (Entry(1, 1000, measured_at=2000, changed_at=5), 6, True, True),  # the clock was set back
    ],
)
def test_directory_is_measured_again_if_it_may_have_changed(
    entry: Entry, changed_at: float, is_in_use: bool, needed: bool
) -> None:
    assert entry.needs_measurement(changed_at, 1000, is_in_use=is_in_use) is needed


def test_directories_that_were_not_measured_yet_are_left_out() -> None:
    measured = Entry(1, 2, size=7, files=3, measured_at=5)
    assert directories_of({A: Entry(1, 1), B: measured}) == [Directory(B, 7, 3, 1, 2)]


@pytest.mark.parametrize("written", [b"", b"{", b"[]", b'{"a": {"first_use": "x"}}', b"\xff" * 9])
def test_record_that_cannot_be_read_is_empty(written: bytes) -> None:
    assert read_record(written) == {}


def test_record_is_read_as_it_was_written() -> None:
    entries = {A: Entry(1.5, 2.5, 3, 4, 5, 6.5, 7.5), B: Entry(1, 2)}
    assert read_record(write_record(entries)) == entries


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (f"/var/cache/{A}", {A}),
        (f"/var/cache//{A}/", {A}),
        (f"/var/./cache/{A}/deeper/still", {A}),
        ("/var/cache", {A, B}),
        ("/var/cache/", {A, B}),
        ("/var", {A, B}),
        ("/", {A, B}),
        ("/var/cache2", set()),
        (f"/var/cache2/{A}", set()),
        (f"/srv/{A}", set()),
    ],
)
def test_pod_uses_the_directories_that_it_can_reach(path: str, names: set[str]) -> None:
    assert users_of([APod("p", ["/elsewhere", path])], "/var/cache", {A, B}).names == names


def test_users_of_a_directory_are_told_by_uid() -> None:
    pods = [APod("p1", [f"/c/{A}"]), APod("p2", [f"/c/{A}", f"/c/{B}"]), APod("p3", [])]
    assert users_of(pods, "/c").pods == {A: {"p1", "p2"}, B: {"p2"}}
