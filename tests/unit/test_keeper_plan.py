"""Which cache directories go: by age, by size, and by the marks of the disk. Never one that is in use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dispatcher.keeper.plan import DAY, Directory, Disk, Marks, Removal, RemovalCause, plan_removals

NOW = 100 * DAY
MARKS = Marks(high=0.8, low=0.7, max_age_days=30)


def a_directory(name: str, days: float, size: int = 10, files: int = 1) -> Directory:
    return Directory(name, size, files, NOW - 90 * DAY, NOW - days * DAY)


def told(removals: list[Removal]) -> list[tuple[str, RemovalCause]]:
    return [(one.directory.name, one.cause) for one in removals]


def plan(
    *directories: Directory, in_use: str = "", used: int = 0, marks: Marks = MARKS
) -> list[tuple[str, RemovalCause]]:
    return told(list(plan_removals(directories, set(in_use), Disk(used, 100 - used), marks, NOW)))


def test_nothing_goes_while_the_disk_is_not_above_the_high_mark() -> None:
    assert plan(a_directory("a", 1), a_directory("b", 29), used=80) == []


def test_least_recently_used_directories_go_until_the_low_mark() -> None:
    directories = [a_directory(name, days) for name, days in zip("abcd", (3, 1, 4, 2), strict=True)]
    assert plan(*directories, used=85) == [("c", RemovalCause.DISK), ("a", RemovalCause.DISK)]


def test_directories_of_the_same_time_go_in_the_order_of_their_names() -> None:
    assert plan(a_directory("b", 1), a_directory("a", 1), used=81) == [
        ("a", RemovalCause.DISK),
        ("b", RemovalCause.DISK),
    ]


def test_directory_in_use_stays_whatever_its_age_and_size() -> None:
    marks = Marks(0.8, 0.7, 30, max_bytes=5)
    assert plan(a_directory("a", 90, size=50), in_use="a", used=99, marks=marks) == []


def test_directory_that_was_not_used_for_too_long_goes() -> None:
    assert plan(a_directory("a", 30), a_directory("b", 31)) == [("b", RemovalCause.AGE)]
    assert plan(a_directory("b", 31), marks=Marks(0.8, 0.7, 0)) == [], "0: never"


def test_largest_of_the_directories_that_are_too_large_goes_first() -> None:
    marks = Marks(0.8, 0.7, 30, max_bytes=20)
    directories = [a_directory("a", 1, size=21), a_directory("b", 2, size=30), a_directory("c", 3, size=20)]
    assert plan(*directories, marks=marks) == [("b", RemovalCause.SIZE), ("a", RemovalCause.SIZE)]


def test_directory_that_somebody_wants_to_go_goes_first_unless_it_is_newer_than_the_order() -> None:
    marks = Marks(0.8, 0.7, 30, ordered={"a": NOW, "b": NOW - 95 * DAY, "c": NOW, "gone": NOW})
    found = plan(a_directory("c", 40), a_directory("b", 1), a_directory("a", 1), a_directory("d", 50), marks=marks)
    assert found == [("c", RemovalCause.ORDER), ("a", RemovalCause.ORDER), ("d", RemovalCause.AGE)]
    assert plan(a_directory("a", 1), in_use="a", marks=marks) == []


def test_directory_goes_once_if_it_is_both_old_and_large() -> None:
    assert plan(a_directory("a", 40, size=50), used=99, marks=Marks(0.8, 0.7, 30, 5)) == [("a", RemovalCause.AGE)]


def test_space_of_old_directories_counts_for_the_low_mark() -> None:
    assert plan(a_directory("a", 40, size=15), a_directory("b", 5), used=85) == [("a", RemovalCause.AGE)]


def test_old_directory_goes_once_if_the_disk_is_full_after_it() -> None:
    assert plan(a_directory("a", 40, size=1), a_directory("b", 5, size=50), used=99) == [
        ("a", RemovalCause.AGE), ("b", RemovalCause.DISK),
    ]  # fmt: skip


def test_nothing_goes_after_a_directory_whose_size_is_not_sure() -> None:
    """Others would go in its place. The disk is asked after its removal."""
    unsure = replace(a_directory("a", 9, size=0), is_sure=False)
    assert plan(unsure, a_directory("b", 8), a_directory("c", 7), used=99) == [("a", RemovalCause.DISK)]
    assert plan(a_directory("b", 10), unsure, a_directory("c", 7), used=99) == [
        ("b", RemovalCause.DISK),
        ("a", RemovalCause.DISK),
    ]
    old = replace(unsure, last_use=NOW - 40 * DAY)
    assert plan(old, a_directory("b", 8), used=99) == [("a", RemovalCause.AGE)]


def test_directory_that_was_measured_in_part_counts_as_too_large() -> None:
    in_part = replace(a_directory("a", 1, size=0), is_whole=False, is_sure=False)
    assert plan(in_part, marks=Marks(0.8, 0.7, 0, max_bytes=20)) == [("a", RemovalCause.SIZE)]
    assert plan(in_part, marks=Marks(0.8, 0.7, 0)) == [], "no size is too large"


def test_inodes_have_the_same_marks_as_bytes() -> None:
    directories = [a_directory("a", 2, files=5), a_directory("b", 1, files=5)]
    full = Disk(10, 90, used_files=74, free_files=16)
    assert told(list(plan_removals(directories, set(), full, MARKS, NOW))) == [
        ("a", RemovalCause.DISK), ("b", RemovalCause.DISK),
    ]  # fmt: skip


def test_file_system_without_a_number_of_inodes_counts_bytes_alone() -> None:
    assert Disk(75, 25).used_part == 0.75
    assert Disk(0, 0).used_part == 0


def test_removal_frees_no_more_than_is_used() -> None:
    """A measurement may be older than the disk's."""
    assert Disk(5, 95, 3, 7).without(a_directory("a", 1, size=10, files=9)) == Disk(0, 100, 0, 10)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40), st.booleans()), max_size=20), st.integers(0, 100))
def test_plan_keeps_the_marks_and_its_order(made: list[tuple[int, int, bool]], used: int) -> None:
    directories = [a_directory(f"{number:02}", days, size) for number, (days, size, _) in enumerate(made)]
    in_use = {one.name for one, (_, _, is_used) in zip(directories, made, strict=True) if is_used}
    disk = Disk(used, 100 - used)
    found = plan_removals(directories, in_use, disk, MARKS, NOW)
    names = [one.directory.name for one in found]
    assert len(names) == len(set(names))
    assert not in_use & set(names)
    for_disk = [one.directory for one in found if one.cause is RemovalCause.DISK]
    assert for_disk == sorted(for_disk, key=lambda one: (one.last_use, one.name))
    for one in found:
        disk = disk.without(one.directory)
    idle = {one.name for one in directories} - in_use - set(names)
    assert used <= 80 or disk.used_part <= MARKS.low or not idle


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
def test_used_part_is_between_nothing_and_everything(part: float) -> None:
    assert Disk(round(part * 100), 100 - round(part * 100)).used_part == part
