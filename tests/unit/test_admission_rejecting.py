"""Nodes whose kubelet rejects Pods: found by our own Pods, avoided, and tried again."""

from typing import Any

import pytest
from msgspec.structs import replace

from dispatcher.admission.claims import LOOKED_AT_AGAIN, REJECTIONS, Rejections, rejecting_nodes
from dispatcher.admission.launch_inputs import OrderInputs, make_order
from dispatcher.admission.room import room_of
from dispatcher.model.caches import CacheHistory, Placement
from dispatcher.model.cluster import Pod, PodEnd
from dispatcher.model.launches import Launch, Offer
from dispatcher.views.nodes import group_nodes
from tests.rig.builders import NOW, a_job, a_pod, a_request, a_task, ago, later
from tests.unit.rooms import a_node, needs, unplaced, view_of


def rejected(number: int, node: str = "bad", seconds: float = 60, reason: str = "UnexpectedAdmissionError") -> Pod:
    end = PodEnd(reason=reason)
    return a_pod(
        name=f"p{number}", uid=f"p{number}", node_name=node, phase="Failed", end=end, created_at=ago(seconds + number)
    )


OURS = [a_job(uid=rejected(0).job_uid)]


def disrupted(number: int) -> Pod:
    """A Pod that somebody evicted before it began. Its kubelet writes that it failed, and no reason of its own."""
    return replace(rejected(number), end=PodEnd(disruption="EvictionByEvictionAPI"), is_disrupted=True)


def ran(node: str = "bad", seconds: float = 30, **facts: Any) -> Pod:
    return a_pod(name="ran", node_name=node, phase="Running", had_begun=True, created_at=ago(seconds), **facts)


@pytest.mark.parametrize(
    ("pods", "found"),
    [
        ([rejected(n) for n in range(REJECTIONS)], {"bad": "UnexpectedAdmissionError (3 Pods)"}),
        ([rejected(n) for n in range(REJECTIONS - 1)], {}),
        ([rejected(n, seconds=596) for n in range(5)], {"bad": "UnexpectedAdmissionError (4 Pods)"}),
        ([rejected(n, seconds=600) for n in range(5)], {}),
        ([rejected(1, "a"), rejected(2, "b"), rejected(3, "c")], {}),
        ([*(rejected(n) for n in range(5)), ran()], {}),
        ([*(rejected(n) for n in range(5)), ran(seconds=90)], {"bad": "UnexpectedAdmissionError (5 Pods)"}),
        ([*(rejected(n) for n in range(5)), ran("good")], {"bad": "UnexpectedAdmissionError (5 Pods)"}),
        ([rejected(n, reason="DeadlineExceeded") for n in range(5)], {}),
        ([disrupted(n) for n in range(5)], {}),
        ([rejected(n, reason="OutOfpods") for n in range(5)], {"bad": "OutOfpods (5 Pods)"}),
        ([rejected(n, node="") for n in range(5)], {}),
    ],
    ids=["three", "two", "old ones do not count", "all are old", "one each", "healed", "ran before", "another node",
         "run limit", "ended by somebody else", "any word of a kubelet", "no node"],
)  # fmt: skip
def test_node_that_rejects_the_newest_pods_is_found(pods: list[Pod], found: dict[str, str]) -> None:
    assert rejecting_nodes(pods, NOW) == found


def test_container_that_failed_is_no_rejection() -> None:
    failed = a_pod(node_name="n", phase="Failed", had_begun=True, end=PodEnd(reason="Evicted"))
    assert not failed.is_rejected
    assert not a_pod(node_name="n", phase="Failed", end=PodEnd(exit_code=128, cause="StartError")).is_rejected


def test_equal_answer_is_the_same_object_and_time_alone_ends_it() -> None:
    pods = {pod.name: pod for pod in (rejected(n, seconds=500) for n in range(REJECTIONS))}
    rejections = Rejections()
    first = rejections.look(pods, OURS, NOW)
    assert rejections.look(pods, OURS, NOW) is first
    assert rejections.look(dict(pods), OURS, NOW) is first
    assert rejections.look(pods, OURS, later(LOOKED_AT_AGAIN.total_seconds() + 100)) == {}


def test_each_rejected_pod_is_told_once_and_those_of_an_earlier_process_never() -> None:
    rejections = Rejections()
    for pods, told in (
        ([rejected(1)], []),
        ([rejected(1), rejected(2), rejected(3, "other")], ["bad", "other"]),
        ([rejected(2), rejected(3, "other"), ran()], []),
        ([rejected(4)], ["bad"]),
    ):
        rejections.look(by_name := {pod.name: pod for pod in pods}, OURS, NOW)
        assert sorted(rejections.told) == told
        rejections.look(by_name, OURS, NOW)
        assert rejections.told == ()


def test_pod_that_no_job_of_ours_has_made_says_nothing_of_its_node() -> None:
    pods = {pod.name: replace(pod, job_uid="made-up") for pod in (rejected(n) for n in range(REJECTIONS))}
    rejections, theirs = Rejections(), [replace(OURS[0], uid="made-up")]
    assert rejections.look(pods, OURS, NOW) == {}
    assert rejections.look(dict(pods), theirs, NOW) == {"bad": "UnexpectedAdmissionError (3 Pods)"}


def test_room_of_such_a_node_counts_as_none_and_says_why() -> None:
    view, asked = view_of([a_node("bad", cpu="9"), a_node("good", cpu="1")]), needs("1")
    room = room_of(view, {}, rejecting={"bad": "OutOfcpu (3 Pods)"})
    assert room.has_room(asked)
    after = room.with_launches(unplaced(asked))
    assert (after.has_room(asked), list(after.taken)) == (False, ["good"])
    assert {group.why: list(group.examples) for group in group_nodes(asked, room, 1)} == {
        "has room": ["good"], "its kubelet rejects Pods: OutOfcpu (3 Pods)": ["bad"],
    }  # fmt: skip


def test_next_launch_of_a_rejected_row_avoids_its_node() -> None:
    """Also after one rejection, when others still get the node. The row's own claim is no hindrance."""
    plan = Placement(preferred=("bad", "good"))
    inputs = OrderInputs("db", None, lambda *_: plan, claimed={"mine": 42, "others": 9})
    launch = Launch(2, avoid=("bad",)), Offer("app:1", "small", "default")
    made = make_order(a_task(id=42), a_request(), launch, CacheHistory(), inputs).placement
    assert (made.preferred, made.avoided) == (("good",), ("bad", "others"))
