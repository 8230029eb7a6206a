"""On a moving system, what a page says is what SQL and the cluster say of the moment that it names.

That moment is the begin of a transaction. Its statements look a little later, and before the answer arrives.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

import pytest

from tests.controlplane.waiting import moment, wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.postgres import Record
from tests.rig.showing import Shown, first_page_shows
from tests.rig.steps import insert

Moments: TypeAlias = tuple[datetime, datetime]
CAP, ROUNDS, ROWS = 4, 12, 5
DOUBT = timedelta(seconds=0.3)
"""A row's times are those of the begin of a transaction. Its commit comes a little later."""
FRESH = timedelta(seconds=1)
"""Age of most answers. A machine that pauses makes some of them older."""
LIVES = """
SELECT t.queue, t.created_at, l.started_at, t.finished_at FROM dispatch.tasks AS t
JOIN dispatch.task_launches AS l ON l.task_id = t.id
"""
STATUSES = {"waiting": ("created_at", "started_at"), "processing": ("started_at", "finished_at")}
"""The times of a row between which it has the status."""
OVER = "SELECT count(*) = $1 FROM dispatch.tasks WHERE status = 'succeeded'"


def between(rows: Sequence[Record], at: Sequence[datetime], begin: str, end: str) -> tuple[int, int]:
    """Fewest and most rows that were between two of their times, anywhere between the first and the last moment."""
    first, last = min(at) - DOUBT, max(at) + DOUBT
    surely = sum(row[begin] <= first and row[end] > last for row in rows)
    return surely, sum(row[begin] <= last and row[end] > first for row in rows)


def of_queue(rows: Sequence[Record], queue: str) -> list[Record]:
    return [row for row in rows if row["queue"] == queue]


def during(rows: Sequence[Record], status: str, at: Moments) -> tuple[int, int]:
    """Fewest and most rows that had the status somewhere between two moments."""
    if status == "succeeded":
        least, most = (sum(row["finished_at"] <= one for row in rows) for one in (at[0] - DOUBT, at[1] + DOUBT))
        return least, most
    return between(rows, at, *STATUSES[status])


async def listed(dispatcher: Dispatcher) -> list[tuple[str, Moments, int]]:
    """Status, moments and number of rows with it, as the list and the batch tell them."""
    found = list[tuple[str, Moments, int]]()
    for status in (*STATUSES, "succeeded"):
        _, told = await dispatcher.api(f"tasks?status={status}&limit=1")
        found.append((status, until_now(told["as_of"]), told["matching"]))
    _, told = await dispatcher.api("batches?batch=moving")
    at = until_now(told["as_of"])
    counted = Counter[str]()
    for batch in told["batches"]:
        counted.update(batch["by_status"])
    return found + [(status, at, counted[status]) for status in (*STATUSES, "succeeded")]


def until_now(as_of: str) -> Moments:
    """The moment that an answer names, and that of its arrival."""
    return datetime.fromisoformat(as_of), datetime.now(UTC)


def has_moved(told: Sequence[tuple[str, Moments, int]]) -> bool:
    return all(len({number for one, _, number in told if one == status}) > 1 for status in (*STATUSES, "succeeded"))


