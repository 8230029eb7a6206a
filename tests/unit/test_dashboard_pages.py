"""Pages stay small, however much there is to show, and say what to do where there is nothing."""

import re
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from dispatcher.model.verdicts import HoldReason
from dispatcher.views.answers import ApiRequest
from dispatcher.views.failures import FailuresPage
from dispatcher.views.first_page import MINUTES, MOST_CELLS, EstimateRecord, NodeCell, QueueHour, overview_page
from dispatcher.views.node_room import NodesPage
from dispatcher.views.rows import BatchesPage, RowsPage
from dispatcher.views.server import Pages
from dispatcher.views.status import InstallationIdentity, InstallationStatus
from tests.rig.builders import NOW
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


def test_overview_draws_starts_and_ends_of_the_last_hour() -> None:
    hour = QueueHour([None, 2.0, 4.0], [None, 1.0, 0.0], [0.0] * 3, None)
    text = overview(replace(FINE, queues=[QUEUE]), hour)
    assert 'aria-label="starts and ends a minute in the last hour, at most 4"' in text
    assert '<path d="M0 100V100h1V50h1V0h1V100z"/><path class="ends" d="M1 75h1V100h1"/>' in text
    assert "</span> starts," in text
    assert "</span> ends</th>" in text


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
        FailuresPage(as_of=NOW, groups=[], groups_left_out=0, failed=0, failed_since=NOW, parked=0, parked_left_out=0),
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
