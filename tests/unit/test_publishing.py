"""What the leader writes into ConfigMaps, and what the janitor brings over: changes alone, small, and seldom."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import msgspec
import pytest

from dispatcher.admission.last_cycle import LastCycle, RowReason
from dispatcher.janitor.tables import (
    GONE_A_CALL,
    ROWS_A_CALL,
    ReasonReport,
    ReportedReason,
    after,
    plan_report,
    rows_of,
)
from dispatcher.model.errors import ClusterAway
from dispatcher.model.tasks import EndCount, QueueCount
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.views.counting import Overview, SurfacePace
from dispatcher.views.failures import parked_ids
from dispatcher.views.published import (
    MOST_ROWS,
    REASONS_BYTES,
    STATUS_BYTES,
    PublishedReasons,
    read_reasons,
    reasons_json,
    reasons_of,
    recalled,
    status_json,
    what_matters,
)
from dispatcher.views.status import InstallationIdentity, InstallationStatus, parked_rows
from dispatcher.views.surfaces import StatusPublisher
from tests.rig.builders import NOW, a_last_cycle, a_queue, a_snapshot, ago, later
from tests.unit.explaining import a_cycle, a_status, told


class Maps:
    """The ConfigMaps, and the names of all writes."""

    def __init__(self, **texts: str) -> None:
        self.texts, self.writes, self.is_away = texts, list[str](), False

    async def read(self, name: str, key: str) -> str | None:
        if self.is_away:
            raise ClusterAway("no answer")
        assert key == f"{name}.json"
        return self.texts.get(name)

    async def write(self, name: str, key: str, text: str) -> bool:
        if self.is_away:
            raise ClusterAway("no answer")
        self.texts[name] = text
        self.writes.append(name)
        return True


class Rows:
    now = NOW

    async def counts(self, at_work: Sequence[int]) -> list[QueueCount]:
        return [QueueCount("default", 3)]

    async def ends(self, since: datetime, until: datetime) -> list[EndCount]:
        return []

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Rows"]:
        yield self


def held_cycle(reason: str = "Poison", jobs: int = 0) -> LastCycle:
    rows = {7: RowReason("default", 1, Hold(HoldReason(reason)), NOW)}
    return a_last_cycle(a_snapshot(a_queue(), max_jobs=jobs), told=rows)


class Replica:
    """One replica whose time is an argument."""

    def __init__(self, maps: Maps) -> None:
        self.time, self.leads, self.last = 0.0, True, held_cycle()
        self.maps = maps
        installation = InstallationIdentity("dispatcher", "1", "jobs", "me")
        pace = SurfacePace(lambda: self.time)
        overview = Overview(installation, Rows().opened, dict, lambda: self.leads, pace)
        self.publishing = StatusPublisher(maps, overview, self, lambda: self.leads, pace)  # type: ignore[arg-type] # its cycle is never None
        self._overview = overview

    async def round(self, time: float, cycle: LastCycle | None = None) -> list[str]:
        """The names of the ConfigMaps that a round at this time writes, after this cycle."""
        self.time, self.last = time, cycle or self.last
        self.maps.writes.clear()
        self._overview.tell(self.last)
        await self.publishing.run_once()
        return list(self.maps.writes)


async def test_status_is_written_on_change_after_ten_seconds_and_unchanged_after_thirty() -> None:
    replica = Replica(Maps())
    assert await replica.round(0) == ["reasons", "status"]
    assert await replica.round(9, held_cycle(jobs=1)) == [], "changed, but too soon"
    assert await replica.round(10) == ["status"]
    assert await replica.round(39) == []
    assert await replica.round(40) == ["status"], "it shows that the dispatcher lives"


async def test_reasons_are_written_on_change_after_thirty_seconds() -> None:
    replica = Replica(Maps())
    await replica.round(0)
    assert "reasons" not in await replica.round(29, held_cycle("Backoff"))
    assert "reasons" in await replica.round(30)
    assert "reasons" not in await replica.round(90), "nothing has changed"
    assert "reasons" not in await replica.round(329)
    assert "reasons" in await replica.round(330), "somebody may have overwritten them"


async def test_replica_that_does_not_lead_writes_nothing_and_a_new_leader_writes_at_once() -> None:
    replica = Replica(Maps())
    await replica.round(0)
    replica.leads = False
    assert await replica.round(60) == []
    replica.leads = True
    assert await replica.round(62) == ["reasons", "status"]


async def test_times_of_the_leader_before_are_taken_over_once() -> None:
    earlier = msgspec.structs.replace(
        held_cycle(), told={7: RowReason("default", 1, Hold(HoldReason.POISON), ago(600))}
    )
    replica = Replica(Maps(reasons=reasons_json(earlier).decode()))
    replica.leads = False
    await replica.round(0)
    assert replica.last.told[7].since == ago(600)
    await replica.round(2, held_cycle())
    assert replica.last.told[7].since == NOW, "from now on the cycles hand the times on"


@pytest.mark.parametrize("text", ["nonsense", "{}"])
async def test_nonsense_of_somebody_else_is_replaced(text: str) -> None:
    maps = Maps(reasons=text, status=text)
    assert await Replica(maps).round(0) == ["reasons", "status"]
    found: Any = msgspec.json.decode(maps.texts["reasons"])
    assert found["rows"][0][:3] == [7, 1, "Poison"]


async def test_fault_of_the_api_server_is_raised_and_the_next_round_writes() -> None:
    maps = Maps()
    replica, maps.is_away = Replica(maps), True
    with pytest.raises(ClusterAway):
        await replica.round(0)
    maps.is_away = False
    assert await replica.round(2) == ["reasons", "status"]


NAIVE = '{{"as_of": "{}", "left_out": 0, "rows": [[1, 1, "Poison", "{}", 0]], "messages": ["m"], "since": {{}}}}'


def test_status_is_written_as_it_is() -> None:
    status = a_status(a_cycle({7: told("Poison")}))
    assert msgspec.json.decode(status_json(status), type=InstallationStatus) == status


def test_status_of_a_thousand_queues_is_cut_to_its_size_and_keeps_the_busiest() -> None:
    rows = {n: told("Poison", "x" * 200) for n in range(100)}
    written = status_json(a_status(a_cycle(rows, queues=1000)))
    shown = msgspec.json.decode(written, type=InstallationStatus)
    assert STATUS_BYTES * 0.8 < len(written) <= STATUS_BYTES
    assert [queue.queue for queue in shown.queues][:2] == ["queue-0999", "queue-0998"]
    assert len(shown.queues) + shown.queues_left_out == 1000


def test_status_that_is_too_large_without_its_queues_is_written() -> None:
    status = msgspec.structs.replace(a_status(a_cycle()), slowed=["x" * 1000] * 100)
    shown = msgspec.json.decode(status_json(status), type=InstallationStatus)
    assert (shown.queues, shown.queues_left_out) == ([], 1)


def test_times_alone_are_no_news() -> None:
    status = a_status(a_cycle())
    later_status = msgspec.structs.replace(a_status(a_cycle(), later(9), waits=14), as_of=later(9))
    assert what_matters(status) == what_matters(later_status)
    assert what_matters(status) != what_matters(msgspec.structs.replace(status, in_flight=9))


def test_reasons_tell_parked_rows_first_and_each_message_once() -> None:
    cycle = a_cycle({
        1: told("NoRoomNow", "cpu 4"), 2: told("NoRoomNow", "cpu 4", ago(9)), 3: told("Launched", "Starting"),
        9: told("Poison", "bad image", attempt=2),
    }, {("default", HoldReason.NO_ROOM_NOW): ago(60)})  # fmt: skip
    found = reasons_of(cycle)
    assert [(row[:4], found.messages[row[4]]) for row in found.rows] == [
        ((9, 2, "Poison", NOW), "the API server refuses its Job: bad image"),
        ((3, 1, "Launched", NOW), "its Job exists, and its container has not reported its start: Starting"),
        ((1, 1, "NoRoomNow", NOW), "the nodes are full: cpu 4"),
        ((2, 1, "NoRoomNow", ago(9)), "the nodes are full: cpu 4"),
    ]
    assert (len(found.messages), found.left_out, found.as_of) == (3, 0, NOW)
    assert found.since == {"default": {"NoRoomNow": ago(60)}}
    assert read_reasons(reasons_json(cycle).decode()) == msgspec.structs.replace(
        found, rows=[tuple(row) for row in found.rows]
    )


def test_reasons_of_many_rows_are_cut_to_their_number_and_size() -> None:
    alike = reasons_of(a_cycle({n: told("Poison") for n in range(3000)}))
    assert (len(alike.rows), alike.left_out) == (MOST_ROWS, 1000)
    written = reasons_json(a_cycle({n: told("Poison", f"{n} " + "x" * 5000) for n in range(3000)}))
    found = read_reasons(written.decode())
    assert found is not None
    assert REASONS_BYTES * 0.8 < len(written) <= REASONS_BYTES
    assert len(found.rows) + found.left_out == 3000
    assert max(map(len, found.messages)) == 300


def test_parked_rows_of_one_submitter_leave_no_parked_row_of_another_out() -> None:
    theirs = msgspec.structs.replace(told("Poison"), submitted_by="team_b")
    cycle = a_cycle({**{n: told("Poison") for n in range(3000)}, 9999: theirs})
    assert [row[0] for row in reasons_of(cycle).rows[:3]] == [0, 9999, 1]
    assert [row.task for row in parked_rows(cycle.told)][:3] == [0, 9999, 1]
    assert parked_ids(cycle)[:3] == [0, 9999, 1], "the page of failures reads 2,000"


def test_reasons_without_room_for_a_row_say_how_many_there_are() -> None:
    since = {(f"queue-{n}", HoldReason.PAUSED): NOW for n in range(9000)}
    written = reasons_json(a_cycle({1: told("Poison")}, since))
    assert len(written) < 100
    assert b'"left_out":1' in written


NONSENSE = [
    "", "nonsense", "[]", '{"rows": 5}', '{"as_of": "today"}', "\ud800", "9" * 5000, "[" * 100_000,
    NAIVE.format("2026-01-01T00:00:00Z", "2026-01-01T00:00:00"),
    NAIVE.format("2026-01-01T00:00:00", "2026-01-01T00:00:00Z"),
]  # fmt: skip


@pytest.mark.parametrize("text", NONSENSE)
def test_nonsense_in_the_config_map_is_no_reasons(text: str) -> None:
    assert read_reasons(text) is None


def test_times_of_an_earlier_leader_are_kept_where_the_reason_is_the_same() -> None:
    cycle = a_cycle(
        {1: told("Poison"), 2: told("Poison"), 3: told("Poison"), 4: told("Poison", since=ago(99))},
        {("default", HoldReason.PAUSED): NOW, ("new", HoldReason.PAUSED): NOW},
    )
    rows = [
        (1, 1, "Poison", ago(60), 0), (2, 2, "Poison", ago(60), 0), (3, 1, "Backoff", ago(60), 0),
        (4, 1, "Poison", ago(60), 0), (5, 1, "Poison", ago(60), 0),
    ]  # fmt: skip
    earlier = PublishedReasons(ago(50), 0, rows, ["m"], {"default": {"Paused": ago(70)}})
    found = recalled(cycle, earlier)
    assert {id_: one.since for id_, one in found.told.items()} == {1: ago(60), 2: NOW, 3: NOW, 4: ago(99)}
    assert found.since == {("default", "Paused"): ago(70), ("new", "Paused"): NOW}


def test_times_of_the_future_change_nothing() -> None:
    """Somebody else may have written the ConfigMap."""
    forged = PublishedReasons(NOW, 0, [(1, 1, "Poison", later(60), 0)], ["m"], {"default": {"Paused": later(60)}})
    cycle = a_cycle({1: told("Poison")}, {("default", HoldReason.PAUSED): NOW})
    assert recalled(cycle, forged) == cycle


def a_row(task: int, reason: str = "Poison", message: str = "m") -> ReportedReason:
    return ReportedReason(task, 1, reason, NOW, message)


def rows(*tasks: int, reason: str = "Poison") -> dict[int, ReportedReason]:
    return {task: a_row(task, reason) for task in tasks}


def status(seconds: float = 0) -> InstallationStatus:
    return msgspec.structs.replace(a_status(a_cycle()), as_of=later(seconds))


def test_rows_of_the_config_map_have_their_messages() -> None:
    cycle = a_cycle({1: told("Poison", "a"), 2: told("Poison", "b"), 3: told("Poison", "a")})
    assert {id_: row.message for id_, row in rows_of(reasons_of(cycle)).items()} == {
        1: "the API server refuses its Job: a", 2: "the API server refuses its Job: b",
        3: "the API server refuses its Job: a",
    }  # fmt: skip


@pytest.mark.parametrize("at", [-1, 1, 10**9])
def test_row_that_somebody_else_wrote_may_have_no_message(at: int) -> None:
    forged = PublishedReasons(NOW, 0, [(1, 1, "Poison", NOW, at)], ["m"], {})
    assert rows_of(forged)[1].message == ""


@pytest.mark.parametrize(
    ("known", "wanted", "changed", "gone"),
    [
        (rows(), rows(1, 2), [1, 2], []),
        (rows(1, 2), rows(2), [], [1]),
        (rows(1), rows(1, reason="Backoff"), [1], []),
        (rows(1), {1: ReportedReason(1, 1, "Poison", ago(5), "m")}, [1], []),
    ],
)
def test_changed_rows_and_gone_rows_are_told(
    known: Mapping[int, ReportedReason], wanted: Mapping[int, ReportedReason], changed: list[int], gone: list[int]
) -> None:
    report = plan_report(known, wanted, status(), NOW)
    assert report is not None
    assert ([row.task for row in report.rows], report.gone) == (changed, gone)
    assert report.queues is None, "the status has not changed"
    assert after(known, report) == wanted


def test_no_call_is_made_if_no_reason_has_changed() -> None:
    assert plan_report(rows(1), rows(1), status(), NOW) is None


def test_status_whose_time_went_back_is_told() -> None:
    """Somebody else wrote a time of the future, or the database's clock was set back."""
    report = plan_report({}, {}, status(-5), NOW)
    assert report is not None
    assert report.as_of == later(-5)


