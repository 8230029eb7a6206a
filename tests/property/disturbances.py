"""What may befall rows, Jobs and containers, each chosen by a number: the n-th of what is there, if anything is."""

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from dispatcher.model.cluster import Pod
from dispatcher.model.jobs import Job, Phase
from tests.builders import OTHER_DATABASE
from tests.property.world import World

T = TypeVar("T")
FOREIGN: Final = "0" * 64
OF_CONTAINERS: Final = ("enter", "enter", "again", "succeeded", "failed", "retry", "report", "exit", "crash", "crash")
OF_PODS: Final = ("bind", "evict", "part", "lose", "find", "delete", "image", "stuck")
OF_JOBS: Final = ("pod", "delete", "delete", "erase", "bury", "bury-alive", "foreign")
OF_ROWS: Final = ("cancel", "cancel", "retry", "retry", "poison", "poison-next", "hide", "show", "drop", "beat")


def pick(things: Iterable[T], number: int) -> T | None:
    there = list(things)
    return there[number % len(there)] if there else None


def act_container(world: World, number: int, act: str) -> None:
    """A container starts, says something, or ends; `again`: the answer of its start was lost, so it asks twice."""
    container = pick(world.cluster.containers, number)
    if container is None:
        return
    if act in {"enter", "again"}:
        if container.token is None:
            world.enter(container)
        if act == "again" and container.token is not None:
            world.enter_again(container)
    elif act in {"succeeded", "failed", "retry"}:
        world.report(container, act)
    elif act == "report":  # and its exit comes later
        world.table.finish(container.token or "", "succeeded")
    else:
        world.leave(container, 0 if act == "exit" else 1)


def act_pod(world: World, number: int, act: str) -> None:
    cluster = world.cluster
    pod = pick(cluster.pods.values(), number)
    if act == "find":
        cluster.find()
    if pod is None:
        return
    if act == "evict":
        cluster.end_pod(pod, "PodFailurePolicy")
    elif act == "part":  # evicted behind a partition: the container lives on
        cluster.end_pod(pod, "PodFailurePolicy", lives_on=True)
    elif act == "lose":
        cluster.lose(pod)
    elif act == "delete":
        cluster.end_pod(pod, "BackoffLimitExceeded")
    elif pod.phase == "Pending":
        act_pending(world, pod, act)


def act_pending(world: World, pod: Pod, act: str) -> None:
    if act == "bind":
        world.cluster.bind(pod)
    elif act == "image":
        world.cluster.put_pod(msgspec.structs.replace(pod, waiting_reason="ImagePullBackOff"))
    else:
        since = pod.unschedulable_since or world.clock.of_cluster
        world.cluster.put_pod(msgspec.structs.replace(pod, unschedulable_since=since))


def act_job(world: World, number: int, act: str) -> None:
    cluster = world.cluster
    if act == "foreign":
        add_foreign(world, number)
    job = pick(cluster.unfinished() if act == "delete" else cluster.jobs.values(), number)
    if job is None:
        return
    if act in {"delete", "erase"}:
        world.delete_by_hand(job)
    elif act == "bury" and job.deleting:
        cluster.bury(job)
    elif act == "bury-alive" and job.deleting:
        cluster.bury(job, lives_on=True)
    elif act == "pod" and job in cluster.podless():
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
    """A finished Job of another database under the very name of a row's first launch."""
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
    """What a run came to: a run in which nothing happened proves nothing."""
    laws = world.laws
    return {"creates": sum(laws.made.values()), "relaunches": laws.relaunches, "strays": len(laws.strays),
            "deletes": laws.deletes, "crashes": sum(laws.crashes.values()), "refused": laws.answers["422"],
            "taken": laws.answers["409"], "quota": laws.answers["403"]}  # fmt: skip
