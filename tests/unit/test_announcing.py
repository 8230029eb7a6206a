"""The leader writes each notice about a Job once, and few in a round."""

import pytest

from dispatcher.admission.last_cycle import LastCycle, RowReason
from dispatcher.model.errors import ClusterAway
from dispatcher.model.notices import Notice
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.views.surfaces import WRITES_IN_A_ROUND, Announcing
from tests.rig.builders import NOW, a_failed_job, a_picture, a_snapshot


class Server:
    """Takes Events, and plays the replica."""

    def __init__(self, rows: int = 1) -> None:
        self.written: list[Notice] = []
        self.leads, self.is_away = True, False
        self.last: LastCycle | None = parked(rows)
        self.announcing = Announcing(self, self, lambda: self.leads, "jobs")

    async def tell_once(self, notice: Notice) -> None:
        if self.is_away:
            raise ClusterAway("no answer")
        self.written.append(notice)

    async def round(self) -> int:
        """One round. Returns the number of Events by now."""
        await self.announcing.run_once()
        return len(self.written)


def parked(rows: int) -> LastCycle:
    """A cycle with so many parked rows, each with a Job."""
    jobs = [a_failed_job(task_id=id_, uid=f"job-of-{id_}") for id_ in range(1, rows + 1)]
    told = {job.task_id: RowReason("default", 1, Hold(HoldReason.POISON), NOW) for job in jobs}
    return LastCycle(a_snapshot(), a_picture(jobs), told, frozenset(), {}, {}, leads=True)


async def test_a_notice_is_written_once() -> None:
    server = Server()
    assert [await server.round() for _ in range(3)] == [1, 1, 1]


async def test_a_round_writes_few() -> None:
    server = Server(rows=WRITES_IN_A_ROUND * 2 + 1)
    assert [await server.round() for _ in range(4)] == [5, 10, 11, 11]


async def test_a_replica_that_does_not_lead_and_one_without_a_cycle_write_nothing() -> None:
    server = Server()
    server.leads = False
    assert await server.round() == 0
    server.leads, server.last = True, None
    assert await server.round() == 0


async def test_a_notice_that_could_not_be_written_is_written_later() -> None:
    server = Server()
    server.is_away = True
    with pytest.raises(ClusterAway):
        await server.round()
    server.is_away = False
    assert await server.round() == 1


async def test_a_notice_that_is_over_and_comes_again_is_written_once() -> None:
    """Its Event has the same name, so it would replace the first one."""
    server, cycle = Server(), parked(1)
    await server.round()
    server.last = parked(0)
    await server.round()
    server.last = cycle
    assert await server.round() == 1
