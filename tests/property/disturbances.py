"""Events that happen to rows, Jobs, Pods and containers. A number chooses the n-th object that exists, if any does."""

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from dispatcher.model.cluster import Pod
from dispatcher.model.jobs import Job, Phase
from tests.property.cluster import NODE
from tests.property.world import World
from tests.rig.builders import OTHER_DATABASE

T = TypeVar("T")
FOREIGN: Final = "0" * 64
OF_CONTAINERS: Final = (
    "start", "start", "start-twice", "succeeded", "failed", "retry", "report", "exit", "crash", "crash",
)  # fmt: skip
OF_PODS: Final = ("bind", "evict", "evict-partitioned", "lose-node", "restore-node", "delete", "image", "stuck")
OF_JOBS: Final = ("pod", "delete", "delete", "delete-any", "finish-delete", "finish-delete-partitioned", "foreign")
OF_ROWS: Final = ("cancel", "cancel", "retry", "retry", "poison", "poison-next", "hide", "show", "drop", "beat")


def pick(things: Iterable[T], number: int) -> T | None:
    there = list(things)
    return there[number % len(there)] if there else None


def act_container(world: World, number: int, act: str) -> None:
    """A container starts, reports, or ends. `start-twice`: the answer of its start was lost, so it asks again."""
    container = pick(world.cluster.containers, number)
    if container is None:
        return
    if act in {"start", "start-twice"}:
        if container.token is None:
            world.start_run(container)
        if act == "start-twice" and container.token is not None:
            world.repeat_start(container)
    elif act in {"succeeded", "failed", "retry"}:
        world.report(container, act)
    elif act == "report":  # without its exit
        world.table.finish(container.token or "", "succeeded")
    else:
        world.exit_container(container, 0 if act == "exit" else 1)


def act_pod(world: World, number: int, act: str) -> None:
    cluster = world.cluster
    pod = pick(cluster.pods.values(), number)
    if act == "restore-node":
        cluster.restore_node()
    if pod is None:
        return
    if act == "evict":
        cluster.end_pod(pod, "PodFailurePolicy")
    elif act == "evict-partitioned":  # behind a partition, so the container runs on
        cluster.end_pod(pod, "PodFailurePolicy", lives_on=True)
    elif act == "lose-node":
        cluster.lose_node(pod)
    elif act == "delete":
        cluster.end_pod(pod, "BackoffLimitExceeded")
    elif pod.phase == "Pending":
        act_pending(world, pod, act)


def act_pending(world: World, pod: Pod, act: str) -> None:
    if act == "bind":
        world.cluster.bind(pod)
    elif act == "image":
        world.cluster.put_pod(msgspec.structs.replace(pod, node_name=NODE, waiting_reason="ImagePullBackOff"))
    elif not pod.node_name:
        since = pod.unschedulable_since or world.clock.of_cluster
        world.cluster.put_pod(msgspec.structs.replace(pod, unschedulable_since=since))


def act_job(world: World, number: int, act: str) -> None:
    cluster = world.cluster
    if act == "foreign":
        add_foreign(world, number)
    job = pick(cluster.unfinished() if act == "delete" else cluster.jobs.values(), number)
    if job is None:
        return
    if act in {"delete", "delete-any"}:
        world.delete_by_hand(job)
    elif act == "finish-delete" and job.deleting:
        cluster.finish_delete(job)
    elif act == "finish-delete-partitioned" and job.deleting:
        cluster.finish_delete(job, lives_on=True)
    elif act == "pod" and job in cluster.jobs_without_pod():
        cluster.add_pod(job)


def act_row(world: World, number: int, act: str) -> None:
    table = world.table
    id_ = pick(world.open_rows() if act.startswith("poison") else table.rows, number)
    if id_ is None:
        return
    if act in {"cancel", "retry"}:
        table.cancel(id_) if act == "cancel" else table.retry(id_)
    elif act.startswith("poison"):
        world.cluster.poison.add(str(table.next_id if act == "poison-next" else id_))
    elif act == "hide":
        table.hidden.add(id_)
    elif act == "show":
        table.hidden.clear()
    elif act == "beat" and (token := table.rows[id_].run_token) is not None:
        table.heartbeat(token)
    elif act == "drop":
        world.laws.touched.add(id_)
        del table.rows[id_]


def add_foreign(world: World, number: int) -> None:
    """Adds a finished Job of another database. It has the name of a row's first launch."""
    new = (id_ for id_, row in world.table.rows.items() if row.task.launch == 0 and row.task.attempt == 1)
    id_ = pick(new, number)
    if id_ is None:
        return
    order = world.laws.first_order(world.table.rows[id_])
    if order in world.cluster.jobs:
        return
    job = Job(
        name=order, uid=f"foreign-{order}", resource_version="", task_id=id_, attempt=1, launch=1, queue="default",
        template="default", image="x", identity=FOREIGN, database_id=OTHER_DATABASE, submitted_by="team_a",
        created_at=world.clock.of_cluster, phase=Phase.COMPLETE, ended_at=world.clock.of_cluster,
    )  # fmt: skip
    world.cluster.made_at[job.name] = world.cluster.version + 1
    world.laws.removals.foreign.add(job.uid)
    world.laws.met.add(id_)
    world.cluster.put(job)


def facts(world: World) -> dict[str, Any]:
    """Counts of events in a run. A run without them proves nothing."""
    laws = world.laws
    return {"creates": sum(laws.made.values()), "relaunches": laws.relaunches, "strays": len(laws.strays),
            "deletes": laws.deletes, "crashes": sum(laws.crashes.values()), "refused": laws.answers["422"],
            "taken": laws.answers["409"], "quota": laws.answers["403"]}  # fmt: skip
