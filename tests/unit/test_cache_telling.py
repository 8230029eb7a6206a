"""What a cache keeper tells, and how often: a write a minute at most, and only of something new."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from dispatcher.keeper.keeping import Keeping, Round
from dispatcher.keeper.plan import Directory, Disk
from dispatcher.keeper.program import FIRST_SECONDS, TELL_SECONDS, WARN_SECONDS, KeeperReport, KeptNode
from dispatcher.model.notices import Notice
from dispatcher.settings.loading import load

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
    made = KeeperReport(cast("Keeping", keeping), cast("KeptNode", cluster), load({}, str).settings)
    made._events = cluster  # type: ignore[assignment]  # the same method
    return made, cluster, keeping


def a_round(sizes: Mapping[str, int], **facts: Any) -> Round:
    return Round([Directory(name, size, 1, 0, 0) for name, size in sizes.items()], frozenset(), DISK, **facts)


async def test_nothing_is_told_before_the_first_round() -> None:
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
