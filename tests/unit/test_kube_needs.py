"""What Pods need of a node and take from it, and ResourceQuotas, as they are read from the API."""

from typing import Any

import msgspec
import pytest
from prometheus_client import REGISTRY

from dispatcher.kube.capacity import BELIEVED_SECONDS, MOST_SHAPES, NeedsOfShapes, read_quota
from dispatcher.kube.objects import pod_reader, read_bound_pod, read_pod
from dispatcher.kube.pods import LARGEST_JUDGED, MOST_NAMES, MOST_REQUIREMENTS, needs_of_manifest
from dispatcher.model.cluster import Quota, Scope
from dispatcher.model.launches import LABEL_INSTALLATION, MANAGED_BY, MANAGER
from dispatcher.model.needs import PodNeeds, Requirement, SelectorTerm, Toleration
from tests.rig.builders import a_pod as an_own_pod
from tests.rig.builders import later
from tests.unit.rooms import amounts_of, needs

ONE_POD = ("pods", 1000)


def read(**spec: Any) -> PodNeeds:
    found = needs_of_manifest({"containers": [{"name": "task"}], **spec})
    assert found is not None
    return found


def a_container(**resources: Any) -> dict[str, Any]:
    return {"name": "task", "resources": resources}


def test_empty_pod_needs_room_for_one_pod() -> None:
    assert read() == PodNeeds((ONE_POD,))


