"""Stable codes of rows, and properties of Jobs."""

import msgspec
import pytest

from dispatcher.model.jobs import LaunchGroup, Phase
from dispatcher.model.tasks import TERMINAL, Status
from dispatcher.model.verdicts import PARKED, HoldReason
from tests.rig.builders import IMAGE, a_complete_job, a_disrupted_job, a_failed_job, a_job, a_pod, a_snapshot, a_task

ORDER_OF_THE_GATES = [
    "UnknownTemplate", "InvalidTemplate", "PolicyDenied", "NotDue", "Paused",
    "NameCollision", "Poison", "ExitedWithoutReport", "LaunchesExhausted", "DisruptedTooOften",
    "FailuresExhausted", "Finishing", "Backoff", "JobChanged", "TemplateFailing",
    "DispatcherNotReady",
    "NeverFits",
    "SubmitterCap", "QueueCap", "JobCap", "QuotaExceeded", "PendingPods", "NoRoomNow", "RateLimited", "NextCycle",
    "InLine",
]  # fmt: skip


def test_hold_reasons_are_declared_in_the_order_of_the_gates() -> None:
    told_by_no_gate = {"Launched", "NodeLost", "Unjudged"}
    assert [reason for reason in HoldReason if reason not in told_by_no_gate] == ORDER_OF_THE_GATES


def test_parked_reasons_are_those_that_the_janitor_may_end() -> None:
    """docs/protocol.md, section 6, the list under the table."""
    assert {str(reason) for reason in PARKED} == {
        "UnknownTemplate", "InvalidTemplate", "PolicyDenied", "NameCollision", "Poison", "ExitedWithoutReport",
        "LaunchesExhausted", "DisruptedTooOften", "FailuresExhausted",
    }  # fmt: skip


@pytest.mark.fault(9)
def test_three_statuses_are_terminal_and_unknown_is_not() -> None:
    assert {str(status) for status in Status} == {
        "waiting",
        "processing",
        "succeeded",
        "failed",
        "cancelled",
        "unknown",
    }
    assert {str(status) for status in TERMINAL} == {"succeeded", "failed", "cancelled"}


@pytest.mark.fault(50)
@pytest.mark.parametrize(
    ("phase", "is_finished"),
    [(Phase.ACTIVE, False), (Phase.FAILING, False), (Phase.COMPLETE, True), (Phase.FAILED, True)],
)
@pytest.mark.parametrize("deleting", [False, True])
def test_conditions_decide_whether_a_job_is_finished_and_deletion_does_not(
    phase: Phase, is_finished: bool, deleting: bool
) -> None:
    assert a_job(phase=phase, deleting=deleting).is_finished is is_finished


def test_a_disruption_is_known_only_by_the_pod_failure_policy() -> None:
    assert a_disrupted_job().was_disrupted
    assert not a_failed_job(reason="BackoffLimitExceeded").was_disrupted
    assert not a_failed_job(reason="DeadlineExceeded").was_disrupted
    assert not a_complete_job().was_disrupted
    assert not a_job(phase=Phase.FAILING, reason="PodFailurePolicy").was_disrupted, "its Pod is not gone yet"


def test_launches_of_one_image_template_and_queue_share_a_group() -> None:
    assert a_job(launch=1).group == a_job(2, 3, task_id=7).group == LaunchGroup("default", "default", IMAGE)
    others = [a_job(queue="q").group, a_job(template="t").group, a_job(image="i").group]
    assert len({*others, a_job().group}) == 4


@pytest.mark.parametrize("noun", [a_task(), a_job(), a_pod(), a_snapshot()])
def test_judged_objects_are_immutable(noun: msgspec.Struct) -> None:
    with pytest.raises(AttributeError):
        setattr(noun, noun.__struct_fields__[0], None)
