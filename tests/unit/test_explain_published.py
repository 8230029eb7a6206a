"""What the leader writes into ConfigMaps is small, tells the most important rows, and is read by the next process."""

import msgspec
import pytest

from dispatcher.model.verdicts import HoldReason
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
from dispatcher.views.status import InstallationStatus
from tests.rig.builders import NOW, ago, later
from tests.unit.explaining import a_cycle, a_status, told

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