def test_queues_that_the_config_map_has_no_room_for_are_told() -> None:
    cut = msgspec.structs.replace(status(), queues=[], queues_left_out=7)
    report = plan_report({}, {}, cut, None)
    assert report is not None
    assert (report.queues, report.queues_left_out) == ([], 7)


def test_new_status_is_told_with_its_queues() -> None:
    for before in (None, ago(10)):
        report = plan_report({}, {}, status(), before)
        assert report is not None
        assert (report.as_of, report.rows, report.gone) == (NOW, [], [])
        assert [queue.queue for queue in report.queues or ()] == ["queue-0000"]


def test_many_changes_take_several_calls() -> None:
    known: Mapping[int, ReportedReason] = rows(*range(5000, 7500))
    wanted, calls = rows(*range(500)), 0
    while (report := plan_report(known, wanted, status(), NOW)) is not None:
        assert len(report.rows) <= ROWS_A_CALL
        assert len(report.gone) <= GONE_A_CALL
        known, calls = after(known, report), calls + 1
    assert (known, calls) == (wanted, 3)


def test_report_is_small_json() -> None:
    report = ReasonReport(NOW, rows=[a_row(7)])
    assert msgspec.json.decode(msgspec.json.encode(report)) == {
        "as_of": "2026-03-14T12:00:00Z", "rows": [[7, 1, "Poison", "2026-03-14T12:00:00Z", "m"]],
    }  # fmt: skip
