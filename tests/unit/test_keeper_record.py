"""The record of a directory, from round to round."""

from collections.abc import Sequence

import msgspec
import pytest
from msgspec import Struct

from dispatcher.keeper.plan import (
    MEASURED_IN_USE_SECONDS,
    Directory,
    DirectoryRecord,
    Users,
    directories_of,
    noted,
    read_record,
    users_of,
    write_record,
)

A, B = "a" * 40, "b" * 40


class APod(Struct, frozen=True):
    uid: str
    paths: Sequence[str]


def test_new_directory_counts_as_used_when_it_changed_last() -> None:
    assert noted({}, {A: 50}, Users(), Users(), 90) == {A: DirectoryRecord(50, 50)}


def test_clock_of_a_folder_that_is_ahead_keeps_it_no_longer() -> None:
    assert noted({}, {A: 500}, Users(), Users(), 90) == {A: DirectoryRecord(90, 90)}
    assert noted({A: DirectoryRecord(1, 500)}, {A: 1}, Users(), Users(), 90)[A].last_use == 90, (
        "the node's clock was set back"
    )


def test_use_is_noted_and_each_pod_counts_once() -> None:
    first = noted({}, {A: 50}, Users({A: {"p1"}}), Users(), 90)
    assert first == {A: DirectoryRecord(50, 90, uses=1)}
    second = noted(first, {A: 50}, Users({A: {"p1", "p2"}}), Users({A: {"p1"}}), 95)
    assert second == {A: DirectoryRecord(50, 95, uses=2)}
    assert noted(second, {A: 50}, Users(), Users({A: {"p1"}}), 99) == second


def test_directory_that_is_gone_is_forgotten() -> None:
    assert noted({A: DirectoryRecord(1, 1), B: DirectoryRecord(2, 2)}, {B: 2}, Users(), Users(), 9) == {
        B: DirectoryRecord(2, 2)
    }


@pytest.mark.parametrize(
    ("entry", "changed_at", "is_in_use", "needed"),
    [
        (DirectoryRecord(1, 1), 1, False, True),  # never
        (DirectoryRecord(1, 50, measured_at=60, changed_at=5), 5, False, False),
        (DirectoryRecord(1, 70, measured_at=60, changed_at=5), 5, False, True),  # used since
        (DirectoryRecord(1, 50, measured_at=60, changed_at=5), 6, False, True),  # its folder changed
        (DirectoryRecord(1, 1000, measured_at=1000 - MEASURED_IN_USE_SECONDS + 1, changed_at=5), 6, True, False),
        (DirectoryRecord(1, 1000, measured_at=1000 - MEASURED_IN_USE_SECONDS, changed_at=5), 6, True, True),
        (DirectoryRecord(1, 1000, measured_at=2000, changed_at=5), 6, True, True),  # the clock was set back
    ],
)
def test_directory_is_measured_again_if_it_may_have_changed(
    entry: DirectoryRecord, changed_at: float, is_in_use: bool, needed: bool
) -> None:
    assert entry.needs_measurement(changed_at, 1000, is_in_use=is_in_use) is needed


def test_size_is_not_sure_if_it_may_have_changed_or_was_measured_in_part() -> None:
    measured = DirectoryRecord(1, 2, size=7, files=3, measured_at=5)
    in_part = msgspec.structs.replace(measured, is_whole=False)
    assert directories_of({A: DirectoryRecord(1, 1), B: measured}, {A}) == [
        Directory(A, 0, 0, 1, 1, is_sure=False), Directory(B, 7, 3, 1, 2),
    ]  # fmt: skip
    assert directories_of({A: in_part}, {A}) == [Directory(A, 7, 3, 1, 2, is_sure=False)], "it was something else then"
    assert directories_of({A: in_part}) == [Directory(A, 7, 3, 1, 2, is_whole=False, is_sure=False)]


@pytest.mark.parametrize("written", [b"", b"{", b"[]", b'{"a": {"first_use": "x"}}', b"\xff" * 9])
def test_record_that_cannot_be_read_is_empty(written: bytes) -> None:
    assert read_record(written) == {}


def test_record_is_read_as_it_was_written() -> None:
    entries = {A: DirectoryRecord(1.5, 2.5, 3, 4, 5, 6.5, 7.5), B: DirectoryRecord(1, 2)}
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
