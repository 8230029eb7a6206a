"""One virtual clock for rows, API server and processes.

The dates of rows and cluster differ on purpose. So code that compares a row's time with a Job's time fails a test.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

ROWS_EPOCH: Final = datetime(2026, 3, 14, 12, tzinfo=UTC)
CLUSTER_EPOCH: Final = ROWS_EPOCH + timedelta(minutes=37)


class Timeline:
    """Virtual seconds since the start of the test."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds

    @property
    def of_rows(self) -> datetime:
        return ROWS_EPOCH + timedelta(seconds=self.seconds)

    @property
    def of_cluster(self) -> datetime:
        return CLUSTER_EPOCH + timedelta(seconds=self.seconds)
