"""Bad rows are held with one reason each, and do not delay a good row."""

import asyncio
import json

import pytest

from dispatcher.admission.dispatch import DEAF_SECONDS
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.steps import has_jobs

EACH = 1250
BAD = """
INSERT INTO dispatch.tasks (priority, template, spec, env, timeout_seconds)
SELECT 1, kind.template, kind.spec, kind.env, kind.seconds
FROM generate_series(1, $1) AS n
CROSS JOIN LATERAL (VALUES
    ('never-heard-of-' || n % 50, '{}'::jsonb, '{}'::jsonb, NULL::int),
    ('broken', '{}', '{}', NULL),
    ('default', jsonb_build_object('cpu', '1'), '{}', NULL),
    ('open', jsonb_build_object('cpu', 2000 + n || 'm'), '{}', NULL),
    ('open', jsonb_build_object('memory', 2 + n || 'Gi'), '{}', NULL),
    ('open', jsonb_build_object('image', 'elsewhere.example/app:' || n), '{}', NULL),
    ('open', '{}', jsonb_build_object('FIXED', n::text), NULL),
    ('open', '{}', '{}', 700 + n)
) AS kind (template, spec, env, seconds)
ORDER BY n
"""
FIXED = """
apiVersion: batch/v1
kind: Job
metadata:
  annotations:
    dispatcher.internal/row-may-set: env,cpu,memory,image
    dispatcher.internal/max-cpu: "2"
    dispatcher.internal/max-memory: 2Gi
    dispatcher.internal/max-seconds: "600"
    dispatcher.internal/images: registry.example/*
spec:
  template:
    spec:
      containers:
        - name: task
          image: registry.example/team/app:1
          env: [{name: FIXED, value: theirs}]
"""


@pytest.mark.slow
@pytest.mark.fault(56)
@pytest.mark.museum("fetch window filled by parked rows")
async def test_ten_thousand_bad_rows_delay_a_good_row_by_at_most_two_cycles(place: Place) -> None:
    (place.templates / "open.yaml").write_text(FIXED)
    (place.templates / "broken.yaml").write_text("apiVersion: batch/v1\nkind: Job\nspec: {parallelism: 7}\n")
    # The poll is so long that only the commit of the rows, and its effects, start cycles.
    async with Dispatcher(place, POLL_SECONDS=240, LEASE_SECONDS=60) as dispatcher:
        await dispatcher.ready()
        await settled(dispatcher)
        cycles, busy = await spent(dispatcher)
        team = await place.database.connect("team_a")
        async with team.transaction():
            await team.execute(BAD, EACH)
            good = await team.fetchval("INSERT INTO dispatch.tasks (priority) VALUES (900) RETURNING id")

        await has_jobs(place, dispatcher, 1)
        await settled(dispatcher)
        looked, cycles, busy = cycles, *difference(await spent(dispatcher), (cycles, busy))
        (job,) = await place.jobs()
        assert f"dispatcher-{good}-" in str(job["metadata"])
        seen = [json.loads(line) for line in dispatcher.log.splitlines()]
        (launched,) = [line for line in seen if line["event"] == "launched"]
        assert launched["cycle"] - looked <= 2
        assert await dispatcher.metric("dispatcher_waiting_tasks", reason="UnknownTemplate") == EACH
        assert await dispatcher.metric("dispatcher_waiting_tasks", reason="InvalidTemplate") == EACH
        assert await dispatcher.metric("dispatcher_waiting_tasks", reason="PolicyDenied") == 6 * EACH
        # CPU time of the process: other processes on the machine do not lengthen it. A fast machine needs half of this.
        assert busy / cycles <= 0.1, f"{busy:.3f} s in {cycles:.0f} cycles"


def difference(after: tuple[float, float], before: tuple[float, float]) -> tuple[float, float]:
    return after[0] - before[0], after[1] - before[1]


async def spent(dispatcher: Dispatcher) -> tuple[float, float]:
    """(cycles so far, CPU seconds of the process)"""
    count = await dispatcher.metric("dispatcher_cycle_seconds_count")
    return count, await dispatcher.metric("process_cpu_seconds_total")


async def settled(dispatcher: Dispatcher) -> None:
    """Waits until the number of cycles stays the same for longer than any pause that is not the poll."""
    clock = asyncio.get_running_loop().time
    seen, since = -1.0, clock()

    async def is_still() -> bool:
        nonlocal seen, since
        if (now := (await spent(dispatcher))[0]) != seen:
            seen, since = now, clock()
        return clock() - since > 2 * DEAF_SECONDS

    await wait_for(is_still, "no more cycles", 20, check=dispatcher.check)
