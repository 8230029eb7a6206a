"""The extender's requests and answers, as they are decoded and encoded."""

from typing import Any

import msgspec
import pytest

from dispatcher.extender.wire import (
    Arguments,
    ExtenderPod,
    FilterResult,
    PreemptionArguments,
    PreemptionResult,
    Priority,
    asks,
)

Json = dict[str, Any]


def arguments(**keys: object) -> Arguments:
    return msgspec.json.decode(msgspec.json.encode(keys), type=Arguments)


def a_node(name: object, **metadata: object) -> Json:
    return {"metadata": {"name": name, **metadata}, "status": {"images": [{"sizeBytes": 5}]}}


def listed(*items: object) -> Json:
    return {"metadata": {"resourceVersion": "7"}, "items": items}


# Names


def test_names_keep_their_order_and_come_once() -> None:
    assert list(arguments(NodeNames=["c", "a", "c", "b", "a"]).names()) == ["c", "a", "b"]
    assert list(arguments(Nodes=listed(*map(a_node, "cacba"))).names()) == ["c", "a", "b"]


@pytest.mark.parametrize("nodes", [None, [], 5, listed(a_node("x"))])
def test_node_names_take_precedence_over_nodes(nodes: object) -> None:
    assert list(arguments(Pod=5, Nodes=nodes, NodeNames=["a"]).names()) == ["a"]


def test_empty_list_has_no_names() -> None:
    assert list(arguments(NodeNames=[]).names()) == []
    assert list(arguments(Nodes={"items": []}).names()) == []
    assert list(arguments(Nodes={"metadata": {}, "items": None}, NodeNames=None).names()) == []


@pytest.mark.parametrize("odd", [5, None, True, 1.5, ["b"], {"name": "b"}])
def test_item_that_is_no_name_is_left_out(odd: object) -> None:
    assert list(arguments(NodeNames=["a", odd, "c", odd, "a"]).names()) == ["a", "c"]


@pytest.mark.parametrize("odd", [5, None, [], {}, {"metadata": None}, a_node(5), a_node(None), {"metadata": {}}, "b"])
def test_item_that_is_no_node_is_left_out(odd: object) -> None:
    assert list(arguments(Nodes=listed(a_node("a"), odd, a_node("c"), odd, a_node("a"))).names()) == ["a", "c"]


@pytest.mark.parametrize(
    "metadata",
    [{"annotations": {"a": 5}}, {"annotations": 5}, {"creationTimestamp": "yesterday"}, {"uid": 5}, {"namespace": []}],
)
def test_node_with_other_faults_keeps_its_name(metadata: Json) -> None:
    assert list(arguments(Nodes=listed(a_node("a", **metadata), a_node("b"))).names()) == ["a", "b"]


def test_bytes_that_are_no_text_spoil_one_name_only() -> None:
    body = b'{"NodeNames": ["a", "\xff\xfe", "c"]}'
    assert list(msgspec.json.decode(body, type=Arguments).names()) == ["a", "c"]


@pytest.mark.parametrize(
    "keys",
    [
        {"NodeNames": "a"}, {"NodeNames": {"a": 1}}, {"NodeNames": 5}, {"NodeNames": [5, None]},
        {"Nodes": []}, {"Nodes": 5}, {"Nodes": {"items": 5}}, {"Nodes": listed(5)},
        {}, {"NodeNames": None}, {"Nodes": None, "NodeNames": None},
    ],
)  # fmt: skip
def test_body_without_a_readable_name_raises(keys: Json) -> None:
    with pytest.raises(msgspec.MsgspecError):
        arguments(**keys).names()


# Pods


def resources(requests: object = None, limits: object = None, **more: object) -> Json:
    return {"name": "task", "resources": {"requests": requests, "limits": limits}, **more}


def a_pod(**spec: object) -> ExtenderPod:
    return msgspec.json.decode(msgspec.json.encode({"spec": spec}), type=ExtenderPod)


