"""When the run limits of our Jobs free a full node."""

from datetime import datetime

from msgspec.structs import replace

from dispatcher.model.jobs import Phase
from dispatcher.views.nodes import PodLimit, fits_at, group_nodes, limits_by_node
from tests.rig.builders import NOW, a_job, a_pod, ago, later
from tests.unit.rooms import a_bound_pod, a_node, needs, room

CORE = {"cpu": 1000}


def test_pod_fits_after_so_many_ends_as_it_needs() -> None:
    limits = [PodLimit(later(60), CORE), PodLimit(later(120), CORE), PodLimit(later(180), CORE)]
    free = {**dict(needs("1").asks), "cpu": 1000}
    found: list[datetime | None] = [fits_at(needs(cpu), free, limits) for cpu in ("2", "3", "4", "5")]
    assert found == [later(60), later(120), later(180), None]


def test_pods_that_run_with_a_limit_are_counted_by_node_in_the_order_of_their_ends() -> None:
    jobs = [
        a_job(uid="slow", limit_seconds=600, needs=needs("1")),
        a_job(uid="quick", limit_seconds=60, needs=needs("2")),
        a_job(uid="late", limit_seconds=5, needs=needs("1")),
        a_job(uid="unlimited", needs=needs("1")),
        a_job(uid="unknown", limit_seconds=60),
        a_job(uid="urgent", limit_seconds=60, needs=replace(needs("1"), priority_class="urgent")),
        a_job(uid="over", limit_seconds=60, needs=needs("1"), phase=Phase.COMPLETE),
    ]
    pods = {job.uid: [a_pod(job_uid=job.uid, node_name="n1", scheduled_at=ago(10), phase="Running")] for job in jobs}
    pods["slow"] += [a_pod(phase="Failed", node_name="n2"), a_pod(node_name="")]
    found = limits_by_node(jobs, pods, "", NOW)
    assert list(found) == ["n1"]
    assert [(one.ends_at, one.asks["cpu"]) for one in found["n1"]] == [
        (NOW, 1000),
        (later(50), 2000),
        (later(590), 1000),
    ]


def test_group_of_full_nodes_tells_the_first_of_their_ends() -> None:
    nodes = [a_node("a", cpu="4"), a_node("b", cpu="4"), a_node("c", cpu="4"), a_node("small", cpu="1")]
    place = room(nodes, [a_bound_pod(name, cpu="4") for name in ("a", "b", "c")])
    limits = {"a": [PodLimit(later(90), CORE)], "b": [PodLimit(later(60), CORE)], "small": [PodLimit(later(1), CORE)]}
    full, small = group_nodes(needs("1"), place, 42, limits), group_nodes(needs("2"), place, 42, limits)
    assert [(group.why, group.until) for group in full] == [("full: cpu 0 < 1", later(60)), ("has room", None)]
    assert [(group.why, group.until) for group in small] == [("full: cpu 0 < 2", None), ("too small: cpu 1 < 2", None)]
