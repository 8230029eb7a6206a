"""Promise: in a fixed cluster that is full, rows cost it next to nothing. Of each shape, at most two Pods are beyond
room. Taking Pods back so that others may ask costs at most one write to the API server a minute and shape.

Real servers, 5,000 nodes, and one Pod on each that asks for all of it. 10^5 rows of 20 shapes wait in 20 queues. Half
of the shapes at most may ask at once, so places go round. kube-scheduler judges each Pod that asks. Nodes send no
heartbeats, so the controller that looks for them is off.
"""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from types import MappingProxyType

from benchmarks.figures import Figure, run, tell
from benchmarks.idle_cycle import cycles
from benchmarks.servers import launched
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.objects import is_ready, node
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place

NODES, ROWS, SHAPES = 5_000, 100_000, 20
MINUTES = 5
MOST_BEYOND, MOST_WRITES = 2, 1
MADE_AT_ONCE = 16
SIZE = {"cpu": "4", "memory": "16Gi", "pods": "110"}
READY = {"type": "Ready", "status": "True"}
QUEUES = f"INSERT INTO dispatch.queues (name) SELECT 'queue-' || n FROM generate_series(0, {SHAPES - 1}) AS n"
INSERT = f"""
INSERT INTO dispatch_private.tasks (queue, submitted_by, spec, kind)
SELECT 'queue-' || n % {SHAPES}, 'team_a', made.spec, dispatch_private.kind_of('default', made.spec, NULL, '{{}}')
FROM generate_series(1, $1) AS n,
LATERAL (SELECT jsonb_build_object('cpu', (1 + 0.1 * (n % {SHAPES}))::text)) AS made (spec)
"""


class SilentNodes(ControlPlane):
    """Nodes stay ready without heartbeats."""

    flags = MappingProxyType({"kube-controller-manager": ("--controllers=*,-node-lifecycle-controller",)})


async def make_full_nodes(plane: ControlPlane) -> None:
    await plane.kill("kwok")
    namespace = await plane.create_namespace()
    pods, places = f"/api/v1/namespaces/{namespace}/pods", asyncio.Semaphore(MADE_AT_ONCE)

    async def make(name: str) -> None:
        made = node(name, SIZE, {}, ())
        asked: Json = {"name": "filler", "image": "app:1", "resources": {"requests": {"cpu": SIZE["cpu"]}}}
        pod = {"metadata": {"name": name}, "spec": {"nodeName": name, "containers": [asked]}}
        async with places:
            await plane.admin("POST", "/api/v1/nodes", made | {"status": made["status"] | {"conditions": [READY]}})
            await plane.admin("POST", pods, pod)
            await plane.admin("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}})

    await asyncio.gather(*(make(f"node-{number:05}") for number in range(NODES)))
    assert all(is_ready(one) for one in (await plane.admin("GET", "/api/v1/nodes"))["items"])


async def most_beyond(place: Place, dispatcher: Dispatcher) -> tuple[int, int]:
    """The most Pods without a node at one moment: of one shape, and of all."""
    path, clock = f"/api/v1/namespaces/{place.namespace}/pods", asyncio.get_running_loop().time
    ends_at, of_a_shape, of_all = clock() + 60 * MINUTES, 0, 0
    while clock() < ends_at:
        dispatcher.check()
        pods = (await place.control_plane.admin("GET", path))["items"]
        assert not any(pod["spec"].get("nodeName") for pod in pods), "a node had room"
        shapes = Counter(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in pods)
        of_a_shape, of_all = max(of_a_shape, *shapes.values(), 0), max(of_all, len(pods))
        await asyncio.sleep(1)
    return of_a_shape, of_all


def writes(place: Place, since: datetime) -> Counter[str]:
    """Writes of the dispatcher for Jobs since then, by verb. Its lease and its reports are not among them."""
    user = f"system:serviceaccount:{place.namespace}:dispatcher"
    events = place.control_plane.audit(user_prefix=user, resource="jobs")
    return Counter(one.verb for one in events if one.received_at >= since and "dryRun" not in one.uri)


async def main() -> int:
    async with launched(SilentNodes, has_room=False) as servers:
        await make_full_nodes(servers.plane)
        place = await servers.place()
        place.template("default", row_may_set="cpu", max_cpu="1000")
        admin = await place.database.session("admin")
        await admin.execute(QUEUES)
        await admin.execute("ALTER TABLE dispatch_private.tasks DISABLE TRIGGER USER")
        await admin.execute(INSERT, ROWS, timeout=600)
        await admin.execute("VACUUM (ANALYZE) dispatch_private.tasks", timeout=300)
        async with Dispatcher(place, POLL_SECONDS=None) as dispatcher:
            await dispatcher.ready()

            async def asks() -> bool:
                return await dispatcher.metric("dispatcher_jobs") > 0

            await wait_for(asks, "a Pod asks", 60, check=dispatcher.check)
            since = datetime.now(UTC)
            of_a_shape, of_all = await most_beyond(place, dispatcher)
            made = writes(place, since)
            cycle = await cycles(dispatcher)
        versions = await servers.versions()
    back = sum(count for verb, count in made.items() if verb != "create")
    figures = [
        Figure("Pods beyond room, of a shape", of_a_shape, MOST_BEYOND),
        Figure("writes to take back, a minute and shape", back / MINUTES / SHAPES, MOST_WRITES),
    ]
    context = {f"{verb} jobs a minute": count / MINUTES for verb, count in made.items()}
    context |= {"Pods beyond room, in all": of_all, "cycle, ms": cycle.wall_ms, "CPU of a cycle, ms": cycle.cpu_ms}
    return tell("full_cluster", figures, context, versions)


if __name__ == "__main__":
    run(main)
