"""What a process remembers of its own creates: pauses after bad answers, unseen creates, parked rows."""

from typing import Any

import pytest

from dispatcher.jobs.memory import LONGEST_PAUSE_SECONDS, MOST_REMEMBERED, Breaker, Memory, Unseen, plan_create
from dispatcher.model.jobs import LaunchGroup
from dispatcher.model.launches import Launch
from dispatcher.model.snapshot import ClusterView
from dispatcher.model.verdicts import Hold, HoldReason
from tests.builders import NOW, a_job, a_task, an_indexed_row, an_order

STOP = Hold(HoldReason.DISPATCHER_NOT_READY, "ApiThrottled")
OTHER = Hold(HoldReason.DISPATCHER_NOT_READY, "Forbidden")
POISON = Hold(HoldReason.POISON, "422")


def pause_of(breaker: Breaker, now: float) -> float:
    """How long it stays open, to the millisecond."""
    return next(step / 1000 for step in range(200_000) if breaker.hold(now + step / 1000) is None)


# Breaker


def test_a_new_breaker_holds_nothing() -> None:
    breaker = Breaker()
    assert breaker.hold(0) is None
    assert not breaker.is_probing


def test_each_failure_after_a_pause_doubles_the_next_up_to_half_a_minute() -> None:
    breaker, now, pauses = Breaker(), 100.0, []
    for _ in range(9):
        breaker.trip(STOP, now)
        pauses.append(pause_of(breaker, now))
        now += pauses[-1]
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_failures_without_end_keep_the_longest_pause() -> None:
    breaker = Breaker()
    for number in range(3000):
        breaker.trip(STOP, number * 100.0)
    assert pause_of(breaker, 299_900) == LONGEST_PAUSE_SECONDS


def test_many_answers_of_one_bad_moment_count_once() -> None:
    breaker = Breaker()
    for number in range(16):
        breaker.trip(STOP, 100 + number / 1000)
    assert breaker.hold(100.499) == STOP
    assert breaker.hold(100.5) is None
    breaker.trip(STOP, 101)
    assert pause_of(breaker, 101) == 1


@pytest.mark.fault(19)
def test_the_server_may_ask_for_a_longer_pause_but_not_for_a_shorter_one() -> None:
    breaker = Breaker()
    breaker.trip(STOP, 100, 7)
    assert pause_of(breaker, 100) == 7
    breaker.trip(STOP, 101, 1)
    assert pause_of(breaker, 101) == 6
    breaker.trip(STOP, 102, 9)
    assert pause_of(breaker, 102) == 9
    breaker.trip(STOP, 200, 0.001)
    assert pause_of(breaker, 200) == 1


def test_the_newest_answer_is_the_reason() -> None:
    breaker = Breaker()
    breaker.trip(STOP, 100)
    breaker.trip(OTHER, 100.1)
    assert breaker.hold(100.2) == OTHER


@pytest.mark.fault(19, 23)
def test_after_a_pause_it_probes_until_something_succeeds() -> None:
    breaker = Breaker()
    breaker.trip(STOP, 100)
    assert (breaker.hold(101), breaker.is_probing) == (None, True)
    breaker.reset()
    assert (breaker.hold(101), breaker.is_probing) == (None, False)


def test_a_success_makes_the_next_failure_the_first() -> None:
    breaker = Breaker()
    breaker.trip(STOP, 100)
    breaker.trip(STOP, 101)
    breaker.reset()
    breaker.trip(STOP, 102)
    assert pause_of(breaker, 102) == 0.5


def test_a_success_ends_a_pause_at_once() -> None:
    breaker = Breaker()
    breaker.trip(STOP, 100, 60)
    breaker.reset()
    assert breaker.hold(100.1) is None


# Unseen creates


LANE = LaunchGroup("q", "default", "app:1")


def view(*names: str, version: str = "") -> ClusterView:
    return ClusterView(NOW, {name: a_job(name=name) for name in names}, {}, {}, jobs_version=version)


def sent(*names: str) -> Memory:
    memory = Memory()
    for name in names:
        memory.begun(name, a_task(queue="q"), LANE, now=5)
        memory.ended(name)
    return memory


def test_a_create_is_unseen_from_its_first_byte_on() -> None:
    (unseen,) = sent("x").unseen.values()
    assert (unseen.name, unseen.task_id, unseen.group, unseen.submitted_by) == ("x", 42, LANE, "team_a")
    assert unseen.sent_at == 5
    assert not unseen.is_answered


@pytest.mark.fault(11)
def test_an_unanswered_create_is_forgotten_only_when_the_view_shows_it() -> None:
    memory = sent("x", "y")
    memory.observe(view("other", version="999999"))
    assert set(memory.unseen) == {"x", "y"}
    memory.observe(view("x"))
    assert set(memory.unseen) == {"y"}


