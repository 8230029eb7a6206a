"""Pages stay small, however much there is to show, and say what to do where there is nothing."""

import pytest
from msgspec.structs import replace

from dispatcher.dashboard.answers import Asked
from dispatcher.dashboard.last_hour import MINUTES, QueueHour
from dispatcher.dashboard.pages import Pages
from dispatcher.dashboard.view import EstimateRecord, NodeCell, overview_page
from dispatcher.explain.listing import Page
from dispatcher.explain.status import Installation
from dispatcher.model.verdicts import HoldReason
from tests.builders import NOW
from tests.unit.test_dashboard_view import FINE, QUEUE

NOTE = "x" * 300
NUMBERS = [1000.0 + 17 * (minute % 7) for minute in range(MINUTES)]
BUSY_HOUR = QueueHour(NUMBERS, NUMBERS, NUMBERS, 60.0)
REASONS = dict.fromkeys(list(HoldReason)[:8], 12345)


def test_first_page_of_a_thousand_busy_queues_and_two_hundred_cells_has_less_than_100_kb() -> None:
    queues = [replace(QUEUE, queue=f"q{number}-" + "n" * 20, waiting=9, reasons=REASONS) for number in range(1000)]
    status = replace(FINE, queues=[replace(one, note=NOTE) for one in queues])
    cells = [NodeCell("node-" + "n" * 40, 25, 0.5, 1)] * 200
    page = overview_page(status, lambda _: BUSY_HOUR, NOW, cells, EstimateRecord())
    pages = Pages(Installation("dispatcher", "1", "jobs", "me"), "")
    text = pages.write("overview.html", page, Asked(), "/api/v1/status")
    assert len(text.encode()) < 100_000
    assert "980 further queues" in text
    assert "and 980 more problems" in text


@pytest.mark.parametrize(
    ("query", "is_told"), [({"queue": "rare&<b>"}, True), ({"queue": "rare", "status": "succeeded"}, False)]
)
def test_page_without_a_row_leads_to_older_rows_and_to_those_that_wait(query: dict[str, str], is_told: bool) -> None:
    page = Page(NOW, [], next_after=7, looked_to=7)
    pages = Pages(Installation("dispatcher", "1", "jobs", "me"), "")
    text = pages.write("tasks.html", page, Asked(query=query), "/api/v1/tasks")
    assert "after=7" in text
    assert ('href="/tasks?queue=rare%26%3Cb%3E&amp;status=waiting"' in text) is is_told
