"""The end of a launch is written down where its submitter can read it: in the row's history, and in its error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dispatcher.model.verdicts import NO_CALL
from tests.controlplane.waiting import wait_for
from tests.rig.commands import command
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.janitoring import Janitor, becomes, both, falls_silent
from tests.rig.postgres import Record
from tests.rig.steps import insert, reaches, waits_for

SECRET = "planted-secret-91c4"
HISTORY = "SELECT * FROM dispatch.task_history WHERE task_id = $1 ORDER BY attempt, launch"
ENDS: dict[str, tuple[dict[str, str], str, int | None]] = {
    "out of memory": (
        {"run-seconds": "0.2", "exit-code": "137", "exit-reason": "OOMKilled"}, "OOMKilled (limit 16Mi)", 137
    ),
    "crash": ({"run-seconds": "0.2", "exit-code": "3", "exit-message": f"no disk\n{SECRET}"}, "exit code 3", 3),
    "no command": ({"start-error": "no such file"}, "StartError: no such file", 128),
}  # fmt: skip


async def history(place: Place, task_id: int, login: str = "team_a") -> list[Record]:
    return list(await (await place.database.session(login)).fetch(HISTORY, task_id))


async def only_launch(place: Place, task_id: int) -> Record:
    """The one launch of the row, once its end is written down: just after the janitor has ended the row."""

    async def ended() -> list[Record]:
        return [one for one in await history(place, task_id) if one["reason"] is not None]

    (launch,) = await wait_for(ended, f"the end of the launch of {task_id} is written down", 20)
    return launch


async def explained(dispatcher: Dispatcher, task_id: int) -> dict[str, Any]:
    status, found = await dispatcher.explain(task_id)
    assert status == 200
    return found


async def fails(place: Place, janitor: Janitor, task_id: int) -> str:
    """The error of the row, once the janitor has ended it."""
    await becomes(place, task_id, "failed", janitor, 90)
    return str((await place.database.task(task_id))["error"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDS)
async def test_launch_that_never_reported_names_what_ended_it(place: Place, name: str) -> None:
    steer, reason, exit_code = ENDS[name]
    place.template("broken", steer=steer)
    async with both(place, MAX_LAUNCHES=1) as (janitor, dispatcher):
        await dispatcher.ready()
        (task_id,) = await insert(place, 1, template="broken")
        error = await fails(place, janitor, task_id)
        ran = "" if "start-error" in steer else f"{NO_CALL}: "
        assert error.startswith(f"LaunchesExhausted: {ran}1 launches never started; launch 1: {reason}")
        launch = await only_launch(place, task_id)
        assert (launch["reason"], launch["exit_code"], launch["outcome"]) == (reason, exit_code, "unstarted")
        assert launch["ended_at"] is not None
        assert await history(place, task_id, "team_b") == []
        (told,) = (await explained(dispatcher, task_id))["launches"]
        assert (told["reason"], told["exit_code"], told["pod"]) == (reason, exit_code, launch["pod_name"])
        _, said = await command(dispatcher, "explain", task_id)
        assert f"unstarted, {reason}" in said
        assert (SECRET in error) is (name == "crash"), "the end of the output is the submitter's to read"
        assert SECRET not in janitor.log + dispatcher.log, "and never reaches a log"


@pytest.mark.slow
async def test_run_that_crashed_names_its_exit_code(place: Place) -> None:
    async with place.playing(), both(place) as (janitor, dispatcher):
        await dispatcher.ready()
        (task_id,) = await insert(place, 1, env={"PLAY": "start-then-exit-1"}, max_failures=1)
        await reaches(place, dispatcher, task_id, "processing")
        await falls_silent(place, task_id)
        assert "max_failures is 1; launch 1: exit code 1" in await fails(place, janitor, task_id)
        launch = await only_launch(place, task_id)
        assert (launch["exit_code"], launch["reason"], launch["outcome"]) == (1, "exit code 1", "lost")


@pytest.mark.slow
@pytest.mark.fault(39)
async def test_image_that_cannot_be_pulled_is_told_while_its_pod_waits_and_afterwards(place: Place) -> None:
    place.template("nowhere", steer={"waiting": "ErrImagePull"})
    async with both(place, MAX_LAUNCHES=1, START_DEADLINE_SECONDS=10) as (janitor, dispatcher):
        await dispatcher.ready()
        (task_id,) = await insert(place, 1, template="nowhere")
        await waits_for(dispatcher, task_id, "Launched")
        error = await fails(place, janitor, task_id)
        assert "launch 1: ErrImagePull" in error
        launch = await only_launch(place, task_id)
        assert (launch["reason"], launch["outcome"]) == ("ErrImagePull", "unstarted")
        assert json.dumps(await explained(dispatcher, task_id)).count("ErrImagePull") >= 1
