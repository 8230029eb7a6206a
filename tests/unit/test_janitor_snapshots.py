"""How long a session has kept its snapshot, as the janitor has seen it."""

import pytest
from structlog.testing import capture_logs

from dispatcher.janitor.janitor import SNAPSHOT_SECONDS, TOLD_AFTER_SECONDS, Snapshots
from dispatcher.runtime.metrics import OLDEST_SNAPSHOT


class Server:
    """The sessions with a snapshot, and the time."""

    def __init__(self) -> None:
        self.found: tuple[int, str, str, str] | None = None
        self.time = 1000.0

    async def oldest_snapshot(self) -> tuple[int, str, str, str] | None:
        return self.found


def seconds() -> float:
    return next(iter(OLDEST_SNAPSHOT.collect())).samples[0].value


@pytest.mark.parametrize("pid", [1, 2], ids=["the same session", "handed on"])
@pytest.mark.parametrize("next_xmin", ["700", "701"])
async def test_time_counts_while_the_oldest_snapshot_is_the_same(next_xmin: str, pid: int) -> None:
    server = Server()
    watched = Snapshots(server, lambda: server.time)
    server.found = (1, "team_a", "700", "")
    assert await watched.run_once() == SNAPSHOT_SECONDS
    assert seconds() == 0
    server.time, server.found = 1090, (pid, "team_a", next_xmin, "")
    await watched.run_once()
    assert seconds() == (90 if next_xmin == "700" else 0)
    server.found = None
    await watched.run_once()
    assert seconds() == 0


async def test_session_is_named_once_after_ten_minutes() -> None:
    server = Server()
    watched = Snapshots(server, lambda: server.time)
    server.found = (4711, "team_a", "700", "pg_terminate_backend(4711)")
    with capture_logs() as logs:
        for late in (0, TOLD_AFTER_SECONDS - 1, TOLD_AFTER_SECONDS, TOLD_AFTER_SECONDS + 30):
            server.time = 1000 + late
            await watched.run_once()
    (told,) = logs
    assert (told["login"], told["pid"], told["next_step"]) == ("team_a", 4711, "pg_terminate_backend(4711)")
