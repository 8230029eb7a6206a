"""No object that somebody else can write holds the event loop: the largest legal ones, of each shape.

etcd takes 1.5 MiB of an object. Whoever may create Pods in any namespace decides what stands in them.
"""

import gc
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import msgspec
import pytest

from dispatcher.admission.room import RoomIndex
from dispatcher.extender.wire import ExtenderPod, read_pod_request
from dispatcher.kube.capacity import read_quota
from dispatcher.kube.config_maps import node_caches, read_cache_pod
from dispatcher.kube.events import refusal_of
from dispatcher.kube.job_api import Workload, answer_of, words_of_events, words_of_workloads
from dispatcher.kube.objects import pod_reader, read_bound_pod, read_job, read_node, read_priority_class
from dispatcher.kube.reservations import read_reservation, read_waiting
from dispatcher.kube.wire import RawItems, WireEvent
from dispatcher.model.cluster import NodeCapacities
from tests.unit.wire import AT

LARGEST = 1_300_000
HELD_SECONDS = 0.05
SLOWEST = 12
"""On a slow or busy machine: at most so many times as long as the standard library takes to read the JSON."""
TRIES = 20  # the best counts: another process takes caches and the clock of the core
Json = dict[str, Any]
OURS: Json = {
    "name": "dispatcher-4711-1c2e9f04-1", "namespace": "jobs", "uid": "u", "creationTimestamp": AT,
    "labels": {"dispatcher.internal/installation": "dispatcher"}, "annotations": {"dispatcher.internal/shape": "s"},
    "ownerReferences": [{"uid": "x", "controller": True, "kind": "Job", "name": "a"}],
}  # fmt: skip


def many(one: Callable[[str], Any], size: int = LARGEST) -> list[Any]:
    """As many different entries as an object takes."""
    return [one(f"{number:x}") for number in range(0x1000, 0x1000 + size // (len(json.dumps(one("10000"))) + 1))]


def names(value: Callable[[str], str], size: int = LARGEST) -> dict[str, str]:
    return {f"a.b/{key}": value(key) for key in many(lambda key: {f"a.b/{key}": value(key)}, size) for key in _key(key)}


def _key(entry: dict[str, str]) -> Iterator[str]:
    for name in entry:
        yield name.removeprefix("a.b/")


def one(key: str) -> str:
    return "1"


def asks(key: str) -> Json:
    return {"requests": {f"a.b/{key}": "1"}}


def affinity(*terms: Any) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def exists(key: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": "Exists"}]}


@cache
def specs() -> dict[str, Json]:
    return {
        "containers": {"containers": many(lambda key: {"name": f"c{key}", "resources": asks(key)})},
        "init containers": {"initContainers": many(lambda key: {"name": f"c{key}", "resources": asks(key)})},
        "sidecars": {
            "initContainers": many(lambda key: {"name": f"c{key}", "restartPolicy": "Always", "resources": asks(key)})
        },
        "one container": {"containers": [{"name": "a", "resources": {"requests": names(one)}}]},
        "fractions": {
            "containers": [{"name": "a", "resources": {"requests": names(lambda key: f"1.{int(key, 16)}1e5")}}]
        },
        "digits": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "9" * LARGEST}}}]},
        "overhead": {"overhead": names(one)},
        "env": {"containers": [{"name": "a", "env": many(lambda key: {"name": key, "value": "1"})}]},
        "tolerations": {"tolerations": many(lambda key: {"key": key, "operator": "Exists"})},
        "selector": {"nodeSelector": names(one)},
        "terms": {"affinity": affinity(*many(exists))},
        "values": {"affinity": affinity({"matchExpressions": [{"key": "a", "operator": "In", "values": many(str)}]})},
        "gates": {"schedulingGates": many(lambda key: {"name": key})},
    }


