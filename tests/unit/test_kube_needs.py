"""What a Pod needs of a node, read from its spec."""

from typing import Any

import pytest

from dispatcher.kube.pods import LARGEST_JUDGED, MOST_REQUIREMENTS, needs_of_manifest
from dispatcher.model.needs import PodNeeds, Requirement, SelectorTerm, Toleration

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
