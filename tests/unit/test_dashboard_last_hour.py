"""The last hour of each queue, minute by minute, in bounded memory."""

import sys
import tracemalloc
from datetime import datetime, timedelta

import pytest

from dispatcher.model.tasks import QueueCount
from dispatcher.views.first_page import ENOUGH_MINUTES, MINUTES, MOST_QUEUES, LastHour, QueueHour
from tests.rig.builders import NOW

START = NOW.replace(second=0, microsecond=0)


def at(minute: float) -> datetime:
    return START + timedelta(minutes=minute)


def a_count(queue: str = "default", starts: int = 5, ends: int = 10, waits_since: datetime | None = None) -> QueueCount:
    return QueueCount(queue, oldest=waits_since, starts=starts, ends=ends)


def of_default(hour: LastHour) -> QueueHour:
    found = hour.hour("default")
    assert found is not None
    return found


def test_minute_keeps_its_last_count() -> None:
    hour = LastHour()
    hour.note(at(0), [a_count(starts=5)])
    hour.note(at(0.5), [a_count(starts=15, waits_since=at(-1))])
    found = of_default(hour)
    assert (found.starts[-1], found.ends[-1], found.waits[-1]) == (3, 2, 90)
    assert found.starts[:-1] == [None] * (MINUTES - 1)
    assert hour.since == at(0)


def test_minute_that_nobody_counted_is_not_known() -> None:
    hour = LastHour()
    for minute in (0, 3):
        hour.note(at(minute), [a_count()])
    assert of_default(hour).starts[-4:] == [1, None, None, 1]


def test_count_of_more_than_an_hour_ago_is_forgotten() -> None:
    hour = LastHour()
    hour.note(at(0), [a_count(starts=500)])
    hour.note(at(MINUTES * 5 + 1), [a_count()])
    assert of_default(hour).starts == [None] * (MINUTES - 1) + [1]
    assert hour.since == at(MINUTES * 4 + 1)


def test_whole_hour_is_known_after_an_hour() -> None:
    hour = LastHour()
    for minute in range(MINUTES + 7):
        hour.note(at(minute), [a_count(starts=5 * minute)])
    assert of_default(hour).starts == list(range(7, MINUTES + 7))


def test_clock_that_is_set_back_begins_anew() -> None:
    hour = LastHour()
    hour.note(at(10), [a_count("old")])
    hour.note(at(-10), [a_count("new")])
    assert (hour.hour("old"), hour.hour("new") is None) == (None, False)
    assert hour.since == at(-10)


def test_usual_wait_is_the_median_of_enough_minutes() -> None:
    hour = LastHour()
    for minute in range(ENOUGH_MINUTES - 1):
        hour.note(at(minute), [a_count(waits_since=at(minute - 2))])
    assert of_default(hour).usual_wait is None
    hour.note(at(ENOUGH_MINUTES), [a_count(waits_since=at(-100))])
    assert of_default(hour).usual_wait == 120


def test_queue_that_is_gone_is_forgotten_and_very_many_queues_are_not_all_kept() -> None:
    hour = LastHour()
    hour.note(at(0), [a_count("gone")])
    names = [f"q{number}" for number in range(MOST_QUEUES + 5)]
    hour.note(at(1), [a_count(name) for name in names])
    assert sum(hour.hour(name) is not None for name in names) == MOST_QUEUES
    assert hour.hour("gone") is None


@pytest.mark.parametrize("queues", [MOST_QUEUES, 5 * MOST_QUEUES])
def test_last_hour_of_very_many_queues_takes_at_most_one_mebibyte(queues: int) -> None:
    """Names of queues have 63 bytes at most. The count's own objects are made before, and are not the hour's."""
    rounds = [
        [a_count(f"{number:063}", starts=number + minute, waits_since=at(-1)) for number in range(queues)]
        for minute in range(2)
    ]
    tracemalloc.start()
    try:
        hour = LastHour()
        for minute in range(2 * MINUTES):
            hour.note(at(minute), rounds[minute % 2])
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    names = sum(sys.getsizeof(one.queue) for one in rounds[0][:MOST_QUEUES])
    assert hour.hour(f"{MOST_QUEUES - 1:063}") is not None
    assert kept + names <= 2**20
