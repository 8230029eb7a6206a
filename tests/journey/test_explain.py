"""Why does it wait: rows are explained over HTTP and by `dispatcher explain`, and the next step is carried out."""

import json
from datetime import UTC, datetime

import pytest

from tests.controlplane.waiting import wait_for
from tests.rig.commands import command, says, started
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.pools import CORE, a_pool, in_pool
from tests.rig.reasons import reason
from tests.rig.steps import insert, looks_again, reaches

SECRET = "planted-secret-7f3a"  # it must not be shown


async def since(dispatcher: Dispatcher, task_id: int) -> str | None:
    """Since when the reason holds. None: only this question has judged the row yet."""
    status, found = await dispatcher.explain(task_id)
    return found["since"] if status == 200 else None


@pytest.mark.slow
async def test_row_that_waits_for_room_is_explained_and_the_next_step_helps(place: Place) -> None:
    async with a_pool(place, 1) as pool, place.playing(), in_pool(place, MAX_PENDING=0) as dispatcher:
        await dispatcher.ready()
        rows = await insert(place, 6, **{**CORE, "env": {"PLAY": "hang", "PASSWORD": SECRET}, "payload": {"x": SECRET}})
        await wait_for(lambda: since(dispatcher, rows[5]), "a cycle has noted since when it waits", 30)
        found = await reason(dispatcher, rows[5], "NoRoomNow")
        assert (found["whose_turn"], found["status"], found["queue"]) == ("cluster", "waiting", "default")
        assert found["message"].startswith("the nodes are full: no node has room for cpu 1")
        assert found["next_step"] == "nothing until a Pod ends, or add or uncordon a node"
        status, said = await command(dispatcher, "explain", rows[5], rows[0])
        assert status == 0
        for words in (
            "NoRoomNow: the nodes are full",
            "cluster's turn: nothing until a Pod ends",
            "its container runs",
        ):
            assert words in said
        _, line = await command(dispatcher, "explain", "--json", rows[5])
        assert json.loads(line)["since"] == found["since"], "the reason stays the same"
        assert SECRET not in json.dumps(found) + said + line
        await pool.add()
        await reaches(place, dispatcher, rows[5], "processing", 30)


@pytest.mark.slow
async def test_command_says_what_is_wrong(place: Place) -> None:
    async with Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        (row,) = await insert(place, 1, run_at=datetime(2100, 1, 1, tzinfo=UTC))
        status, said = await command(dispatcher, "explain", 999, row)
        assert status == 1
        assert "there is no row 999" in said
        assert "NotDue: it is not due yet: runs at 2100-01-01" in said
    status, said = await command(dispatcher, "explain", row)
    assert (status, "no dispatcher answers at http://127.0.0.1:" in said) == (1, True)
    assert "kubectl -n dispatcher exec deploy/dispatcher" in said


@pytest.mark.slow
async def test_watch_prints_what_changes_until_the_row_is_over(place: Place) -> None:
    async with a_pool(place, 1), place.playing(), in_pool(place, MAX_JOBS=1) as dispatcher:
        await dispatcher.ready()
        first, second = await insert(place, 2, **CORE)
        await reason(dispatcher, second, "JobCap")
        watching = await started(dispatcher, "explain", "--watch", second)
        said = await says(watching, "JobCap: ")
        team = await place.database.connect("team_a")
        await looks_again(dispatcher, 12)
        await team.fetchval("SELECT dispatch.task_cancel($1)", second)
        said += (await watching.communicate())[0].decode()
        told = said.count("JobCap: "), said.count("it has been cancelled")
        assert (watching.returncode, told) == (0, (1, 1))
        assert first < second


@pytest.mark.slow
async def test_row_that_is_deleted_while_it_is_watched_is_told(place: Place) -> None:
    (place.templates / "broken.yaml").write_text("apiVersion: batch/v1\nkind: Job\nspec: {parallelism: 7}\n")
    async with Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        (row,) = await insert(place, 1, template="broken")
        watching = await started(dispatcher, "explain", "--watch", row)
        said = await says(watching, "InvalidTemplate: ")
        assert "template broken: " in said, "the fault of the file is told"
        admin = await place.database.session("admin")
        await admin.execute("DELETE FROM dispatch_private.tasks WHERE id = $1", row)
        said += (await watching.communicate())[0].decode()
        assert f"there is no row {row}" in said
        assert watching.returncode == 1
