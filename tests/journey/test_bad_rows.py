"""Bad rows wait with one reason each, and never in the way of a good one."""

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


async def cycles(dispatcher: Dispatcher) -> tuple[float, float]:
    """How many cycles there were, and how many of them took at most 50 ms."""
    total = await dispatcher.metric("dispatcher_cycle_seconds_count")
    return total, await dispatcher.metric("dispatcher_cycle_seconds_bucket", le="0.05")


async def test_ten_thousand_bad_rows_delay_a_good_one_by_two_cycles_at_most(place: Place) -> None:
    (place.templates / "open.yaml").write_text(FIXED)
    (place.templates / "broken.yaml").write_text("apiVersion: batch/v1\nkind: Job\nspec: {parallelism: 7}\n")
    async with Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        team = await place.database.connect("team_a")
        async with team.transaction():  # they appear at once, and the good one with them
            await team.execute(BAD, EACH)
            good = await team.fetchval("INSERT INTO dispatch.tasks (priority) VALUES (900) RETURNING id")
            before = await cycles(dispatcher)

        async def has_job() -> bool:
            return bool(await place.jobs())

        await wait_for(has_job, "the good row's Job", 20, check=dispatcher.check)
        after = await cycles(dispatcher)
        (job,) = await place.jobs()
        assert f"dispatcher-{good}-" in str(job["metadata"])
        print(f"cycles {after[0] - before[0]}, within 50 ms {after[1] - before[1]}")

        async def is_calm() -> bool:
            return await dispatcher.metric("dispatcher_waiting_tasks") >= 8 * EACH

        await wait_for(is_calm, "every bad row has its reason", 20, check=dispatcher.check)
        calm = await cycles(dispatcher)
        print(await dispatcher.metric("dispatcher_cycle_seconds_sum"), calm)
        _, text = await dispatcher.get("/metrics")
        print([line for line in text.splitlines() if "waiting" in line or "cycle_seconds" in line])
    print(dispatcher.log[-2000:])