def check_age(moments: Sequence[Moments]) -> None:
    """Most answers are young, so that their numbers are judged sharply."""
    ages = sorted(arrived - as_of for as_of, arrived in moments)
    assert ages[len(ages) // 2] < FRESH, ages


class Look(NamedTuple):
    """The JSON, the page, and when both were there."""

    told: dict[str, Any]
    page: str
    arrived: datetime


async def look(dispatcher: Dispatcher) -> Look:
    (_, told), (_, _, page) = await asyncio.gather(dispatcher.api("status"), dispatcher.page("/"))
    return Look(told, page, datetime.now(UTC))


def judge_json(look: Look, rows: Sequence[Record]) -> None:
    told = look.told
    at = datetime.fromisoformat(told["as_of"]), datetime.fromisoformat(told["counted_at"]), look.arrived
    for queue in told["queues"]:
        least, most = between(of_queue(rows, queue["queue"]), at, "created_at", "started_at")
        assert (queue["queue"], least <= queue["waiting"] <= most) == (queue["queue"], True), (least, queue, most)
        assert sum(queue["reasons"].values()) == queue["waiting"]
    least, _ = between(rows, (at[0], look.arrived), "started_at", "finished_at")
    assert least <= told["in_flight"] <= CAP


def judge_page(look: Look, rows: Sequence[Record]) -> None:
    found = [datetime.fromisoformat(one) for one in re.findall(r'<time datetime="([^"]+)"', look.page)]
    text = Shown(look.page).words
    waiting, jobs = (re.search(pattern, text) for pattern in (r"(\d+) rows? waits? ", rf"(\d+) of {CAP} Jobs"))
    assert waiting is not None
    assert jobs is not None
    least, most = between(rows, (found[0], found[1], look.arrived), "created_at", "started_at")
    assert least <= int(waiting[1]) <= most
    assert between(rows, (found[0], look.arrived), "started_at", "finished_at")[0] <= int(jobs[1]) <= CAP


@pytest.mark.slow
async def test_lists_and_batches_tell_the_moment_that_they_name(place: Place) -> None:
    admin = await place.database.session("admin")
    await admin.execute("INSERT INTO dispatch.queues (name) VALUES ('other')")
    told = list[tuple[str, Moments, int]]()
    async with place.playing(), Dispatcher(place, MAX_JOBS=CAP) as dispatcher:
        await dispatcher.ready()
        for number in range(ROUNDS):
            await insert(place, ROWS, queue=("default", "other")[number % 2], batch="moving")
            told += await listed(dispatcher)

        inserted = ROUNDS * ROWS

        async def is_over() -> bool:
            """All rows have succeeded, and each number moved. A row may run between two looks."""
            nonlocal inserted
            told.extend(await listed(dispatcher))
            if not has_moved(told):
                await insert(place, ROWS, batch="moving")
                inserted += ROWS
            return has_moved(told) and bool(await admin.fetchval(OVER, inserted))

        await wait_for(is_over, "each number has moved, and all rows have succeeded", 90, check=dispatcher.check)
    rows = await admin.fetch(LIVES)
    for status, at, number in told:
        least, most = during(rows, status, at)
        assert (status, at, least <= number <= most) == (status, at, True), (least, number, most)
    check_age([at for _, at, _ in told])


@pytest.mark.slow
async def test_page_and_json_tell_the_moment_that_they_name(place: Place) -> None:
    admin = await place.database.session("admin")
    await admin.execute("INSERT INTO dispatch.queues (name) VALUES ('other')")
    looks = list[Look]()
    async with place.playing(), Dispatcher(place, MAX_JOBS=CAP) as dispatcher:
        await dispatcher.ready()
        await first_page_shows(dispatcher, "No problems")
        for number in range(ROUNDS):
            await insert(place, ROWS, queue=("default", "other")[number % 2])
            for _ in range(4):
                looks.append(await look(dispatcher))
                await moment(0.1)

        async def is_over() -> bool:
            looks.append(await look(dispatcher))
            return bool(await admin.fetchval(OVER, ROUNDS * ROWS))

        await wait_for(is_over, "all rows have succeeded", 90, check=dispatcher.check)
    rows = await admin.fetch(LIVES)
    assert len(rows) == ROUNDS * ROWS, "a row was launched twice"
    assert len({one.told["as_of"] for one in looks}) > 10
    assert len({one.told["queues"][0]["waiting"] for one in looks}) > 3, "nothing moved"
    check_age([(datetime.fromisoformat(one.told["as_of"]), one.arrived) for one in looks])
    for one in looks:
        judge_json(one, rows)
        judge_page(one, rows)
