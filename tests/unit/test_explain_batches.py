"""The rows of a batch by status."""

from dispatcher.model.history import BatchCount
from dispatcher.views.rows import batch_status
from tests.rig.builders import NOW


def test_statuses_without_a_row_are_left_out() -> None:
    found = batch_status(BatchCount("q", "team_a", "april", 9, 0, 2, 6, 1, 0, NOW, None, is_whole=False))
    assert (found.queue, found.submitted_by, found.batch, found.tasks) == ("q", "team_a", "april", 9)
    assert found.by_status == {"processing": 2, "succeeded": 6, "failed": 1}
    assert (found.first_started_at, found.last_finished_at, found.is_whole) == (NOW, None, False)
