"""The waiting rows are counted every 30 s at most, and the gauges show the last cycle on the leader."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import msgspec
import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from dispatcher.admission.last_cycle import LastCycle, RowReason
from dispatcher.model.errors import DatabaseAway
from dispatcher.model.tasks import EndCount, QueueCount
from dispatcher.model.verdicts import Hold, HoldReason, Stage
from dispatcher.runtime.metrics import DEMAND_UNANSWERED, PARKED_TASKS
from dispatcher.views.counting import COUNT_SECONDS, Overview, SurfacePace
from dispatcher.views.first_page import EstimateRecord
from dispatcher.views.reads import NoCycleYet
from dispatcher.views.status import InstallationIdentity
from tests.rig.builders import NOW, a_last_cycle, a_queue, a_snapshot, ago

WAITING, OLDEST = "dispatcher_waiting_tasks", "dispatcher_oldest_wait_seconds"


class Rows:
    """The rows, and the number of counts."""

    now: datetime = NOW

    def __init__(self) -> None:
        self.found = [QueueCount("default", 9, 2, ago(60))]
        self.reads = 0
        self.ended: list[tuple[str, str, datetime]] = []
        self.asked: list[tuple[datetime, datetime]] = []
        self.is_away = self.has_no_ends = False
        self.takes = 0.0
        self.at_work: Sequence[int] = ()
        self.tick: Callable[[float], None] = lambda _: None

    async def counts(self, at_work: Sequence[int]) -> list[QueueCount]:
        self.reads, self.at_work = self.reads + 1, at_work
        self.tick(self.takes)
        await asyncio.sleep(0)
        if self.is_away:
            raise DatabaseAway("canceling statement due to statement timeout")
        return self.found

    async def ends(self, since: datetime, until: datetime) -> list[EndCount]:
        self.asked.append((since, until))
        if self.has_no_ends:
            raise DatabaseAway("canceling statement due to statement timeout")
        return [
            EndCount(*key, number)
            for key, number in Counter(
                (queue, status) for queue, status, at in self.ended if since <= at < until
            ).items()
        ]

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Rows"]:
        yield self


class Seen:
    """An overview with its surroundings."""

    def __init__(self) -> None:
        self.rows, self.time, self.leads = Rows(), 0.0, True
        self.overview = Overview(
            InstallationIdentity("dispatcher", "1", "jobs", "me"), self.rows.opened, lambda: {"access": "none"},
            lambda: self.leads, SurfacePace(lambda: self.time),
        )  # fmt: skip
        self.rows.tick = self.pass_time

    def pass_time(self, seconds: float) -> None:
        self.time += seconds


def a_cycle(queues: Sequence[str] = ("default",)) -> LastCycle:
    snapshot, held = a_snapshot(*map(a_queue, queues)), {(queues[0], HoldReason.NO_ROOM_NOW): 4}
    return a_last_cycle(snapshot, held=held)


def gauge(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def ended(queue: str, status: str) -> float:
    return gauge("dispatcher_tasks_ended_total", queue=queue, status=status) or 0


async def test_leader_counts_each_end_once() -> None:
    seen = Seen()
    seen.rows.found = [QueueCount("night")]
    seen.rows.ended = [("night", "failed", NOW + timedelta(seconds=second)) for second in (-40, -31, -30, 0, 1)]
    await seen.overview.run_once()
    assert ended("night", "failed") == 0, "the ends of before are those of another leader"
    assert gauge("dispatcher_tasks_ended_total", queue="night", status="cancelled") == 0, "a series begins with 0"
    for seconds, counted in ((10, 1), (31, 2), (31, 2), (61, 3), (40, 3), (90, 3)):
        seen.rows.now = NOW + timedelta(seconds=seconds)
        seen.pass_time(COUNT_SECONDS)
        await seen.overview.run_once()
        assert ended("night", "failed") == counted, seconds


async def test_replica_that_does_not_lead_counts_no_end() -> None:
    seen = Seen()
    await seen.overview.run_once()
    seen.leads = False
    await seen.overview.run_once()
    seen.rows.ended = [("other", "failed", NOW)]
    seen.rows.now = NOW + timedelta(seconds=60)
    await seen.overview.counts(0)
    seen.leads = True
    seen.pass_time(COUNT_SECONDS)
    await seen.overview.run_once()
    assert (seen.rows.asked, ended("other", "failed")) == ([], 0)


async def test_replica_that_does_not_lead_shows_nothing_of_a_cycle() -> None:
    """It may lack the database, and then no cycle would correct what it shows. The alerts take the highest value."""
    PARKED_TASKS.labels("Poison").set(3)
    DEMAND_UNANSWERED.set(7200)
    seen = Seen()
    seen.leads, seen.rows.is_away = False, True
    await seen.overview.run_once()
    assert REGISTRY.get_sample_value("dispatcher_parked_tasks", {"reason": "Poison"}) is None
    assert REGISTRY.get_sample_value("dispatcher_demand_unanswered_seconds") == 0


async def test_ends_of_a_long_time_are_not_read_at_once() -> None:
    seen = Seen()
    await seen.overview.run_once()
    seen.rows.now = NOW + timedelta(hours=5)
    seen.pass_time(COUNT_SECONDS)
    await seen.overview.run_once()
    until = seen.rows.now - timedelta(seconds=30)
    assert seen.rows.asked == [(until - timedelta(minutes=10), until)]


async def test_ends_are_counted_after_the_clock_of_the_database_was_set_back() -> None:
    seen = Seen()
    seen.rows.ended = [("back", "failed", NOW + timedelta(seconds=20))]
    for seconds in (3600, 0, 60):
        seen.rows.now = NOW + timedelta(seconds=seconds)
        await seen.overview.run_once()
        seen.pass_time(COUNT_SECONDS)
    assert ended("back", "failed") == 1


async def test_ends_that_could_not_be_read_are_counted_later() -> None:
    seen = Seen()
    await seen.overview.run_once()
    seen.rows.ended = [("late", "succeeded", NOW)]
    seen.rows.now = NOW + timedelta(seconds=40)
    seen.rows.has_no_ends = True
    seen.pass_time(COUNT_SECONDS)
    await seen.overview.run_once()
    seen.rows.has_no_ends = False
    seen.rows.now = NOW + timedelta(seconds=80)
    seen.pass_time(COUNT_SECONDS)
    await seen.overview.run_once()
    assert ended("late", "succeeded") == 1


async def test_there_is_no_status_before_the_first_cycle() -> None:
    with pytest.raises(NoCycleYet, match="readyz"):
        await Seen().overview.status()


async def test_status_tells_which_templates_the_janitor_does_not_have_alike() -> None:
    seen = Seen()
    seen.overview.tell(a_cycle())
    assert (await seen.overview.status()).templates_differ == ()
    differ = ['template "new": the dispatcher has it, the janitor has not']
    seen.overview.tell_templates(differ)
    assert (await seen.overview.status()).templates_differ == differ


async def test_many_questions_cause_one_count_in_thirty_seconds() -> None:
    seen = Seen()
    seen.overview.tell(a_cycle())
    found = await asyncio.gather(*(seen.overview.status() for _ in range(50)))
    assert seen.rows.reads == 1
    assert {one.queues[0].waiting for one in found} == {11}
    assert found[0].unhealthy == {"access": "none"}
    seen.time = COUNT_SECONDS - 0.1
    await seen.overview.status()
    assert seen.rows.reads == 1
    seen.time = COUNT_SECONDS
    await seen.overview.status()
    assert seen.rows.reads == 2


async def test_people_who_look_see_newer_counts_as_long_as_these_cost_little() -> None:
    seen = Seen()
    seen.overview.tell(a_cycle())
    await seen.overview.page(EstimateRecord())
    seen.time = 0.9
    await seen.overview.page(EstimateRecord())
    assert seen.rows.reads == 1
    seen.time, seen.rows.takes = 1, 0.015
    await seen.overview.page(EstimateRecord())
    assert seen.rows.reads == 2
    seen.time = 2.4
    await seen.overview.page(EstimateRecord())
    assert seen.rows.reads == 2, "it took 0.015 s, so 1.5 s are between two of them"
    seen.time, seen.rows.takes = 2.6, 0.2
    await seen.overview.page(EstimateRecord())
    assert seen.rows.reads == 3


@pytest.mark.parametrize("leads", [True, False])
async def test_page_does_not_wait_for_a_count_that_takes_long(leads: bool) -> None:
    """The count is made in the background. Pages show the count before."""
    seen = Seen()
    seen.leads = leads
    seen.overview.tell(a_cycle())
    seen.rows.takes = 0.2
    await seen.overview.page(EstimateRecord())
    seen.rows.found, seen.time = [QueueCount("default", 99, 2, ago(60))], 19.9
    assert (await seen.overview.page(EstimateRecord())).queues[0].waiting == 11
    assert not await seen.overview.wanted.wait(0.001), "it took 0.2 s, so 20 s are between two of them"
    seen.time = 20.1
    assert (await seen.overview.page(EstimateRecord())).queues[0].waiting == 11
    assert await seen.overview.wanted.wait(1)
    assert seen.rows.reads == 1
    await seen.overview.run_once()
    assert (await seen.overview.page(EstimateRecord())).queues[0].waiting == 101
    assert seen.rows.reads == 2


async def test_count_of_very_many_rows_takes_a_tenth_of_the_time_and_keeps_nobody_waiting() -> None:
    seen = Seen()
    seen.overview.tell(a_cycle())
    seen.rows.takes = 20
    await seen.overview.run_once()
    for seconds, reads in ((100, 1), (199, 1), (200, 2)):
        seen.time = seconds
        await seen.overview.run_once()
        assert seen.rows.reads == reads, seconds
    seen.time = 401
    await seen.overview.page(EstimateRecord())
    assert seen.rows.reads == 2, "it is made in the background"
    assert seen.overview.ages(2)[1].most == 600


async def test_page_after_a_long_time_waits_for_a_count() -> None:
    seen = Seen()
    seen.leads = False
    seen.overview.tell(a_cycle())
    seen.rows.takes = 0.2
    await seen.overview.page(EstimateRecord())
    seen.rows.found, seen.time = [QueueCount("default", 99, 2, ago(60))], 2 * COUNT_SECONDS + 1
    assert (await seen.overview.page(EstimateRecord())).queues[0].waiting == 101


async def test_page_has_the_last_hour_and_the_nodes_once_they_are_watched() -> None:
    seen = Seen()
    seen.overview.tell(a_cycle())
    page = await seen.overview.page(EstimateRecord(hit=3))
    assert (list(page.hours), page.counted_since, page.nodes, page.estimates.hit) == (["default"], NOW, [], 3)
    assert page.hours["default"].waits[-1] == 60


async def test_gauges_show_the_judged_rows_at_once_and_all_rows_after_a_count() -> None:
    seen = Seen()
    seen.overview.tell(a_cycle())
    assert gauge(WAITING, queue="default", reason="NoRoomNow") == 4
    assert gauge(WAITING, queue="default", reason="InLine") is None
    assert await seen.overview.run_once() == COUNT_SECONDS
    assert gauge(WAITING, queue="default", reason="InLine") == 5
    assert gauge(WAITING, queue="default", reason="NotDue") == 2
    assert gauge(OLDEST, queue="default") == 60
    seen.overview.tell(a_cycle(["new"]))
    assert gauge(WAITING, queue="new", reason="NoRoomNow") == 4, "a queue that was declared after the last count"


async def test_row_whose_container_runs_is_no_oldest_row() -> None:
    """With `report: exit-code` it reads `waiting` for as long as it runs, maybe for hours."""
    stages = {1: Stage.RUNNING, 2: f"{Stage.STARTING}: ContainerCreating", 3: Stage.EXIT_CODE, 4: Stage.SUSPENDED}
    told = {id_: RowReason("default", 1, Hold(HoldReason.LAUNCHED, stage), NOW) for id_, stage in stages.items()}
    told[5] = RowReason("default", 1, Hold(HoldReason.BACKOFF, "5 s"), NOW)
    seen = Seen()
    seen.overview.tell(msgspec.structs.replace(a_cycle(), told=told))
    await seen.overview.status()
    assert seen.rows.at_work == [1, 3]


async def test_replica_that_does_not_lead_counts_nothing_and_exports_nothing() -> None:
    seen = Seen()
    await seen.overview.run_once()
    seen.overview.tell(a_cycle())
    seen.leads, seen.time = False, 3 * COUNT_SECONDS
    seen.overview.tell(a_cycle())
    assert gauge(WAITING, queue="default", reason="NoRoomNow") is None
    assert gauge(OLDEST, queue="default") is None
    assert await seen.overview.run_once() < COUNT_SECONDS, "it may lead soon"
    assert seen.rows.reads == 1


async def test_replica_that_lost_the_lease_exports_nothing_even_if_no_cycle_ends() -> None:
    """Without the database no cycle tells. The old leader would show its last rows, and the new one shows them, too."""
    seen = Seen()
    seen.overview.tell(a_cycle())
    assert gauge(WAITING, queue="default", reason="NoRoomNow") == 4
    seen.leads = False
    await seen.overview.run_once()
    assert gauge(WAITING, queue="default", reason="NoRoomNow") is None


async def test_count_that_fails_is_tried_again_after_thirty_seconds() -> None:
    """A count of very many rows can take longer than a statement may. It must not be tried for every question."""
    seen = Seen()
    seen.overview.tell(a_cycle())
    seen.rows.is_away = True
    for _ in range(3):
        with pytest.raises(DatabaseAway):
            await seen.overview.status()
    assert seen.rows.reads == 1
    seen.rows.is_away, seen.time = False, COUNT_SECONDS
    assert (await seen.overview.status()).queues[0].waiting == 11
    seen.rows.is_away, seen.time = True, 2 * COUNT_SECONDS
    assert (await seen.overview.status()).queues[0].waiting == 11, "the last counts"
    assert seen.rows.reads == 3


async def test_counts_that_fail_are_logged_each_five_minutes() -> None:
    seen = Seen()
    seen.rows.is_away = True
    with capture_logs() as told:
        for _ in range(20):
            await seen.overview.run_once()
            seen.pass_time(COUNT_SECONDS)
    assert len(told) == 2


async def test_age_of_cycle_and_counts_is_told_and_only_the_leader_has_to_count() -> None:
    seen = Seen()
    assert [(one.store, one.age, one.most) for one in seen.overview.ages(100)] == [
        ("last cycle", float("inf"), 300), ("counts", float("inf"), 90),
    ]  # fmt: skip
    seen.overview.tell(a_cycle())
    seen.time = 7
    await seen.overview.status()
    seen.time = 9
    assert [one.age for one in seen.overview.ages(2)] == [9, 2]
    seen.rows.is_away, seen.time, seen.leads = True, 2 * COUNT_SECONDS, False
    await seen.overview.status()
    cycle, counts = seen.overview.ages(2)
    assert (counts.age, counts.most) == (2 * COUNT_SECONDS - 7, float("inf"))
    assert (cycle.fault, "statement timeout" in counts.fault) == ("", True)


def test_parked_row_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    def parked(*rows: int, attempt: int = 1) -> LastCycle:
        told = {id_: RowReason("default", attempt, Hold(HoldReason.POISON, "bad"), NOW) for id_ in rows}
        return msgspec.structs.replace(a_cycle(), told=told)

    seen = Seen()
    for cycle in (parked(1, 2), parked(2), parked(1, 2), parked(2, attempt=2)):
        seen.overview.tell(cycle)
    assert capsys.readouterr().out.count("parked") == 3
