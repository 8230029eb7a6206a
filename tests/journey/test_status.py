"""Who is on call sees queues, caps, pauses and parked rows: over HTTP, by command and in the metrics."""

import json
import shutil
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.controlplane.waiting import wait_for
from tests.rig.commands import command
from tests.rig.dispatching import Dispatcher, Place, TellingDispatcher
from tests.rig.janitoring import QuickJanitor
from tests.rig.steps import shows

DEEP = 1500
QUEUES = """
INSERT INTO dispatch.queues (name, max_jobs, paused_until, note) VALUES
    ('full', 1, NULL, NULL), ('quiet', NULL, 'infinity', 'upgrade, ops')
"""
ROWS = "INSERT INTO dispatch.tasks (queue, template, run_at) SELECT $2, $3, $4 FROM generate_series(1, $1)"
COUNT = "SELECT queue, count(*)::int FROM dispatch_private.tasks WHERE status = 'waiting' GROUP BY queue ORDER BY queue"


async def filled(place: Place) -> None:
    """Rows that wait for each kind of reason, and more than one cycle looks at."""
    admin = await place.database.session("admin")
    await admin.execute(QUEUES)
    team = await place.database.session("team_a")
    await team.execute(ROWS, DEEP, "default", "nowhere", None)
    await team.execute(ROWS, 2, "default", "default", datetime(2999, 1, 1, tzinfo=UTC))
    await team.execute(ROWS, 40, "full", "default", None)
    await team.execute(ROWS, 30, "quiet", "default", None)


async def told(dispatcher: Dispatcher, **wanted: dict[str, int]) -> dict[str, Any]:
    """The status, once its queues have these reasons."""

    async def has_them() -> dict[str, Any] | None:
        code, found = await dispatcher.api("status")
        by_queue = {queue["queue"]: queue["reasons"] for queue in found.get("queues", ())}
        return found if code == 200 and wanted.items() <= by_queue.items() else None

    found: dict[str, Any] | None = await wait_for(has_them, f"status tells {wanted}", 40, check=dispatcher.check)
    assert found is not None
    return found


@pytest.mark.slow
async def test_every_waiting_row_is_told_once_by_each_surface(place: Place) -> None:
    await filled(place)
    async with Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        found = await told(
            dispatcher, default={"NotDue": 2, "UnknownTemplate": DEEP}, full={"Launched": 1, "QueueCap": 39},
            quiet={"Paused": 30},
        )  # fmt: skip
        reader = await place.database.session("reader")
        rows = {row["queue"]: row["count"] for row in await reader.fetch(COUNT)}
        assert {queue["queue"]: queue["waiting"] for queue in found["queues"]} == rows
        for queue, count in rows.items():
            await shows(dispatcher, "dispatcher_waiting_tasks", count, queue=queue)
            assert await dispatcher.metric("dispatcher_waiting_tasks", queue=queue) == count
            code, alone = await dispatcher.api(f"queues/{queue}")
            assert (code, alone["waiting"]) == (200, count)
        assert await dispatcher.metric("dispatcher_oldest_wait_seconds", queue="quiet") > 0
        code, queues = await dispatcher.api("queues")
        assert [queue["queue"] for queue in queues] == ["default", "full", "quiet"]
        quiet = queues[2]
        assert (quiet["note"], quiet["paused_until"][:4], quiet["in_flight"]) == ("upgrade, ops", "9999", 0)
        assert found["parked"] == DEEP
        assert found["parked_rows"][0]["message"].startswith("there is no such template")
        assert (await dispatcher.api("queues/nowhere"))[0] == 404


@pytest.mark.slow
async def test_status_command_is_one_screen(place: Place) -> None:
    await filled(place)
    async with Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        await told(dispatcher, quiet={"Paused": 30})
        code, said = await command(dispatcher, "status")
        assert code == 0
        for words in (": ready, 1 of ", "1 of 1 ", "paused until somebody clears it", "upgrade, ops", "Paused 30",
                      "parked rows: each waits for a person", "UnknownTemplate since"):  # fmt: skip
            assert words in said
        assert len(said.splitlines()) <= 40
        assert max(map(len, said.splitlines())) <= 140
        parked = [line for line in dispatcher.log.splitlines() if '"event":"parked"' in line]
        assert len(parked) == len(set(parked)), "each row once"
        assert json.loads(parked[0])["reason"] == "UnknownTemplate"
        code, said = await command(dispatcher, "status", "--parked")
        assert said.count("submitter's turn: cancel the row") == 100
        _, line = await command(dispatcher, "status", "--json")
        assert json.loads(line)["installation"] == "dispatcher"


@pytest.mark.slow
async def test_templates_that_dispatcher_and_janitor_do_not_have_alike_are_named(place: Place) -> None:
    """Both read folders of their own. INSERT judges by the janitor's."""
    theirs = place.folder / "theirs"
    shutil.copytree(place.templates, theirs)
    place.template("ours")
    place.template("default", row_may_set="env.MODE")
    shutil.copy(theirs / "default.yaml", theirs / "others.yaml")
    async with TellingDispatcher(place) as dispatcher, QuickJanitor(place, TEMPLATES_DIR=theirs):
        await dispatcher.ready()

        async def are_named() -> list[str]:
            _, found = await dispatcher.api("status")
            return list(found.get("templates_differ", ()))

        named = await wait_for(are_named, "status names templates", 40, check=dispatcher.check)
        assert named == [
            'template "default": the dispatcher and the janitor differ in row_may_set',
            'template "others": the janitor has it, the dispatcher has not: its rows wait',
            'template "ours": the dispatcher has it, the janitor has not: INSERT refuses its rows',
        ]
        code, said = await command(dispatcher, "status")
        assert (code, [one for one in named if f"  {one}\n" not in said]) == (0, [])
        shutil.copytree(place.templates, theirs, dirs_exist_ok=True)
        (theirs / "others.yaml").unlink()

        async def is_over() -> bool:
            return await are_named() == []

        await wait_for(is_over, "the templates agree again", 40, check=dispatcher.check)
