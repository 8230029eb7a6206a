"""The cache keeper: which directories go, the record of each from round to round, and how often it tells of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from dispatcher.keeper.keeping import CacheRounds, Round
from dispatcher.keeper.plan import (
    DAY,
    MEASURED_IN_USE_SECONDS,
    Directory,
    DirectoryRecord,
    Disk,
    Marks,
    Removal,
    RemovalCause,
    Users,
    directories_of,
    noted,
    plan_removals,
    read_record,
    users_of,
    write_record,
)
from dispatcher.keeper.program import FIRST_SECONDS, TELL_SECONDS, WARN_SECONDS, KeeperReport, KeptNode
from dispatcher.kube.client import KubeClient, Reply
from dispatcher.kube.config_maps import read_cache_pod
from dispatcher.kube.credentials import Login, TokenFile
from dispatcher.model.jobs import Notice
from dispatcher.runtime.clock import elapsed
from dispatcher.settings.loading import load

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


def test_directories_stay_while_the_disk_is_not_above_the_high_mark() -> None:
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


def test_directory_with_an_order_to_go_is_first_unless_it_is_newer() -> None:
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


def test_directory_of_unsure_size_is_the_last_that_goes() -> None:
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


DISK = Disk(900, 100, 9, 1)


class Cluster:
    """The node, its clock and what was written."""

    def __init__(self) -> None:
        self.name, self.time, self.client = "n1", 1_800_000_000.0, None
        self.maps = self
        self.written: list[str] = []
        self.told: list[Notice] = []

    def now(self) -> float:
        return self.time

    async def write(self, name: str, _key: str, text: str) -> bool:
        assert name == "cache-n1"
        self.written.append(text)
        return True

    async def tell(self, notice: Notice) -> None:
        self.told.append(notice)


def telling(found: Round | None) -> tuple[KeeperReport, Cluster, Any]:
    cluster, keeping = Cluster(), SimpleNamespace(found=found)
    made = KeeperReport(cast("CacheRounds", keeping), cast("KeptNode", cluster), load({}, str).settings)
    made._events = cluster  # type: ignore[assignment]  # the same method
    return made, cluster, keeping


def a_round(sizes: Mapping[str, int], **facts: Any) -> Round:
    return Round([Directory(name, size, 1, 0, 0) for name, size in sizes.items()], frozenset(), DISK, **facts)


async def test_keeper_tells_nothing_before_its_first_round() -> None:
    made, cluster, _ = telling(None)
    assert await made.run_once() < TELL_SECONDS
    assert cluster.written == []


async def test_first_words_wait_a_while_for_the_sizes() -> None:
    made, cluster, _ = telling(Round([Directory("a" * 40, 0, 0, 0, 0, is_sure=False)], frozenset(), DISK))
    assert await made.run_once() < TELL_SECONDS
    assert cluster.written == []
    cluster.time += FIRST_SECONDS
    assert await made.run_once() == TELL_SECONDS
    assert len(cluster.written) == 1


async def test_words_are_written_once_a_minute_at_most_and_only_if_they_are_new() -> None:
    made, cluster, keeping = telling(a_round({"a" * 40: 1_000_000}))
    assert [await made.run_once() for _ in range(3)] == [TELL_SECONDS] * 3
    assert len(cluster.written) == 1
    keeping.found = a_round({"a" * 40: 1_000_900})
    await made.run_once()
    assert len(cluster.written) == 1, "a little more is the same in words"
    keeping.found = a_round({"a" * 40: 2_000_000})
    await made.run_once()
    assert len(cluster.written) == 2
    assert 1000 / TELL_SECONDS < 17


async def test_full_disk_is_told_once_an_hour() -> None:
    made, cluster, _ = telling(a_round({}, is_stuck=True))
    for _ in range(3):
        await made.run_once()
    (notice,) = cluster.told
    assert (notice.kind, notice.name, notice.is_warning, "90% full" in notice.words) == ("Node", "/n1", True, True)
    cluster.time += WARN_SECONDS
    await made.run_once()
    assert len(cluster.told) == 2


def a_mounting_pod(uid: str, path: str) -> dict[str, Any]:
    return {"metadata": {"name": uid, "uid": uid}, "spec": {"volumes": [{"hostPath": {"path": path}}]}}


class Listed(KubeClient):
    """Lists these Pods, whatever is asked for."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        super().__init__(Login("http://127.0.0.1:1", None, TokenFile(Path("/none")).read, "jobs"))
        self.pods = pods

    async def request(self, *_: object, **__: object) -> Reply:
        return Reply(200, msgspec.json.encode({"metadata": {"resourceVersion": "7"}, "items": self.pods}))


async def test_pod_of_the_keeper_uses_no_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """It mounts the folder of all caches. Where programs and Jobs share a namespace, it is listed among the users."""
    monkeypatch.setenv("POD_UID", "keeper")
    pods = a_mounting_pod("keeper", "/caches/dispatcher"), a_mounting_pod("task", f"/caches/dispatcher/{'a' * 40}")
    client = Listed(*pods)
    node = KeptNode(client, load({}, str).settings, "n1")
    watched = [read_cache_pod(msgspec.Raw(msgspec.json.encode(pod))) for pod in pods]
    node.watched.store.replace(watched, "7", elapsed())
    node.watched.fault = ""
    for found in (node.pods(), await node.live_pods()):
        assert users_of(found, "/caches/dispatcher", {"a" * 40, "b" * 40}) == Users({"a" * 40: {"task"}})
    await client.close()
