"""Bad rows wait with one reason each, and never in the way of a good one."""

import json

from tests.controlplane.waiting import wait_for
from tests.dispatching import Dispatcher, Place

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


async def cycles(dispatcher: Dispatcher, within: str) -> float:
    """How many cycles took at most so many seconds."""
    return await dispatcher.metric("dispatcher_cycle_seconds_bucket", le=within)


async def test_ten_thousand_bad_rows_delay_a_good_one_by_two_cycles_at_most(place: Place) -> None:
    (place.templates / "open.yaml").write_text(FIXED)
    (place.templates / "broken.yaml").write_text("apiVersion: batch/v1\nkind: Job\nspec: {parallelism: 7}\n")
    team = await place.database.connect("team_a")
    await team.execute(BAD, EACH)
    good = await team.fetchval("INSERT INTO dispatch.tasks (priority) VALUES (900) RETURNING id")
    # So long a poll that every cycle before the good row's is one that found work to do.
    async with Dispatcher(place, POLL_SECONDS=600) as dispatcher:

        async def has_job() -> bool:
            return bool(await place.jobs())

        await wait_for(has_job, "the good row's Job", 20, check=dispatcher.check)
        (job,) = await place.jobs()
        assert f"dispatcher-{good}-" in str(job["metadata"])
        (launched,) = [line for line in dispatcher.log.splitlines() if '"launched"' in line]
        assert first_able_cycle(dispatcher.log) + 1 >= json.loads(launched)["cycle"]
        await dispatcher.ready()
        assert await dispatcher.metric("dispatcher_waiting_tasks", reason="UnknownTemplate") == 2 * EACH
        assert await dispatcher.metric("dispatcher_waiting_tasks", reason="PolicyDenied") == 6 * EACH
        assert await cycles(dispatcher, "0.1") == await cycles(dispatcher, "+Inf")
        # The first looks judge three thousand new kinds each; every later one is far below.
        assert await cycles(dispatcher, "0.05") >= await cycles(dispatcher, "+Inf") - 2


def first_able_cycle(log: str) -> int:
    """The first cycle that could launch: Jobs, Pods, nodes and rights were known when it looked."""
    known = [json.loads(line) for line in log.splitlines()]
    able_at = next(line["timestamp"] for line in known if line["event"] == "access is complete")
    return max((line["cycle"] for line in known if "cycle" in line and line["timestamp"] < able_at), default=0) + 1