@pytest.mark.parametrize(
    ("resources", "asks"),
    [
        ({"requests": {"cpu": "500m"}}, {"cpu": 500}),
        ({"limits": {"cpu": "2"}}, {"cpu": 2000}),
        ({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Ki"}}, {"cpu": 1000, "memory": 1024_000}),
        ({"requests": {"cpu": 2}}, {"cpu": 2000}),
        ({"requests": {"cpu": 0.5}}, {"cpu": 500}),
        ({"requests": {"cpu": "0"}}, {}),
        ({"requests": {"cpu": "-1"}}, {}),
        ({"requests": {"cpu": "much"}}, {}),
        ({"requests": None}, {}),
    ],
)
def test_requests_are_those_that_the_api_server_will_set(resources: dict[str, Any], asks: dict[str, int]) -> None:
    found = read(containers=[a_container(**resources)])
    assert dict(found.asks) == {**asks, "pods": 1000}


def test_sidecars_overhead_and_the_whole_pod_count_as_for_kube_scheduler() -> None:
    first = [{**a_container(requests={"cpu": "1"}), "restartPolicy": "Always"}, a_container(requests={"cpu": "3"})]
    one = [a_container(requests={"cpu": "1"})]
    assert dict(read(containers=one, initContainers=first, overhead={"cpu": "250m"}).asks)["cpu"] == 4250
    assert dict(read(containers=one, initContainers=first, resources={"requests": {"cpu": 5}}).asks)["cpu"] == 5000


@pytest.mark.parametrize(
    ("whole", "container", "cpu"),
    [
        ({"limits": {"cpu": "2"}}, {}, 2000),
        ({"limits": {"cpu": "2"}}, {"requests": {"cpu": "500m"}}, 500),
        ({"limits": {"cpu": "2"}}, {"limits": {"cpu": "1"}}, 1000),
        ({"limits": {"cpu": "2"}}, {"requests": {"memory": "1Gi"}}, 2000),
        ({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}, {}, 1000),
    ],
)
def test_limit_of_the_whole_pod_is_its_request_if_no_container_names_it(
    whole: dict[str, Any], container: dict[str, Any], cpu: int
) -> None:
    assert dict(read(containers=[a_container(**container)], resources=whole).asks)["cpu"] == cpu


def test_constraints_are_read() -> None:
    expression = {"key": "a", "operator": "In", "values": ["1", "2"]}
    name = {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}
    terms = [{"matchExpressions": [expression]}, {"matchFields": [name]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    found = read(
        nodeSelector={"b": "x", "a": "y"},
        tolerations=[{"key": "k", "value": "v"}, {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
        affinity={"nodeAffinity": required, "podAffinity": {}},
        priorityClassName="high",
        preemptionPolicy="Never",
        schedulerName="ours",
    )
    assert found == PodNeeds(
        asks=(ONE_POD,),
        selector=(("a", "y"), ("b", "x")),
        tolerations=(Toleration("k", "Equal", "v"), Toleration("", "Exists", "", "NoExecute")),
        terms=(
            SelectorTerm((Requirement("a", "In", ("1", "2")),)),
            SelectorTerm((), (Requirement("metadata.name", "NotIn", ("n1",)),)),
        ),
        priority_class="high",
        never_preempts=True,
        scheduler="ours",
    )


@pytest.mark.parametrize("affinity", [None, {}, {"nodeAffinity": None}, {"nodeAffinity": {}}, {"podAntiAffinity": {}}])
def test_pod_without_required_node_affinity_may_have_any_node(affinity: Any) -> None:
    assert read(affinity=affinity).terms is None


@pytest.mark.parametrize("spec", [{"nodeName": "n1"}, {"schedulingGates": [{"name": "wait"}]}])
def test_pod_with_a_fixed_node_or_a_gate_waits_for_no_room(spec: dict[str, Any]) -> None:
    assert read(**spec).is_gated


def test_equal_needs_are_one_object() -> None:
    assert read(nodeSelector={"a": "1"}) is read(nodeSelector={"a": "1"})


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"gpu": True}},
        {"tolerations": "all"},
        {"affinity": {"nodeAffinity": []}},
        {"containers": "many"},
        {"containers": [a_container(requests=5)]},
        {"containers": [{"resources": {"requests": "many"}}]},
        {"priorityClassName": 5},
    ],
)
def test_spec_that_the_api_server_refuses_has_no_needs(spec: dict[str, Any]) -> None:
    assert needs_of_manifest({"containers": [{"name": "task"}], **spec}) is None


def expressions(number: int, **more: Any) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": f"k{one}", "operator": "Exists", **more}]} for one in range(number // 2)]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


@pytest.mark.parametrize(
    "spec",
    [
        {"tolerations": [{"operator": "Exists"}] * MOST_REQUIREMENTS},
        {"nodeSelector": {f"k{number}": "1" for number in range(MOST_REQUIREMENTS)}},
        {"affinity": expressions(MOST_REQUIREMENTS)},
    ],
    ids=["tolerations", "selectors", "expressions"],
)
def test_pod_with_more_requirements_than_others_have_is_not_judged(spec: dict[str, Any]) -> None:
    """Each node would be compared with all of them, and the cycles of all would wait for it."""
    assert not read(**spec).is_gated
    one_more = {"nodeSelector": {"a": "b"}} if "tolerations" in spec else {"tolerations": [{"operator": "Exists"}]}
    assert read(**spec, **one_more).is_gated


def test_pod_with_very_much_text_is_not_judged() -> None:
    values = {"values": [f"node-{number}" for number in range(LARGEST_JUDGED // 8)]}
    assert read(affinity=expressions(2, **values)).is_gated


def a_pod(status: dict[str, Any], **spec: Any) -> bytes:
    containers = [{"name": "task", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]
    whole = {"nodeName": "a", "containers": containers, **spec}
    return msgspec.json.encode({"metadata": {"name": "p", "namespace": "team"}, "spec": whole, "status": status})


def told(**given: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "task", **given}]}


def refused(why: str = "Infeasible", **given: Any) -> dict[str, Any]:
    """The node cannot resize the Pod: never, or not now (Deferred)."""
    return {**told(**given), "conditions": [{"type": "PodResizePending", "status": "True", "reason": why}]}


@pytest.mark.parametrize(
    ("status", "cpu"),
    [
        ({}, 500),
        (told(), 500),
        (told(allocatedResources={"cpu": "1500m"}), 1500),
        (told(resources={"requests": {"cpu": "1"}}), 1000),
        (told(allocatedResources={"cpu": "2"}, resources={"requests": {"cpu": "3"}}), 3000),
        (refused(allocatedResources={"cpu": "100m", "memory": "1Gi"}), 100),
        (refused(allocatedResources={"memory": "1Gi"}, resources={"requests": {"cpu": "200m"}}), 200),
        (refused(), 500),
        (refused("Deferred", allocatedResources={"cpu": "100m"}), 500),
        (told(allocatedResources={"cpu": "0.5"}, resources={}), 500),
        (told(allocatedResources={"cpu": "100m"}), 500),
        (told(allocatedResources={"cpu": "much"}), (2**63 - 1) * 1000),  # another server may know more suffixes
        ({"containerStatuses": [{"name": "another", "allocatedResources": {"cpu": "8"}}]}, 500),
    ],
    ids=str,
)
def test_a_resized_container_counts_with_the_larger_amount(status: dict[str, Any], cpu: int) -> None:
    bound = read_bound_pod(a_pod(status))
    assert bound is not None
    assert bound.asks["cpu"] == cpu
    assert bound.asks["memory"] == 2**30 * 1000


def test_a_resource_that_only_the_status_names_counts() -> None:
    bound = read_bound_pod(a_pod(told(allocatedResources={"example.com/gpu": "1"})))
    assert bound is not None
    assert bound.asks["example.com/gpu"] == 1000


def test_a_sidecar_counts_with_its_allocated_resources() -> None:
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}}
    status = {"initContainerStatuses": [{"name": "s", "allocatedResources": {"cpu": "200m"}}]}
    bound = read_bound_pod(a_pod(status, initContainers=[sidecar]))
    assert bound is not None
    assert bound.asks["cpu"] == 700


def test_pods_of_a_node_with_equal_requests_share_its_name_and_the_requests() -> None:
    """Otherwise tens of thousands of Pods would fill the memory."""
    one, other = (
        read_bound_pod(a_pod({})),
        read_bound_pod(a_pod(told(allocatedResources={"cpu": "500m", "memory": "1Gi"}))),
    )
    assert one is not None
    assert other is not None
    assert (one.asks is other.asks, one.node is other.node) == (True, True)


def test_a_pod_without_a_node_is_not_read() -> None:
    assert read_bound_pod(a_pod({}, nodeName="")) is None


OURS = {MANAGED_BY: MANAGER, LABEL_INSTALLATION: "prod"}


@pytest.mark.parametrize(
    ("namespace", "labels", "is_own"),
    [
        ("jobs", OURS, True),
        ("jobs", OURS | {"more": "labels"}, True),
        ("elsewhere", OURS, False),
        ("jobs", OURS | {LABEL_INSTALLATION: "another"}, False),
        ("jobs", {LABEL_INSTALLATION: "prod"}, True),
        ("jobs", {}, False),
    ],
)
@pytest.mark.parametrize(
    ("node", "phase", "uses_room"),
    [
        ("a", "Running", True),
        ("a", "Pending", True),
        ("", "Pending", False),
        ("a", "Failed", False),
        ("a", "Succeeded", False),
    ],
)
def test_reader_of_all_pods_keeps_ours_and_those_that_use_room(
    namespace: str, labels: dict[str, str], is_own: bool, node: str, phase: str, uses_room: bool
) -> None:
    meta = {"name": "p", "namespace": namespace, "labels": labels}
    raw = msgspec.json.encode({"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": phase}})
    pod = pod_reader("jobs", "prod")(raw)
    if not (is_own or uses_room):
        assert pod is None
        return
    assert pod is not None
    assert (pod.name, pod.node) == (f"{namespace}/p", "a" if uses_room else "")
    assert pod.own == (read_pod(raw) if is_own else None)


@pytest.mark.parametrize(
    ("scheduler", "uses_room"),
    [("default-scheduler", True), ("gke.io/optimize-utilization-scheduler", True), ("volcano", False)],
)
def test_pod_that_preempts_others_uses_room_of_its_node_where_kube_scheduler_chose_it(
    scheduler: str, uses_room: bool
) -> None:
    status = {"phase": "Pending", "nominatedNodeName": "a"}
    raw = msgspec.json.encode({"metadata": {"name": "p"}, "spec": {"schedulerName": scheduler}, "status": status})
    assert (pod_reader("jobs", "prod")(raw) is not None) is uses_room


def test_needs_of_a_shape_are_believed_for_a_while_after_its_last_pod() -> None:
    """A LimitRange may be another by then. Rows that a quota holds for what it added would be held for ever."""
    now = [0.0]
    made = NeedsOfShapes(lambda: now[0])
    lives, ended = (an_own_pod(shape=shape, needs=needs("8")) for shape in ("long", "short"))
    made.learn(lives)
    made.learn(ended)
    ended = msgspec.structs.replace(ended, phase="Succeeded")
    for more, known in ((-1, {"long", "short"}), (58, {"long", "short"}), (59, {"long"})):
        now[0] = BELIEVED_SECONDS + more
        made.look([lives, ended])
        assert made.view.keys() == known


def test_newest_pod_tells_the_needs_of_its_shape_and_few_shapes_are_remembered() -> None:
    made = NeedsOfShapes(lambda: 0.0)
    for seconds, cpu in ((5, "2"), (4, "1"), (6, "3")):
        made.learn(an_own_pod(shape="small", needs=needs(cpu), created_at=later(seconds)))
        made.learn(an_own_pod(shape="small", created_at=later(seconds)))
    assert made.view == {"small": needs("3")}
    for number in range(MOST_SHAPES):
        made.learn(an_own_pod(shape=str(number), needs=needs()))
    assert (len(made.view), "small" in made.view) == (MOST_SHAPES, False)


def test_cpu_behind_a_thousand_other_names_is_counted() -> None:
    """Names are sorted where they are written."""
    names = {f"a.b/{number:04}": "1" for number in range(3000)} | {"cpu": "60"}
    bound = read_bound_pod(a_pod({}, containers=[{"name": "task", "resources": {"requests": names}}]))
    assert bound is not None
    assert bound.asks["cpu"] == 60_000
    assert len(bound.asks) == MOST_NAMES + 1


def quota(**parts: object) -> Quota:
    return read_quota(msgspec.json.encode({"metadata": {"name": "team"}, **parts}))


def test_limits_are_those_that_the_api_server_enforces() -> None:
    """The status lags behind the spec until the quota controller has counted."""
    found = quota(spec={"hard": {"pods": "50"}}, status={"hard": {"pods": "5"}, "used": {"pods": "3"}})
    assert found == Quota("team", amounts_of({"pods": "5"}), amounts_of({"pods": "3"}))


def test_quota_that_was_never_counted_has_no_limits() -> None:
    assert quota(spec={"hard": {"pods": "5"}}) == Quota("team", {}, {})
    assert quota(spec={"scopes": None, "scopeSelector": {"matchExpressions": None}}, status={"hard": None}).hard == {}


def test_scopes_of_both_forms_count() -> None:
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}
    found = quota(spec={"scopes": ["Terminating"], "scopeSelector": selector})
    assert found.scopes == (Scope("Terminating"), Scope("PriorityClass", "In", ("high",)))


def unreadable() -> float:
    return REGISTRY.get_sample_value("dispatcher_unreadable_amounts_total", {"resource": "resourcequotas"}) or 0


@pytest.mark.parametrize("amount", ["", "lots", "1e3e3", "--1", "1.5.2", "٣"])
def test_unreadable_amount_holds_nothing(amount: str) -> None:
    before = unreadable()
    assert quota(status={"hard": {"pods": amount, "cpu": "2"}, "used": {"pods": "1"}}).hard == amounts_of({"cpu": "2"})
    assert unreadable() == before + 1


def test_limits_of_a_pod_are_summed_as_its_requests_are() -> None:
    container = {"name": "task", "resources": {"limits": {"cpu": 2, "memory": "1Gi"}}}
    sidecar = {"name": "proxy", "restartPolicy": "Always", "resources": {"limits": {"cpu": "500m"}}}
    found = needs_of_manifest({"containers": [container], "initContainers": [sidecar]})
    assert found is not None
    assert dict(found.limits) == amounts_of({"cpu": "2500m", "memory": "1Gi"})
