"""Notices: which ones are told below a Job, and each once, in a bounded queue."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from dispatcher.admission.last_cycle import LastCycle, RowReason
from dispatcher.model.cluster import Pod, PodEnd
from dispatcher.model.errors import ClusterAway
from dispatcher.model.jobs import MOST_NOTICES, MOST_TRIES, Job, Notice, Notices
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.views.published import notices_of
from dispatcher.views.surfaces import WRITES_IN_A_ROUND, JobEventWriter
from tests.rig.builders import NOW, a_cluster, a_failed_job, a_job, a_last_cycle, a_picture, a_pod, ago


def a_notice(number: int = 1, words: str = "x", reason: str = "Refused") -> Notice:
    return Notice("Pod", f"team/p{number}", f"u{number}", reason, words)


def test_notices_come_in_order_and_stay_until_they_are_told() -> None:
    notices = Notices()
    for number in range(3):
        notices.say(a_notice(number))
    assert notices.due(2) == notices.due(2) == [a_notice(0), a_notice(1)]
    notices.told(notices.due(1)[0])
    assert notices.due(2) == [a_notice(1), a_notice(2)]


def test_a_newer_notice_for_an_object_and_a_reason_replaces_the_older() -> None:
    notices = Notices()
    for words in ("old", "new"):
        notices.say(a_notice(words=words))
    notices.say(a_notice(reason="Landed"))
    assert [one.words for one in notices.due(10)] == ["new", "x"]


def test_a_notice_that_comes_during_a_write_is_kept() -> None:
    notices = Notices()
    notices.say(a_notice(words="old"))
    (old,) = notices.due(1)
    notices.say(a_notice(words="new"))
    notices.told(old)
    assert [one.words for one in notices.due(1)] == ["new"]


def test_notices_beyond_the_limit_are_dropped_and_counted() -> None:
    notices = Notices()
    for number in range(MOST_NOTICES + 2):
        notices.say(a_notice(number))
    notices.say(a_notice(0, "new"))
    assert len(notices.due(2 * MOST_NOTICES)) == MOST_NOTICES
    assert notices.due(1)[0].words == "new"
    assert notices.dropped == {"Refused": 2}


def test_a_failing_notice_goes_behind_the_others_and_is_dropped_at_last() -> None:
    notices = Notices()
    for number in (1, 2):
        notices.say(a_notice(number))
    notices.put_off(a_notice(1))
    assert notices.due(2) == [a_notice(2), a_notice(1)]
    for _ in range(MOST_TRIES - 1):
        notices.put_off(a_notice(1))
    assert notices.due(2) == [a_notice(2)]
    assert notices.dropped == {"Refused": 1}


class Server:
    """Takes Events, and plays the replica."""

    def __init__(self, rows: int = 1) -> None:
        self.written: list[Notice] = []
        self.leads, self.is_away = True, False
        self.last: LastCycle | None = parked(rows)
        self.announcing = JobEventWriter(self, self, lambda: self.leads, "jobs")

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
    return a_last_cycle(None, a_picture(jobs), told)


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


def a_cycle(jobs: Iterable[Job], pods: Iterable[Pod] = (), row: RowReason | None = None) -> LastCycle:
    return a_last_cycle(None, a_picture(jobs, a_cluster(pods)), {42: row} if row else {})


def told(reason: HoldReason = HoldReason.LAUNCHES_EXHAUSTED, attempt: int = 1) -> RowReason:
    return RowReason("default", attempt, Hold(reason, "3 launches never started"), NOW)


def notices(cycle: LastCycle) -> list[Notice]:
    return list(notices_of(cycle, "jobs"))


def test_a_launch_that_ended_tells_why_another_one_follows() -> None:
    first, second = a_failed_job(), a_job(1, 2, created_at=ago(5))
    crash = a_pod(first, phase="Failed", end=PodEnd(container="task", exit_code=3))
    (notice,) = notices(a_cycle([first, second], [crash]))
    assert (notice.kind, notice.name, notice.uid) == ("Job", f"jobs/{first.name}", first.uid)
    assert (notice.reason, notice.is_warning) == ("Relaunched", True)
    assert notice.words == "launch 2 of attempt 1 follows: exit code 3"
    (without_pod,) = notices(a_cycle([first, second]))
    assert without_pod.words == "launch 2 of attempt 1 follows"


def test_a_next_attempt_is_told_on_the_last_launch_of_the_one_before() -> None:
    jobs = [a_failed_job(1, 1), a_failed_job(1, 2, created_at=ago(600)), a_job(2, 1, created_at=ago(5))]
    (notice,) = notices(a_cycle(jobs))
    assert (notice.name, notice.words) == (f"jobs/{jobs[1].name}", "launch 1 of attempt 2 follows")


def test_a_launch_of_long_ago_is_not_told_again() -> None:
    assert notices(a_cycle([a_failed_job(), a_job(1, 2, created_at=ago(600))])) == []


def test_a_job_of_another_row_with_the_same_id_has_no_part_in_it() -> None:
    """A database that was made anew has the same ids."""
    stranger = replace(a_failed_job(), identity="another")
    assert notices(a_cycle([stranger, a_job(1, 2, created_at=ago(5))])) == []


def test_the_newest_job_of_a_parked_row_tells_what_helps() -> None:
    jobs = [a_failed_job(1, 1), a_failed_job(1, 2, created_at=ago(600))]
    (notice,) = notices(a_cycle(jobs, row=told()))
    assert (notice.name, notice.reason) == (f"jobs/{jobs[1].name}", "Parked")
    assert notice.words == (
        "LaunchesExhausted: no launch of it has called task_start: 3 launches never started; "
        "correct the image, the template or its Secret; then task_retry"
    )


def test_a_parked_row_without_a_job_of_its_attempt_has_nothing_to_tell_it_on() -> None:
    assert notices(a_cycle([], row=told())) == []
    assert notices(a_cycle([a_failed_job(created_at=ago(600))], row=told(attempt=2))) == []


def test_a_row_that_waits_for_something_else_is_not_told() -> None:
    assert notices(a_cycle([a_failed_job(created_at=ago(600))], row=told(HoldReason.BACKOFF))) == []
