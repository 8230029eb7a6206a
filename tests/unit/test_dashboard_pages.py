"""Pages stay small, however much there is to show."""

from msgspec.structs import replace

from dispatcher.dashboard.answers import Asked
from dispatcher.dashboard.last_hour import MINUTES, QueueHour
from dispatcher.dashboard.pages import Pages
from dispatcher.dashboard.view import EstimateRecord, NodeCell, overview_page
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
