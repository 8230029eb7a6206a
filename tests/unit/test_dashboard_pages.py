"""No page reaches 100 kB, an empty one says what to do, and the work of answers bounds how many are let in."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from dispatcher.model.verdicts import HoldReason
from dispatcher.views.answers import ADDRESSES, LONGEST_QUERY, ApiRequest, too_long
from dispatcher.views.failures import FailuresPage
from dispatcher.views.first_page import MINUTES, MOST_CELLS, EstimateRecord, NodeCell, QueueHour, overview_page
from dispatcher.views.node_room import NodesPage
from dispatcher.views.rows import BatchesPage, RowsPage
from dispatcher.views.server import BURST, LEAST, LONGEST_WAIT, MOST_BYTES, PART, STATIC, Pacing, Pages, TimedAwait
from dispatcher.views.status import InstallationIdentity, InstallationStatus
from tests.rig.builders import NOW
from tests.unit import worst_pages as worst
from tests.unit.page_facts import FINE, QUEUE

PAGES = Pages(InstallationIdentity("dispatcher", "1", "jobs", "me"), "")
NOTE = "x" * 300
NUMBERS = [1000.0 + 17 * (minute % 7) for minute in range(MINUTES)]
BUSY_HOUR = QueueHour(NUMBERS, NUMBERS, NUMBERS, 60.0)
REASONS = dict.fromkeys(list(HoldReason)[:8], 12345)


def test_first_page_of_a_thousand_busy_queues_and_all_cells_tells_what_it_leaves_out() -> None:
    queues = [replace(QUEUE, queue=f"q{number}-" + "n" * 20, waiting=9, reasons=REASONS) for number in range(1000)]
    status = replace(FINE, queues=[replace(one, note=NOTE) for one in queues])
    cells = [NodeCell("node-" + "n" * 40, 25, 0.5, 1)] * MOST_CELLS
    page = overview_page(status, lambda _: BUSY_HOUR, NOW, cells, EstimateRecord())
    text = PAGES.write("overview.html", page, ApiRequest(), "/api/v1/status")
    shown = text.count('<th scope="row">')
    assert 10 < shown <= 20
    assert f"{1000 - shown} further queues" in text
    assert "and 980 more problems" in text


def overview(status: InstallationStatus, hour: QueueHour = BUSY_HOUR, cells: Sequence[NodeCell] = ()) -> str:
    page = overview_page(status, lambda _: hour, NOW, cells, EstimateRecord())
    return PAGES.write("overview.html", page, ApiRequest(), "/api/v1/status")


def test_numbers_of_the_overview_lead_to_their_lists() -> None:
    busy = replace(QUEUE, waiting=1234, in_flight=56, starts_per_minute=7.5, ends_per_minute=8.5)
    text = overview(
        replace(FINE, queues=[busy], parked=9), cells=[NodeCell("n-1", 1, 0.5, 0), NodeCell("n-2", 700, 1, 0)]
    )
    for number, address in {
        "<b>0</b> of 10 Jobs": "/tasks?status=processing", "<b>1,234</b> rows wait": "/tasks?status=waiting",
        "<b>9</b> need somebody": "/failures", "1,234": "/tasks?queue=default&amp;status=waiting",
        "56": "/tasks?queue=default&amp;status=processing", "10 min 1 s": "/queues/default#next",
        "7.5": "/queues/default#hour", "8.5": "/queues/default#ended", "50": "/nodes?start=n-1&amp;limit=1",
        "100": "/nodes?start=n-2&amp;limit=500",
    }.items():  # fmt: skip
        assert re.search(rf'<a href="{re.escape(address)}"[^>]*>{re.escape(number)}</a>', text), number


INSERT = "INSERT INTO dispatch.tasks (template"
IDLE = replace(FINE, queues=[replace(QUEUE, waiting=0, reasons={})])
FRESH = {
    "overview.html": (
        overview_page(IDLE, lambda _: None, None, [], EstimateRecord()),
        ("Nothing waits and nothing runs", f"{INSERT}) VALUES (&#39;default&#39;)", "kubectl get nodes"),
    ),
    "tasks.html": (RowsPage(NOW, NOW, [], None), ("There is no row yet", INSERT)),
    "failures.html": (
        FailuresPage(
            as_of=NOW, leads=True, groups=[], groups_left_out=0, failed=0, failed_since=NOW, parked=0, parked_left_out=0
        ),
        ("No row has failed in the last day, and none is parked", "nothing to do", 'href="/tasks"'),
    ),
    "batches.html": (BatchesPage(as_of=NOW, batches=[]), ("Write the name of a batch", f"{INSERT}, batch) VALUES")),
    "nodes.html": (
        NodesPage(as_of=NOW, total=0, nodes=(), next_after=None, fits=None, reservations_are_watched=True, warm_ends=0),
        ("The cluster has no node", "kubectl get nodes"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("template", FRESH)
def test_page_of_a_fresh_installation_says_what_to_do_next(template: str) -> None:
    answer, words = FRESH[template]
    text = PAGES.write(template, answer, ApiRequest(), "/api/v1/something").replace("'", "&#39;")
    assert [one for one in words if one not in text] == []


def test_overview_of_a_busy_installation_says_nothing_of_an_insert() -> None:
    assert INSERT not in overview(replace(FINE, queues=[QUEUE]))
    assert INSERT not in overview(replace(FINE, queues=[replace(QUEUE, waiting=0)], in_flight=1))


@pytest.mark.parametrize(
    ("query", "is_told"), [({"queue": "rare&<b>"}, True), ({"queue": "rare", "status": "succeeded"}, False)]
)
def test_page_without_a_row_leads_to_older_rows_and_to_those_that_wait(query: dict[str, str], is_told: bool) -> None:
    page = RowsPage(NOW, NOW, [], next_after=7, looked_to=7)
    text = PAGES.write("tasks.html", page, ApiRequest(query=query), "/api/v1/tasks")
    assert "after=7" in text
    assert ('href="/tasks?queue=rare%26%3Cb%3E&amp;status=waiting"' in text) is is_told


PLACE = InstallationIdentity("dispatcher", "1.2.3", "n" * 63, "n" * 63)
PREFIXED = Pages(PLACE, "/a/prefix")
ANSWERS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "overview": ("overview.html", worst.overview),
    "tasks": ("tasks.html", worst.tasks),
    "failures": ("failures.html", worst.failures),
    "batches": ("batches.html", worst.batches),
    "batch": ("batches.html", lambda sign: worst.batches(sign, 1)),
    "queue": ("queue.html", worst.queue),
    "nodes": ("nodes.html", worst.nodes),
    "row": ("task.html", worst.row),
    "about": ("about.html", worst.about),
    "refused": ("refused.html", worst.refused),
}
ORDINARY: Mapping[str, Any] = {
    "task": 123_456, "queue": "default", "template": "default", "submitted_by": "team_a", "batch": "nightly",
    "priority": 100, "attempt": 1, "error": "ValueError: line 17 has 3 columns", "note": None, "progress": None,
}  # fmt: skip
SIGNS = {"escaped": "<", "quotes": "'", "emoji in addresses": "\U0001f600", "plain": "x"}


def written(name: str, sign: str) -> str:
    template, answer = ANSWERS[name]
    return PREFIXED.write(template, answer(sign), ApiRequest("", worst.filters(sign)), "/api/v1/something")


@pytest.mark.parametrize("sign", SIGNS.values(), ids=SIGNS)
@pytest.mark.parametrize("name", ANSWERS)
def test_largest_page_has_less_than_100_kb(name: str, sign: str) -> None:
    text = written(name, sign)
    assert len(text.encode()) + sum(len(file.body) for file in STATIC.values()) < 100_000
    assert len(text.encode()) > 10_000, "there is much to show"


def test_every_template_has_its_largest_page() -> None:
    templates = {address.template for address in ADDRESSES.values() if address.template}
    assert templates | {"refused.html"} == {template for template, _ in ANSWERS.values()}


@pytest.mark.parametrize("sign", SIGNS.values(), ids=SIGNS)
def test_rows_that_are_left_out_are_on_the_next_page(sign: str) -> None:
    text = written("tasks", sign)
    ids = [int(found) for found in re.findall(r'<th scope="row" class="n"><a href="/a/prefix/tasks/(\d+)"', text)]
    assert ids == [worst.ID - place for place in range(len(ids))]
    assert 5 < len(ids) < 100
    assert re.findall(r'rel="next" href="[^"]*after=(\d+)"', text) == [str(ids[-1])]
    assert f"A page has the first {len(ids)} of these 500 rows" in text


def test_nearly_a_hundred_ordinary_rows_are_on_one_page() -> None:
    page = worst.tasks("x", 100)
    page = replace(page, tasks=[replace(one, **ORDINARY) for one in page.tasks])
    text = Pages(PLACE, "").write("tasks.html", page, ApiRequest(), "/api/v1/tasks")
    assert len(text.encode()) < MOST_BYTES
    assert text.count('<th scope="row"') >= 90


def test_groups_that_are_left_out_are_counted() -> None:
    text = written("failures", "<")
    shown = text.count('<th scope="row"')
    assert 10 < shown < 100
    assert f"{2900 + 100 - shown:,} smaller ones are left out" in text


@pytest.mark.parametrize("sign", ["<", "\U0001f600"])
def test_filters_that_would_fill_a_page_are_refused(sign: str) -> None:
    found = too_long(ApiRequest("", {"batch": sign * LONGEST_QUERY}))
    assert found is not None
    assert (found.status, "6,000 at most" in found.error) == (400, True)
    assert too_long(ApiRequest("", worst.filters(sign))) is None


AT_ONCE = round(BURST / LEAST)


def let_in(waits: Sequence[float | None]) -> list[float]:
    return [wait for wait in waits if wait is not None]


def test_burst_is_let_in_at_once_and_then_each_waits_for_its_turn() -> None:
    pacing = Pacing()
    waits = let_in([pacing.wait(0) for _ in range(AT_ONCE + 3)])
    assert waits[:AT_ONCE] == [0] * AT_ONCE
    assert [round(wait, 3) for wait in waits[AT_ONCE:]] == [0, 0.02, 0.04]


def test_request_that_would_wait_too_long_is_refused_and_costs_no_turn() -> None:
    pacing = Pacing()
    waits = let_in([pacing.wait(0) for _ in range(1000)])
    assert max(waits) <= LONGEST_WAIT + 1e-9
    assert len(waits) in {200, 201}  # waits are sums of hundredths, which are not exact
    assert pacing.wait(10) == 0


def test_long_answer_is_paid_for_by_those_who_come_after_it() -> None:
    pacing = Pacing()
    for _ in range(AT_ONCE):
        pacing.wait(0)
    pacing.charge(0.052)
    wait = pacing.wait(0)
    assert wait is not None
    assert round(wait, 3) == 0.5


def test_short_answer_costs_no_less_than_any_request() -> None:
    pacing, other = Pacing(), Pacing()
    for one in (pacing, other):
        one.wait(0)
    pacing.charge(0)
    assert [pacing.wait(0) for _ in range(300)] == [other.wait(0) for _ in range(300)]


@pytest.mark.parametrize("work", [0.0005, 0.002, 0.02, 0.1])
def test_work_of_a_flood_is_a_tenth_of_the_time(work: float) -> None:
    pacing, done, busy_until = Pacing(), 0.0, 0.0
    for tick in range(20_000):  # 1,000 requests a second
        now = max(tick / 1000, busy_until)
        if pacing.wait(now) is not None:
            pacing.charge(work)
            done, busy_until = done + work, now + work
    assert done <= PART * (busy_until + LONGEST_WAIT) + BURST + work


async def test_time_in_which_a_coroutine_waits_is_not_counted() -> None:
    now, event = 0.0, asyncio.Event()

    async def work() -> str:
        nonlocal now
        now += 1
        await event.wait()
        now += 2
        return "done"

    timed = TimedAwait(work(), lambda: now)
    running = asyncio.ensure_future(timed_of(timed))
    await asyncio.sleep(0)
    assert timed.seconds == 1
    now += 100
    event.set()
    assert await running == "done"
    assert timed.seconds == 3


def frozen() -> float:
    """A clock that stands."""
    return 0.0


async def timed_of(timed: TimedAwait[str]) -> str:
    return await timed


async def test_coroutine_that_is_cancelled_ends_as_it_wants() -> None:
    ended = list[str]()

    async def work() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")
        return ""

    running = asyncio.ensure_future(timed_of(TimedAwait(work(), frozen)))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended == ["cleaned up"]


async def test_fault_of_a_coroutine_is_passed_on() -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await TimedAwait(work(), frozen)


async def test_coroutine_may_catch_what_it_waited_for() -> None:
    failing: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        try:
            await failing
        except ValueError:
            await asyncio.sleep(0)
            return "caught"
        return ""

    running = asyncio.ensure_future(timed_of(TimedAwait(work(), frozen)))
    await asyncio.sleep(0)
    failing.set_exception(ValueError())
    assert await running == "caught"