@pytest.mark.parametrize(
    "written", [{}, {"metadata": {}, "spec": {}}, {"metadata": {"annotations": None, "creationTimestamp": None}}]
)
def test_pod_without_any_field_is_read(written: Json) -> None:
    pod = msgspec.json.decode(msgspec.json.encode(written), type=ExtenderPod)
    assert (pod.metadata.uid, pod.metadata.annotations, pod.metadata.creation_timestamp) == ("", None, None)
    assert asks(pod) == {"pods": 1000}


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00", "2026-03-14T12:00:00", "9999-12-31T23:59:59"])
def test_time_without_a_zone_raises(at: str) -> None:
    """Such a time would differ from machine to machine. In the year 1 it could not even be converted."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode({"metadata": {"creationTimestamp": at}}), type=ExtenderPod)


def test_pod_asks_for_containers_init_containers_and_overhead() -> None:
    pod = a_pod(
        containers=[resources({"cpu": "1", "memory": "1Ki"}), resources({"cpu": "500m"}), {"name": "bare"}],
        initContainers=[
            resources({"cpu": "250m"}, restartPolicy="Always"),
            resources({"memory": "2Ki", "example.com/gpu": "1"}),
        ],
        overhead={"cpu": "10m"},
    )
    assert asks(pod) == {"cpu": 1760, "memory": 2_048_000, "example.com/gpu": 1000, "pods": 1000}


def test_limits_and_unreadable_quantities_are_not_requests() -> None:
    assert asks(a_pod(containers=[resources({"memory": "1Ki1"}, {"cpu": "4"})], initContainers=None)) == {"pods": 1000}


# Answers


def written(answer: object) -> object:
    return msgspec.json.decode(msgspec.json.encode(answer))


def test_priorities_are_written_with_gos_keys() -> None:
    assert msgspec.json.encode([Priority("a", 7), Priority("b", 0)]) == (
        b'[{"Host":"a","Score":7},{"Host":"b","Score":0}]'
    )


def test_filter_answer_has_all_of_gos_keys() -> None:
    assert written(FilterResult(node_names=["a"])) == {
        "Nodes": None, "NodeNames": ["a"], "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": "",
    }  # fmt: skip


# Victims


def victims(**keys: object) -> object:
    asked = msgspec.json.decode(msgspec.json.encode(keys), type=PreemptionArguments)
    answer = written(PreemptionResult(asked.victims()))
    assert isinstance(answer, dict)
    assert list(answer) == ["NodeNameToMetaVictims"]
    return answer["NodeNameToMetaVictims"]


META = {"a": {"Pods": [{"UID": "u1"}, {"UID": "u2"}], "NumPDBViolations": 2}, "b": {"Pods": [], "NumPDBViolations": 0}}


def test_victims_are_answered_as_they_came() -> None:
    assert victims(Pod={}, NodeNameToVictims=None, NodeNameToMetaVictims=META) == META


def test_whole_victims_are_answered_by_their_uids() -> None:
    whole = {"a": {"Pods": [{"metadata": {"uid": uid, "name": "x"}} for uid in ("u1", "u2")], "NumPDBViolations": 2},
             "b": {"Pods": None}}  # fmt: skip
    assert victims(Pod={}, NodeNameToVictims=whole, NodeNameToMetaVictims=None) == META


@pytest.mark.parametrize("metadata", [{"annotations": {"a": 5}}, {"creationTimestamp": "x"}, {"name": None}])
def test_victim_with_other_faults_keeps_its_uid(metadata: Json) -> None:
    whole = {"a": {"Pods": [{"metadata": {"uid": "u1", **metadata}}], "NumPDBViolations": 0}}
    assert victims(NodeNameToVictims=whole) == {"a": {"Pods": [{"UID": "u1"}], "NumPDBViolations": 0}}


def test_request_without_candidates_has_no_victims() -> None:
    assert victims() == victims(Pod=None, NodeNameToMetaVictims={}) == {}
