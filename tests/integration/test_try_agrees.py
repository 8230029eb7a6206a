"""`dispatcher try` and `dispatcher exec` on a real row: the same commands have the same end."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple

import pytest

from tests.controlplane.waiting import wait_for
from tests.rig.execing import PROGRAM, PYTHON, Wrapper, sh, wrapped
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import Row, insert_row
from tests.rig.trying import Tried, read_told, says, tried

database = one_database

ONE_AT_A_TIME: Final = asyncio.Lock()
"""The sessions of the tests are shared."""
WAITS: Final = "echo begun; while :; do sleep 0.05; done"
CANCEL: Final = ("--cancel-after", "10")
"""Late enough that the shell has set its trap. `exec` learns of its cancel later still."""
Act = Callable[[Wrapper, Row | None], Awaitable[object]]


async def nothing(wrapper: Wrapper, row: Row | None) -> None:
    pass


async def terminates(wrapper: Wrapper, row: Row | None) -> None:
    await says(wrapper, "begun")
    wrapper.terminate()


async def cancels(wrapper: Wrapper, row: Row | None) -> None:
    await says(wrapper, "begun")
    if row is not None:
        async with ONE_AT_A_TIME:
            await row.cancel()


async def waits_for_the_heartbeat(wrapper: Wrapper, row: Row | None) -> None:
    if row is None:
        await says(wrapper, "progress 0.42")
    else:
        await wait_for(partial(has_progress, row), "a heartbeat of exec", 60)
    wrapper.go()


async def has_progress(row: Row) -> bool:
    async with ONE_AT_A_TIME:
        return (await row.now())["progress"] is not None


class Story(NamedTuple):
    """One command. `act`: what happens while it runs. `options`: of `try`, and those that `exec` has too."""

    command: tuple[str, ...]
    act: Act = nothing
    options: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()


def writes(content: str) -> tuple[str, ...]:
    return (*PYTHON, f"import os; open(os.environ['TASK_RESULT_FILE'], 'wb').write({content})")


PROGRESS: Final = 'echo "0.42 reading\\tmonth 5" >"$TASK_PROGRESS_FILE"; read -r go'
LONG_NOTE: Final = 'printf "%0300d" 0 >"$TASK_PROGRESS_FILE"; echo "0.42 $(cat "$TASK_PROGRESS_FILE")" \
>"$TASK_PROGRESS_FILE"; read -r go; echo late >&2; exit 65'
STORIES: Final = {
    "success": Story(sh("echo done")),
    "a result": Story(sh('cat "$TASK_PAYLOAD_FILE" >"$TASK_RESULT_FILE"')),
    "a result in another form": Story(writes("""b'{"b": 1e2, "a": 1.50, "b": -0}'""")),
    "a failure": Story(sh("echo not yet >&2; exit 1")),
    "a silent failure": Story(sh("exit 7")),
    "a final failure": Story(sh("echo wrong input >&2; exit 65")),
    "a status of the options": Story(sh("exit 3"), shared=("--final", "3,10-12", "--retry=65")),
    "a signal": Story(sh("kill -9 $$")),
    "a signal without a name": Story(sh("kill -40 $$")),
    "no command": Story(("/no/such/command",)),
    "no program": Story(("/",)),
    "words as a result": Story(writes("b'done'")),
    "an escaped NUL": Story(writes("""rb'{"a": "b\\u0000c"}'""")),
    "no UTF-8": Story(writes("""b'"\\xff"'""")),
    "a result too large": Story(writes("b'x' * 65537")),
    "a result too large in the row": Story(writes("b'[' + b'1,' * 30000 + b'1]'")),
    "a number too long": Story(writes("b'1e999999'")),
    "a folder as a result": Story(sh('mkdir "$TASK_RESULT_FILE"')),
    "a pipe as a result": Story(sh('mkfifo "$TASK_RESULT_FILE"')),
    "a long stderr": Story((*PYTHON, "import os; os.write(2, 'ü'.encode() * 5000 + b'\\0!'); os._exit(1)")),
    "SIGTERM": Story(sh(f"trap 'exit 5' TERM; {WAITS}"), terminates),
    "SIGTERM, and 0": Story(sh(f"""trap 'echo 17 >"$TASK_RESULT_FILE"; exit 0' TERM; {WAITS}"""), terminates),
    "a cancel": Story(sh(f"echo busy >&2; {WAITS}"), cancels, options=CANCEL),
    "a cancel, and 0": Story(sh(f"trap 'exit 0' TERM; {WAITS}"), cancels, options=CANCEL),
    "progress": Story(sh(PROGRESS), waits_for_the_heartbeat),
    "progress, and a long note": Story(sh(LONG_NOTE), waits_for_the_heartbeat),
}
LONGEST_SECONDS: Final = 120
"""All stories begin at once."""
PAYLOAD: Final = {"b": [1, None, "ü"], "a": 1.5}


@pytest.mark.slow
async def test_commands_end_as_they_do_on_a_real_row(database: Database) -> None:
    """All at once, because some wait 15 s for a heartbeat of `exec`."""
    async with asyncio.TaskGroup() as group:
        by_exec = {name: group.create_task(end_of_exec(story, database)) for name, story in STORIES.items()}
        by_try = {name: group.create_task(end_of_try(story)) for name, story in STORIES.items()}
    for name, real in by_exec.items():
        assert by_try[name].result() == real.result(), name


async def end_of_exec(story: Story, database: Database) -> dict[str, object]:
    async with ONE_AT_A_TIME:
        row = await insert_row(database, payload=PAYLOAD)
    async with wrapped(row, *story.shared, "--", *story.command, program=PROGRAM[:-1]) as wrapper:
        await story.act(wrapper, row)
        ended = await wrapper.has_ended(LONGEST_SECONDS)
    async with ONE_AT_A_TIME:
        now, (launch,) = await row.now(), await row.launches()
    return {
        "exit": ended.status,
        "row": now["status"],
        "outcome": launch["outcome"],
        "error": first_line_of_a_refusal(launch["error"]),
        "result": now["result"],
        **said_of(now),
    }


async def end_of_try(story: Story) -> dict[str, object]:
    payload = '{"b": [1, null, "ü"], "a": 1.5}'
    words = ("--json", "--payload", payload, *story.options, *story.shared, "--", *story.command)
    async with tried(*words) as wrapper:
        await story.act(wrapper, None)
        tried_once = read_told(await wrapper.has_ended(LONGEST_SECONDS))
    told = tried_once.told
    assert told["status"] == tried_once.ended.status
    return {
        "exit": told["status"],
        "row": told["row"]["status"],
        "outcome": outcome_of_the_launch(tried_once),
        "error": first_line_of_a_refusal(told["error"]),
        "result": told["result"],
        **said_of({**told, "status": told["row"]["status"]}),
    }


def outcome_of_the_launch(tried_once: Tried) -> str | None:
    """As task_launches has it: the row's status, where a cancel has changed it."""
    if tried_once.told["row"]["status"] == "cancelled":
        return "cancelled"
    outcome = str(tried_once.told["outcome"])
    return None if outcome == "nothing" else outcome


def said_of(row: Any) -> dict[str, object]:
    """Progress and note. A row that waits again has forgotten them."""
    if row["status"] == "waiting":
        return {}
    return {"progress": None if row["progress"] is None else f"{row['progress']:g}", "note": row["note"]}


def first_line_of_a_refusal(error: str | None) -> str | None:
    """A refusal of Postgres has the place in lines of its own, which ours describes in other words."""
    return error.splitlines()[0] if error and error.startswith("TASK_RESULT_FILE") else error