@cache
def statuses() -> dict[str, Json]:
    return {
        "conditions": {"conditions": many(lambda key: {"type": key, "status": "True", "lastTransitionTime": AT})},
        "statuses": {"containerStatuses": many(lambda key: {"name": key, "allocatedResources": {f"a.b/{key}": "1"}})},
        "allocated": {"containerStatuses": [{"name": "task", "allocatedResources": names(one)}]},
        "message": {"containerStatuses": [{"name": "task", "state": {"waiting": {
            "reason": "A", "message": "( " * 650_000}}}]},
        "output": {"containerStatuses": [{"name": "task", "state": {"terminated": {
            "exitCode": 1, "reason": "Error", "startedAt": AT, "finishedAt": AT, "message": "((: " * 300_000}}}]},
    }  # fmt: skip


@cache
def metas() -> dict[str, Json]:
    return {
        "labels": {"labels": OURS["labels"] | names(one)},
        "annotations": {"annotations": OURS["annotations"] | names(one)},
        "owners": {"ownerReferences": many(lambda key: {"uid": key, "name": "a", "kind": "Job", "apiVersion": "v1"})},
        "finalizers": {"deletionTimestamp": AT, "finalizers": many(lambda key: f"a/{key}")},
        "managed": {
            "labels": {},
            "managedFields": many(lambda key: {"manager": key, "fieldsV1": {"f:spec": {"f:a": {}}}}),
        },
    }


def a_pod(meta: Json, spec: Json, status: Json, **others: str) -> Json:
    containers = [{"name": "task", "image": "x"}]
    whole = {"nodeName": "n", "containers": containers, **spec}
    return {"metadata": {**OURS, **meta, **others}, "spec": whole, "status": {"phase": "Pending", **status}}


@cache
def pods() -> dict[str, Json]:
    return {
        name: a_pod(*parts)
        for name, parts in {
            **{name: ({}, spec, {}) for name, spec in specs().items()},
            **{name: ({}, {}, status) for name, status in statuses().items()},
            **{name: (meta, {}, {}) for name, meta in metas().items()},
        }.items()
    }


def on_another(pod: Json) -> Json:
    return {**pod, "spec": {**pod["spec"], "nodeName": "other"}}


def a_job(pod: Json) -> Json:
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {"metadata": pod["metadata"], "spec": {"suspend": True, "template": {"metadata": {}, "spec": spec}}}


def a_node(**status: Any) -> Json:
    return {"metadata": {"name": "n"}, "spec": {}, "status": {"allocatable": {"cpu": "1"}, **status}}


def an_event(key: str) -> Json:
    return {"reason": "FailedCreate", "message": f"{key} is forbidden: ", "source": {"component": key}}


def a_condition(key: str) -> Json:
    return {"type": "Admitted", "status": "False", "message": key, "lastTransitionTime": AT}


@cache
def crowded() -> tuple[NodeCapacities, RoomIndex]:
    """Both mirrors, with 200 Pods on each of two nodes, each with other resources. One node is not there."""
    mirrors = NodeCapacities(), RoomIndex(())
    for place in ("n", "other"):
        for number in range(200):
            taken = {f"a.b/{number:x}-{name:x}": "1" for name in range(1_000)}
            crowd = a_pod({}, {"nodeName": place, "containers": [{"name": "a", "resources": {"requests": taken}}]}, {})
            for mirror in mirrors:
                mirror.hear_pod(None, read_bound_pod(msgspec.json.encode(crowd)))
    for mirror in mirrors:
        mirror.hear_node(None, read_node(msgspec.json.encode(a_node())))
    return mirrors


def hear_pod(raw: bytes) -> None:
    """Each mirror counts the Pod in and out."""
    bound = read_bound_pod(raw)
    capacities, room = crowded()
    for index in (capacities, room):
        index.hear_pod(None, bound)
        index.hear_pod(bound, None)
    room.view()


def of_extender(raw: bytes) -> object:
    return read_pod_request(msgspec.json.decode(raw, type=ExtenderPod))


