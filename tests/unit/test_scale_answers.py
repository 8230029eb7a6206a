"""What autoscalers say of Pods that wait: which Events count, and whose are read."""

from typing import Any

import msgspec
import pytest

from dispatcher.kube.job_api import LONGEST_WORDS, MOST_PODS, answer_of, next_pods
from dispatcher.kube.wire import EventList, EventSeries, EventSource, WireEvent
from dispatcher.model.cluster import ScaleAnswer
from tests.rig.builders import a_job, a_pod, ago

DEFAULT = "default-scheduler"


def an_event(reason: str, seconds: float = 5, message: str = "words", component: str = "x", **facts: Any) -> WireEvent:
    return WireEvent(
        reason=reason, message=message, source=EventSource(component), first_timestamp=ago(seconds), **facts
    )


@pytest.mark.parametrize(
    ("event", "comes"),
    [
        (an_event("TriggeredScaleUp", component="cluster-autoscaler"), True),
        (an_event("Nominated", component="karpenter"), True),
        (an_event("NotTriggerScaleUp", component="cluster-autoscaler"), False),
        (an_event("FailedScheduling", component="karpenter"), False),
        (an_event("FailedScheduling", component="", reporting_component="karpenter"), False),
        (an_event("FailedScheduling", component="", reporting_component="eks-auto-mode/compute"), False),
        (an_event("FailedScaleUp", component="cluster-autoscaler"), False),  # GKE: no capacity, or no quota
    ],
)
def test_words_of_autoscalers_are_answers(event: WireEvent, comes: bool) -> None:
    assert answer_of([event], DEFAULT) == ScaleAnswer(comes, ago(5), "words")


@pytest.mark.parametrize("writer", [DEFAULT, "house-scheduler"])
def test_words_of_the_own_scheduler_are_no_answer(writer: str) -> None:
    said = [an_event("FailedScheduling", component=writer)]
    assert (answer_of(said, writer), answer_of(said, "another")) == (None, ScaleAnswer(False, ago(5), "words"))


def test_repeated_event_is_as_new_as_its_last_time() -> None:
    """Clients of events.k8s.io write no lastTimestamp: they count repetitions in a series."""
    repeated = an_event("FailedScheduling", 90, component="karpenter", series=EventSeries(ago(2)))
    new = msgspec.structs.replace(an_event("Nominated"), first_timestamp=None, event_time=ago(5))
    assert answer_of([repeated, new], DEFAULT) == ScaleAnswer(False, ago(2), "words")
    assert answer_of([new], DEFAULT) == ScaleAnswer(True, ago(5), "words")


@pytest.mark.parametrize("reason", ["FailedScheduling", "Scheduled", "Pulled", ""])
def test_words_of_others_are_none(reason: str) -> None:
    assert answer_of([an_event(reason, component=DEFAULT)], DEFAULT) is None
    assert answer_of([], DEFAULT) is None


def test_newest_answer_counts() -> None:
    events = [an_event("TriggeredScaleUp", 5), an_event("NotTriggerScaleUp", 9, last_timestamp=ago(2))]
    assert answer_of(events, DEFAULT) == ScaleAnswer(False, ago(2), "words")
    assert answer_of(events[:1], DEFAULT) == ScaleAnswer(True, ago(5), "words")


def test_words_are_one_line_of_bounded_length() -> None:
    found = answer_of([an_event("NotTriggerScaleUp", message="a\n  b" * 1000)], DEFAULT)
    assert found is not None
    assert found.words.startswith("a ba b")
    assert len(found.words) == LONGEST_WORDS


@pytest.mark.parametrize("time", ["0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "soon", 5])
def test_event_that_cannot_be_read_hides_no_other(time: object) -> None:
    """Whoever may write Events wrote one about the Pod of somebody else."""
    good = {"reason": "TriggeredScaleUp", "lastTimestamp": "2026-03-14T12:00:00Z"}
    written = msgspec.json.encode({"items": [{**good, "lastTimestamp": time}, good, {"reason": 7}]})
    (found,) = msgspec.json.decode(written, type=EventList).readable()
    answer = answer_of([found], DEFAULT)
    assert answer is not None
    assert answer.comes


def test_pods_take_turns() -> None:
    pods = [a_pod(a_job(), name=f"pod-{number:02}", uid=f"{number}") for number in range(30)]
    first = next_pods(reversed(pods), after="")
    assert [pod.name for pod in first] == [f"pod-{number:02}" for number in range(MOST_PODS)]
    assert next_pods(pods, after=first[-1].name)[0].name == f"pod-{MOST_PODS:02}"
