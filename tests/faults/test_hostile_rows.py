"""Hostile text of rows arrives unchanged or not at all, and appears in no log and no metric."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.rig.dispatching import Dispatcher, Place
from tests.rig.postgres import PostgresServer, connect, url_with
from tests.rig.steps import creates, has_jobs, held, insert, looks_again, shows, succeeded

HOSTILE = 'team\n{"level":"info"}\x1b[31m\u202e<script>alert(1)</script>'
TEXTS = ["\x1b[2J", "\u202egnp.exe", "<img src=x onerror=alert(1)>", "a\nb\r\tc", "$(TASK_START_KEY) $$(PATH) ${HOME}",
         "'; DROP TABLE dispatch.tasks; --", "\U0001f4a3" * 50, "x" * 30_000]  # fmt: skip
QUEUES = 150


@asynccontextmanager
async def login(postgres: PostgresServer, name: str) -> AsyncIterator[None]:
    """A submitter's role with a hostile name."""
    admin = await connect(postgres.admin_url)
    quoted = '"' + name.replace('"', '""') + '"'
    try:
        await admin.execute(f"CREATE ROLE {quoted} LOGIN PASSWORD 'hostile' IN ROLE dispatch_submitter")
        yield
    finally:
        await admin.execute(f"DROP ROLE IF EXISTS {quoted}")
        await admin.close()


async def insert_as(place: Place, name: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(url_with(place.database.admin_url), user=name, password="hostile")
    await connection.execute("INSERT INTO dispatch.tasks DEFAULT VALUES")
    await connection.close()


@pytest.mark.slow
@pytest.mark.fault(57)
async def test_hostile_submitter_name_is_quoted_everywhere(place: Place, postgres: PostgresServer) -> None:
    async with login(postgres, HOSTILE), place.playing(), Dispatcher(place, LOG_LEVEL="debug") as dispatcher:
        await insert_as(place, HOSTILE)
        await succeeded(place, dispatcher, 1)
        (job,) = await has_jobs(place, dispatcher, 1)
        assert job["metadata"]["annotations"]["dispatcher.internal/submitted-by"] == HOSTILE
        _, metrics = await dispatcher.get("/metrics")
        assert "<script" not in metrics
        lines = [json.loads(line) for line in dispatcher.log.splitlines()]
        assert {line["event"] for line in lines} >= {"started", "launched"}
        assert "\x1b" not in dispatcher.log
        await place.database.drop()  # the role can be dropped once its rows are gone


@pytest.mark.slow
@pytest.mark.fault(55, 57)
@pytest.mark.museum("env $ unescaped")
async def test_hostile_values_arrive_unchanged_and_are_not_logged(place: Place) -> None:
    place.template("open", row_may_set="env,args,command", max_bytes="256Ki")
    async with place.playing() as player, Dispatcher(place, LOG_LEVEL="debug") as dispatcher:
        ids = [await place.database.insert_task(template="open", env={"TEXT": text}) for text in TEXTS]
        await insert(place, 1, template="open", spec={"args": TEXTS, "command": ["sh", "-c", "$(TASK_START_KEY)"]})
        await succeeded(place, dispatcher, len(ids) + 1)
        for task_id, text in zip(ids, TEXTS, strict=True):
            assert player.runs_of(task_id)[0].env["TEXT"] == text
        assert not [text for text in TEXTS if text in dispatcher.log or json.dumps(text) in dispatcher.log]
        assert all(json.loads(line) for line in dispatcher.log.splitlines())


DENIED: list[Mapping[str, Any]] = [
    {"spec": {"image": "elsewhere.example/app:1"}},
    {"spec": {"image": "registry.example/team/../../elsewhere"}},
    {"spec": {"cpu": "64"}},
    {"spec": {"args": ["--as-root"]}},
    {"spec": {"command": ["sh"]}},
    {"spec": {"special_machine": "big"}},
    {"env": {"FIXED": "mine"}},
    {"timeout_seconds": 604800},
]


@pytest.mark.slow
@pytest.mark.fault(54, 56)
async def test_row_that_sets_what_its_template_does_not_open_makes_no_job(place: Place) -> None:
    place.template("open", row_may_set="env,cpu,image", max_cpu="1", max_seconds="60", images="registry.example/team/*")
    path = place.templates / "open.yaml"
    path.write_text(path.read_text() + "          env: [{name: FIXED, value: theirs}]\n")
    async with place.playing(), Dispatcher(place) as dispatcher:
        for columns in DENIED:
            await insert(place, 1, template="open", priority=1, **columns)
        await insert(place, 1, template="open", priority=900)
        await succeeded(place, dispatcher, 1)
        await held(dispatcher, "PolicyDenied", len(DENIED))
        await looks_again(dispatcher)
    assert len(creates(place, None)) == 1


@pytest.mark.slow
@pytest.mark.fault(58)
async def test_metrics_name_queues_but_no_submitters_or_tasks(place: Place) -> None:
    operator = await place.database.connect("operator")
    await operator.executemany(
        "INSERT INTO dispatch.queues (name) VALUES ($1)", [(f"queue-{number}",) for number in range(QUEUES)]
    )
    team = await place.database.connect("team_a")
    await team.executemany(
        "INSERT INTO dispatch.tasks (queue, cache_key) VALUES ($1, $2)",
        [(f"queue-{number % QUEUES}", f"key-{number}") for number in range(QUEUES * 4)],
    )
    async with Dispatcher(place, MAX_JOBS=5) as dispatcher:
        await shows(dispatcher, "dispatcher_waiting_tasks", QUEUES + 1, reason="JobCap")
        _, metrics = await dispatcher.get("/metrics")
    samples = [line for line in metrics.splitlines() if line.startswith("dispatcher_")]
    assert len([line for line in samples if "queue=" in line]) <= 4 * QUEUES
    assert len(samples) <= 4 * QUEUES + 500
    assert not [line for line in samples if "team_a" in line or "key-" in line or "task" in line.partition("{")[2]]
