"""The memory: its changes by the results of creates."""

import pytest

from dispatcher.jobs.memory import DENIED_SECONDS, CreateResult, Memory
from dispatcher.jobs.refusals import Meaning
from dispatcher.model.jobs import ApiAnswer
from dispatcher.model.launches import LaunchSpec, Offer, identity_of, name_of
from dispatcher.model.verdicts import BY_POLICY, Hold, HoldReason
from tests.rig.builders import a_job, a_task, an_order

FULL = ApiAnswer(403, message="exceeded quota")
REFUSED = ApiAnswer(422, message="no such field")


def result(order: LaunchSpec, meaning: Meaning, answer: ApiAnswer = REFUSED) -> CreateResult:
    return CreateResult(order, name_of(order, "dispatcher"), meaning, answer)


def a_success(order: LaunchSpec) -> CreateResult:
    made = a_job(uid="made", identity=identity_of(order), task_id=order.task.id)
    return CreateResult(order, name_of(order, "dispatcher"), Meaning.CREATED, ApiAnswer(201), made)


def test_failed_create_is_remembered_until_a_create_of_the_row_succeeds() -> None:
    memory, order = Memory(), an_order(task=a_task(id=1))
    memory.learn(result(order, Meaning.QUOTA, FULL), 5)
    assert memory.known(5).tried_at == {1: 5}
    memory.learn(a_success(order), 6)
    assert memory.known(6).tried_at == {}


def test_template_has_a_brake_of_its_own_that_a_success_ends() -> None:
    memory, order = Memory(), an_order(task=a_task(template="bad"))
    memory.learn(result(order, Meaning.UNKNOWN, ApiAnswer(500, message="webhook")), 0)
    held = Hold(HoldReason.DISPATCHER_NOT_READY, "ApiThrottled: 500 webhook")
    known = memory.known(0)
    assert (known.templates["bad"].hold, known.templates["bad"].is_probing) == (held, True)
    assert (set(known.templates), known.brakes.api) == ({"bad"}, None)
    memory.learn(a_success(order), 1)
    assert not memory.known(1).templates["bad"].is_probing


def test_row_with_a_job_that_the_watch_lacks_is_deferred_for_2_seconds() -> None:
    memory, order = Memory(), an_order(task=a_task(id=1))
    memory.learn(CreateResult(order, "x", question=ApiAnswer(200)), 0)
    assert [memory.known(seconds).deferred for seconds in (0, 1.9, 2)] == [{1}, {1}, frozenset()]


@pytest.mark.parametrize(
    ("meaning", "reason"),
    [
        (Meaning.POISON, HoldReason.POISON),
        (Meaning.DENIED, HoldReason.POISON),
        (Meaning.EXISTS, HoldReason.NAME_COLLISION),
        (Meaning.CREATED, HoldReason.POISON),
        (Meaning.QUOTA, None),
        (Meaning.UNKNOWN, None),
        (Meaning.FORBIDDEN, None),
        (Meaning.NOT_SENT, None),
    ],
)
def test_result_parks_its_row_only_if_it_is_about_the_row(meaning: Meaning, reason: HoldReason | None) -> None:
    memory, order = Memory(), an_order()
    memory.learn(result(order, meaning), 0)
    hold = memory.known(0).refused.hold(order.task, 0)
    assert (hold and hold.reason) == reason


def test_row_that_a_policy_refused_is_tried_again_after_five_minutes() -> None:
    memory, order = Memory(), an_order()
    memory.learn(result(order, Meaning.DENIED), 0)
    holds = [memory.known(now).refused.hold(order.task, now) for now in (0, DENIED_SECONDS - 1, DENIED_SECONDS)]
    assert holds == [Hold(HoldReason.POISON, f"{BY_POLICY}: 422 no such field")] * 2 + [None]


def test_copy_of_the_memory_does_not_change() -> None:
    memory, order = Memory(), an_order()
    memory.creates.begin("x", order.task, Offer("app:1", "small", "default"), 0)
    before = memory.known(0)
    memory.learn(result(order, Meaning.POISON), 0)
    memory.creates.end("x")
    assert before.refused.hold(order.task, 0) is None
    assert (before.unseen[order.task.id].is_under_way, before.brakes.under_way) == (True, 1)


def test_job_that_breaks_the_policy_parks_its_row() -> None:
    memory, order = Memory(), an_order()
    memory.learn(CreateResult(order, "x", violation="hostPath is not allowed"), 0)
    assert memory.known(0).refused.hold(order.task, 0) == Hold(HoldReason.POLICY_DENIED, "hostPath is not allowed")


@pytest.mark.parametrize(
    ("meaning", "code"),
    [(Meaning.TERMINATING, "NamespaceTerminating"), (Meaning.FORBIDDEN, "Forbidden"), (Meaning.QUOTA, "")],
)
def test_missing_right_and_full_quota_pause_all_creates(meaning: Meaning, code: str) -> None:
    memory = Memory()
    memory.learn(result(an_order(), meaning, FULL), 0)
    brakes = memory.known(9).brakes
    held = brakes.api or brakes.quota
    assert held is not None
    assert (held.detail.partition(":")[0] == code) is bool(code)
    assert (memory.known(10).brakes.api, memory.known(10).brakes.quota) == (None, None)