def test_an_answered_create_that_came_and_went_is_forgotten_by_version() -> None:
    memory = sent("x")
    memory.answered("x", "100")
    assert memory.unseen["x"].is_answered
    memory.observe(view(version="99"))
    assert set(memory.unseen) == {"x"}
    memory.observe(view(version="100"))
    assert memory.unseen == {}


def test_what_was_not_made_is_forgotten_at_once_and_twice_is_no_harm() -> None:
    memory = sent("x")
    memory.not_made("x")
    memory.not_made("x")
    memory.answered("x", "100")
    assert memory.unseen == {}


def test_a_repeated_create_waits_for_its_answer_again() -> None:
    memory = sent("x")
    memory.begun("x", a_task(), LANE, now=9)
    (unseen,) = memory.unseen.values()
    assert (unseen.sent_at, unseen.is_answered, unseen.is_under_way) == (9, False, True)
    assert memory.under_way() == [unseen]
    memory.sent("x", now=20)  # its question took a while, and it can land as late as after any other POST
    memory.sent("never begun", now=20)
    assert [one.sent_at for one in memory.unseen.values()] == [20]
    memory.ended("x")
    memory.ended("never begun")
    assert memory.under_way() == []


# What a create of ours that nobody has seen yet means for the next (docs/protocol.md, section 4)


def an_unseen(**changes: Any) -> Unseen:
    return Unseen("x", 42, 1, LANE, "team_a", 0, **changes)


@pytest.mark.parametrize(
    ("unseen", "plan"),
    [
        (None, Launch(2)),
        (an_unseen(is_under_way=True), HoldReason.LAUNCHED),
        (an_unseen(resource_version="7"), HoldReason.LAUNCHED),
        (an_unseen(), Launch(2, is_repeat=True)),
        (Unseen("another", 42, 1, LANE, "team_a", 0), HoldReason.FINISHING),
    ],
    ids=["none", "under way", "answered", "unanswered, the same name", "unanswered, another name"],
)
def test_one_unanswered_create_of_a_row_at_a_time(unseen: Unseen | None, plan: Launch | HoldReason) -> None:
    found = plan_create(Launch(2), unseen, "x")
    assert (found.reason if isinstance(found, Hold) else found) == plan


# Parked rows


@pytest.mark.fault(17)
@pytest.mark.museum("422 retried forever")
def test_a_parked_row_stays_parked_in_its_attempt_alone() -> None:
    memory = Memory()
    collision = Hold(HoldReason.NAME_COLLISION, "taken")
    memory.park(a_task(), collision)
    assert memory.parked(a_task(), 0) == memory.parked(an_indexed_row(42), 0) == collision
    assert memory.parked(a_task(attempt=2), 0) is None
    assert memory.parked(a_task(id=43), 0) is None


def test_of_very_many_parked_rows_the_oldest_is_forgotten() -> None:
    memory = Memory()
    hold = Hold(HoldReason.POLICY_DENIED)
    task = a_task(id=0)
    memory.park(task, hold)
    for number in range(1, MOST_REMEMBERED):
        memory.park(a_task(id=number), hold)
    assert memory.parked(task, 0) == hold
    memory.park(a_task(id=MOST_REMEMBERED), hold)
    assert memory.parked(task, 0) is None
    assert memory.parked(a_task(id=1), 0) == memory.parked(a_task(id=MOST_REMEMBERED), 0) == hold


# Turns, pauses and doubts


def test_whoever_failed_last_is_known_until_a_create_of_it_succeeds() -> None:
    memory = Memory()
    memory.failed(a_task(id=1), 5)
    assert memory.tried_at(1) == 5
    assert memory.tried_at(2) == float("-inf")
    memory.accepted(an_order(task=a_task(id=1)))
    assert memory.tried_at(1) == float("-inf")


def test_a_template_has_a_brake_of_its_own_that_a_success_ends() -> None:
    memory = Memory()
    memory.of_template("bad").trip(POISON, 0)
    assert memory.of_template("bad").hold(0) == POISON
    assert memory.of_template("good").hold(0) is None
    memory.accepted(an_order(task=a_task(template="bad")))
    assert not memory.of_template("bad").is_probing


def test_a_row_whose_job_the_watch_does_not_show_is_left_alone_for_a_moment() -> None:
    memory = Memory()
    memory.defer(1, 0)
    assert (memory.is_deferred(1, 1.9), memory.is_deferred(1, 2), memory.is_deferred(2, 1)) == (True, False, False)


def test_a_wish_of_a_day_is_obeyed_for_five_minutes() -> None:
    breaker = Breaker()
    breaker.trip(POISON, 0, at_least=86_400)
    assert breaker.hold(299) == POISON
    assert breaker.hold(301) is None
