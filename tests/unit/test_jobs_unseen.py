"""Creates of this process that the watch has not shown yet."""

from typing import Any

import pytest

from dispatcher.jobs.memory import Unseen, UnseenCreates, plan_create
from dispatcher.model.jobs import LaunchGroup
from dispatcher.model.launches import Launch, Offer
from dispatcher.model.snapshot import ClusterView
from dispatcher.model.verdicts import Hold, HoldReason
from tests.rig.builders import NOW, a_job, a_task

GROUP = LaunchGroup("q", "default", "app:1")
OFFER = Offer("app:1", "small", "default")


def view(*names: str, version: str = "") -> ClusterView:
    return ClusterView(NOW, {name: a_job(name=name) for name in names}, {}, {}, jobs_version=version)


def sent(*names: str) -> UnseenCreates:
    creates = UnseenCreates()
    for name in names:
        creates.begin(name, a_task(queue="q"), OFFER, now=5)
        creates.end(name)
    return creates


def test_create_is_unseen_from_its_begin() -> None:
    (unseen,) = sent("x").by_name.values()
    assert (unseen.name, unseen.task_id, unseen.group, unseen.submitted_by) == ("x", 42, GROUP, "team_a")
    assert unseen.sent_at == 5
    assert not unseen.is_answered


@pytest.mark.fault(11)
def test_unanswered_create_is_forgotten_only_when_the_view_shows_it() -> None:
    creates = sent("x", "y")
    creates.observe(view("other", version="999999"))
    assert set(creates.by_name) == {"x", "y"}
    creates.observe(view("x"))
    assert set(creates.by_name) == {"y"}


def test_answered_create_is_forgotten_when_the_view_is_newer() -> None:
    creates = sent("x")
    creates.answered("x", "100")
    assert creates.by_name["x"].is_answered
    creates.observe(view(version="99"))
    assert set(creates.by_name) == {"x"}
    creates.observe(view(version="100"))
    assert creates.by_name == {}


def test_forgetting_a_failed_create_is_idempotent() -> None:
    creates = sent("x")
    creates.forget("x")
    creates.forget("x")
    creates.answered("x", "100")
    assert creates.by_name == {}


def test_repeated_create_waits_for_its_answer_again() -> None:
    creates = sent("x")
    creates.begin("x", a_task(), OFFER, now=9)
    (unseen,) = creates.by_name.values()
    assert (unseen.sent_at, unseen.is_answered, unseen.is_under_way) == (9, False, True)
    assert creates.under_way() == [unseen]
    creates.sent("x", now=20)  # its question took a while, and it can land as late as after any other POST
    creates.sent("never begun", now=20)
    assert [one.sent_at for one in creates.by_name.values()] == [20]
    creates.end("x")
    creates.end("never begun")
    assert creates.under_way() == []


def an_unseen(**changes: Any) -> Unseen:
    return Unseen("x", 42, 1, "q", "team_a", OFFER, 0, **changes)


@pytest.mark.parametrize(
    ("unseen", "plan"),
    [
        (None, Launch(2)),
        (an_unseen(is_under_way=True), HoldReason.LAUNCHED),
        (an_unseen(resource_version="7"), HoldReason.LAUNCHED),
        (an_unseen(), Launch(2, is_repeat=True)),
        (Unseen("another", 42, 1, "q", "team_a", OFFER, 0), HoldReason.FINISHING),
    ],
    ids=["none", "under way", "answered", "unanswered, the same name", "unanswered, another name"],
)
def test_row_has_one_unanswered_create_at_a_time(unseen: Unseen | None, plan: Launch | HoldReason) -> None:
    found = plan_create(Launch(2), unseen, "x")
    assert (found.reason if isinstance(found, Hold) else found) == plan


def test_unanswered_lists_only_creates_without_an_answer() -> None:
    creates = sent("x", "y")
    creates.answered("x", "100")
    assert creates.unanswered() == {"y"}