LABELLED = {"labels": {"node": "n"}}
READERS: dict[str, tuple[Callable[[bytes], object], Callable[[], dict[str, Json]]]] = {
    "a foreign Pod": (pod_reader("others", "dispatcher"), pods),
    "a Pod of ours": (pod_reader("jobs", "dispatcher", clock=lambda: 0), pods),
    "a Pod on a node": (hear_pod, pods),
    "a Pod on a node that is not there": (hear_pod, lambda: {name: on_another(pod) for name, pod in pods().items()}),
    "a Pod that kube-scheduler asks about": (of_extender, pods),
    "a Pod that waits": (read_waiting, pods),
    "a Pod with a cache": (lambda raw: read_cache_pod(msgspec.Raw(raw)), pods),
    "a Job": (read_job, lambda: {name: a_job(pod) for name, pod in pods().items()}),
    "a node": (read_node, lambda: {
        **{name: {**a_node(), "metadata": {**OURS, **meta}} for name, meta in metas().items()},
        "taints": {**a_node(), "spec": {"taints": many(lambda key: {"key": key, "effect": "NoSchedule"})}},
        "resources": a_node(allocatable=names(one)),
        "images": a_node(images=many(lambda key: {"names": [key]})),
        "conditions": a_node(**statuses()["conditions"]),
    }),
    "a quota": (read_quota, lambda: {
        "amounts": {"metadata": OURS, "status": {"hard": names(one)}},
        "scopes": {"metadata": OURS, "spec": {"scopes": many(str)}},
        "selector": {"metadata": OURS, "spec": {"scopeSelector": {"matchExpressions": many(
            lambda key: {"scopeName": "PriorityClass", "operator": "In", "values": [key]})}}},
    }),
    "a PriorityClass": (read_priority_class, lambda: {
        name: {"metadata": {**OURS, **meta}, "value": 1} for name, meta in metas().items()
    }),
    "a reservation": (read_reservation, lambda: {
        **{name: {"metadata": {**OURS, **meta}, "spec": {}} for name, meta in metas().items()},
        "amounts": {"metadata": OURS, "spec": {"nodeName": "n", "resources": names(one)}},
    }),
    "a ConfigMap of a keeper": (lambda raw: node_caches("ours", "dispatcher").read(msgspec.Raw(raw)), lambda: {
        "keys": {"metadata": {**OURS, **LABELLED}, "data": names(one)},
        "text": {"metadata": {**OURS, **LABELLED}, "data": {"caches": json.dumps(many(lambda key: [key, 1, 1.5]))}},
        "deep": {"metadata": {**OURS, **LABELLED}, "data": {"caches": "[" * (LARGEST // 2)}},
    }),
    "Events": (lambda raw: [each(msgspec.json.decode(raw, type=RawItems).readable(WireEvent)) for each in (
        refusal_of, partial(answer_of, scheduler="s"), words_of_events)], lambda: {
        "many": {"items": many(an_event)},
        "a message": {"items": [{**an_event("a"), "message": "x \n" * 400_000}]},
    }),
    "Workloads": (lambda raw: words_of_workloads(msgspec.json.decode(raw, type=RawItems).readable(Workload)), lambda: {
        "conditions": {"items": [{"metadata": OURS, "status": {"conditions": many(a_condition)}}]},
    }),
}  # fmt: skip


@contextmanager
def still() -> Iterator[None]:
    """What there is now is no garbage to look through."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def seconds(act: Callable[[], object]) -> float:
    began = time.thread_time()
    act()
    return time.thread_time() - began


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS, ids=lambda name: name.replace(" ", "-"))
def test_largest_object_holds_the_loop_for_a_moment_only(reader: str) -> None:
    read, objects = READERS[reader]
    made = objects()
    read(msgspec.json.encode(next(iter(made.values()))))
    with still():
        assert [words for shape, body in made.items() if (words := too_long(read, body, shape))] == []


def too_long(read: Callable[[bytes], object], made: Json, shape: str) -> str:
    """What the reader takes for this object, or no words where that is little."""
    raw = msgspec.json.encode(made)
    took, by_json = float("inf"), float("inf")
    for number in range(TRIES):  # each has other names, so that nothing is remembered
        other = raw.replace(b"a.b/1", b"a.b/%d1" % number).replace(b'"name":"c1', b'"name":"c%d1' % number)
        by_json = min(by_json, seconds(partial(json.loads, other)))
        took = min(took, seconds(partial(read, other)))
        if took <= max(HELD_SECONDS, SLOWEST * by_json):
            return ""
    return f"{shape}: {took * 1000:.0f} ms, and {by_json * 1000:.0f} ms by json"
