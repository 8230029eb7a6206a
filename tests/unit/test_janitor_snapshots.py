"""How long a session has kept its snapshot, as the janitor has seen it."""

import pytest
from structlog.testing import capture_logs

from dispatcher.janitor.janitor import SNAPSHOT_SECONDS, TOLD_AFTER_SECONDS, Snapshots
from dispatcher.runtime.metrics import OLDEST_SNAPSHOT


class Server:
    """The sessions with a snapshot, and the time."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str, str]] = []
        self.time = 1000.0

    async def snapshots(self) -> list[tuple[int, str, str]]:
        return self.found


def seconds() -> float:
    return next(iter(OLDEST_SNAPSHOT.collect())).samples[0].value


@pytest.mark.parametrize("next_xmin", ["700", "701"])
async def test_time_counts_while_the_session_has_the_same_snapshot(next_xmin: str) -> None:
    server = Server()
    watched = Snapshots(server, lambda: server.time)
    server.found = [(1, "team_a", "700"), (2, "team_b", "800")]
    assert await watched.run_once() == SNAPSHOT_SECONDS
    assert seconds() == 0
    server.time, server.found = 1090, [(1, "team_a", next_xmin)]
    await watched.run_once()
    assert seconds() == (90 if next_xmin == "700" else 0)
    server.found = []
    await watched.run_once()
    assert seconds() == 0


async def test_session_is_named_once_after_ten_minutes() -> None:
    server = Server()
    watched = Snapshots(server, lambda: server.time)
    server.found = [(4711, "team_a", "700")]
    with capture_logs() as logs:
        for late in (0, TOLD_AFTER_SECONDS - 1, TOLD_AFTER_SECONDS, TOLD_AFTER_SECONDS + 30):
            server.time = 1000 + late
            await watched.run_once()
    (told,) = logs
    assert (told["login"], told["pid"], told["next_step"]) == ("team_a", 4711, "pg_terminate_backend(4711)")
