"""Promise: a task costs the API server two writes of ours, its create and its delete, and no read.

The requests are counted in the audit log of the API server, from the INSERT of 500 rows until the last Job is swept.
All controllers run, and containers report. Periodic requests of the dispatcher, whose number does not depend on the
tasks, are printed as context: lists, watches, checks of its rights.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from benchmarks.burst import MANY_ROWS
from benchmarks.figures import Figure, run, tell
from benchmarks.servers import WITHOUT_LIMITS, Servers, launched
from tests.controlplane.audit import AuditEvent
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place

ROWS = 500
MOST_WRITES = 2
MOST_READS = 0
WRITES = {"create", "update", "patch", "delete", "deletecollection"}
READS = {"get", "list"}
ALL_OVER = "SELECT count(*) = $1 FROM dispatch.tasks WHERE status = 'succeeded'"


async def live_through(place: Place) -> None:
    """Inserts the rows, and waits until all have succeeded and all Jobs are gone."""
    admin = await place.database.session("admin")
    async with place.playing(), Dispatcher(place, TOMBSTONE_SECONDS=0, **WITHOUT_LIMITS) as dispatcher:
        await dispatcher.ready()
        await (await place.database.session("team_a")).execute(MANY_ROWS, ROWS)

        async def is_over() -> bool:
            return bool(await admin.fetchval(ALL_OVER, ROWS))

        async def is_swept() -> bool:
            return not await place.jobs()

        await wait_for(is_over, "all rows succeeded", 120, check=dispatcher.check)
        await wait_for(is_swept, "all Jobs are gone", 60, check=dispatcher.check)


def asked_by_us(servers: Servers, place: Place, since: datetime) -> list[AuditEvent]:
    user = f"system:serviceaccount:{place.namespace}:dispatcher"
    return [event for event in servers.plane.audit(user_prefix=user) if event.received_at >= since]


def is_for_a_task(event: AuditEvent) -> bool:
    """Whether the request names or creates an object, or lists those of one task."""
    ref = event.object_ref
    return ref.resource in {"jobs", "pods"} and (event.verb != "list" or "task-id" in event.uri)


def per_task(events: Sequence[AuditEvent], verbs: set[str]) -> float:
    return sum(event.verb in verbs for event in events) / ROWS


async def main() -> int:
    async with launched() as servers:
        await servers.plane.add_nodes(4, cpu="64", memory="256Gi", pods=500)
        place = await servers.place()
        since = datetime.now(UTC)
        await live_through(place)
        asked = asked_by_us(servers, place, since)
        versions = await servers.versions()
    for_tasks = [event for event in asked if is_for_a_task(event)]
    figures = [
        Figure("writes a task", per_task(for_tasks, WRITES), MOST_WRITES),
        Figure("reads a task", per_task(for_tasks, READS), MOST_READS),
    ]
    context = Counter(f"{event.verb} {event.object_ref.resource}, {event.code}, requests in all" for event in asked)
    return tell("requests_per_task", figures, dict(context), versions)


if __name__ == "__main__":
    run(main)
