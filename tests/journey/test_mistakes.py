"""The first day of a submitter: typical mistakes are named at INSERT, or by the row where only the cluster knows.

The program, the janitor that keeps the table of templates, and a node of real processes.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

import asyncpg
import pytest

from tests.controlplane.sides import EMBEDDED_SIDE
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Place
from tests.rig.janitoring import QuickJanitor
from tests.rig.noding import real_template
from tests.rig.postgres_process import binaries
from tests.rig.realities import Real, real

pytestmark = EMBEDDED_SIDE
QUEUES = """
INSERT INTO dispatch.queues (name, submit_role) VALUES ('reports', NULL), ('payroll', 'dispatch_operator');
"""
OPENED = "env,args,cpu,memory,image"


class Refused(NamedTuple):
    """What the error of an INSERT names: its code, its column, words of its message and of its hint."""

    code: str
    column: str
    message: str
    hint: str


AT_INSERT: Mapping[str, tuple[dict[str, Any], Refused]] = {
    "queue with a typing error": ({"queue": "reprots"}, Refused("DI003", "queue", '"reprots"', '"reports"')),
    "queue of another team": ({"queue": "payroll"}, Refused("DI003", "queue", "you may not", "dispatch_operator")),
    "template with a typing error": ({"template": "trian"}, Refused("DI006", "template", '"trian"', '"train"')),
    "field that does not exist": ({"spec": {"memroy": "1Gi"}}, Refused("DI002", "spec", '"memroy"', '"memory"')),
    "field that is closed": ({"spec": {"image": "app:2"}}, Refused("DI002", "spec", "spec.image", "may set: cpu, env")),
    "image of another team": (
        {"template": "train", "spec": {"image": "team-b/app:1"}}, Refused("DI002", "spec", "team-b/app:1", "process/*"),
    ),
    "machine without any": (
        {"spec": {"private_machine": "m1"}}, Refused("DI002", "spec", "spec.private_machine", "may set"),
    ),
    "quantity of another system": ({"spec": {"cpu": "2 cores"}}, Refused("DI002", "spec", "spec.cpu", '"500m"')),
    "memory in GB": (
        {"template": "train", "spec": {"memory": "2GB"}}, Refused("DI002", "spec", '"2GB"', '"512Mi"'),
    ),
    "more than the template allows": (
        {"template": "train", "spec": {"cpu": "64"}}, Refused("DI002", "spec", "64 is over the 2", "author"),
    ),
    "number in env": ({"env": {"SIZE": 5}}, Refused("DI001", "env", '"SIZE"', "Quote numbers")),
    "name and value as one": ({"env": {"SIZE=5": ""}}, Refused("DI001", "env", 'begins with "SIZE"', "A-Za-z_")),
    "name of the contract": ({"env": {"TASK_ID": "7"}}, Refused("DI001", "env", "env.TASK_ID", "by the dispatcher")),
    "variable that runs code": ({"env": {"PYTHONPATH": "/x"}}, Refused("DI001", "env", "env.PYTHONPATH", "may set")),
    "priority too high": ({"priority": 5000}, Refused("DI004", "priority", "5000", "0..1000")),
    "time limit of zero": ({"timeout_seconds": 0}, Refused("DI004", "timeout_seconds", "0", "a week")),
    "label that is a number": ({"labels": {"month": 7}}, Refused("DI008", "labels", '"month"', '"7"')),
    "payload of 2 MiB": ({"payload": "x" * 2**21}, Refused("DI007", "payload", "1 MiB", "object storage")),
}  # fmt: skip
BY_THE_CLUSTER: Mapping[str, tuple[dict[str, Any], str, str]] = {
    "program that does not exist": ({"template": "missing"}, "LaunchesExhausted", "never started"),
    "container that does not report": ({"template": "silent"}, "ExitedWithoutReport", "did not say"),
    "more than any node has": ({"template": "huge"}, "NoRoomNow", "no node is large enough"),
    "program that fails": ({"env": {"SCRIPT": "exit 9"}, "max_failures": 1}, "", "CMD ended with status 9"),
}
"""What a row shows: its reason, or, if it is over, the words of its error."""


@asynccontextmanager
async def first_day(place: Place) -> AsyncIterator[Real]:
    """Dispatcher, janitor and node. INSERT is judged by the templates."""
    await (await place.database.session("admin")).execute(QUEUES)
    async with real(place, MAX_LAUNCHES=1, MAX_PENDING=0) as (world, _):
        write_templates(place)
        async with QuickJanitor(place, PARK_SECONDS=3600):
            team = await place.database.session("team_a")

            async def are_known() -> bool:
                return len(await team.fetch("SELECT FROM dispatch.templates")) == 5

            await wait_for(are_known, "the janitor has written the templates", 30)
            yield world


def write_templates(place: Place) -> None:
    real_template(place, row_may_set="env,cpu", max_cpu="2")
    real_template(place, "train", row_may_set=OPENED, max_cpu="2", max_memory="2Gi", images="process/*")
    real_template(place, "missing", program=["/no/such/program"])
    real_template(place, "silent", program=["true"])
    real_template(place, "huge", pod={"containers": [huge()]})


def huge() -> dict[str, object]:
    resources = {"requests": {"cpu": "5000"}, "limits": {"cpu": "5000"}}
    return {"name": "task", "image": "process/none:1", "command": ["true"], "resources": resources}


@pytest.mark.slow
async def test_each_mistake_is_named_where_it_is_made(place: Place) -> None:
    """22 of 22: 18 at INSERT, 4 by the row itself."""
    async with first_day(place) as world:
        for what, (columns, wanted) in AT_INSERT.items():
            error = await refused(place, columns)
            assert error is not None, what
            found = Refused(error.sqlstate or "", error.column_name or "", error.message, error.hint or "")
            assert (found.code, found.column) == (wanted.code, wanted.column), what
            assert wanted.message in found.message, (what, found)
            assert wanted.hint in found.hint, (what, found)
        ids = {what: await place.database.insert_task(**columns) for what, (columns, _, _) in BY_THE_CLUSTER.items()}
        for what, (_, reason, words) in BY_THE_CLUSTER.items():
            await world.wait(partial(shows, place, ids[what], reason, words), what, 60)
    assert len(AT_INSERT) + len(BY_THE_CLUSTER) >= 20


async def refused(place: Place, columns: dict[str, Any]) -> asyncpg.PostgresError | None:
    try:
        await place.database.insert_task(**columns)
    except asyncpg.PostgresError as error:
        return error
    return None


async def shows(place: Place, task_id: int, reason: str, words: str) -> bool:
    """Whether the submitter reads the reason and the words in SQL."""
    team = await place.database.session("team_a")
    told = await team.fetchrow("SELECT reason, message FROM dispatch.task_explain WHERE id = $1", task_id)
    error = await team.fetchval("SELECT error FROM dispatch.tasks WHERE id = $1", task_id)
    assert told is not None
    return (told["reason"] or "") == reason and words in (told["message"] if reason else error or "")


class Newcomer:
    """A person with psql alone, who reads error messages and the comments of the table. Counts the statements."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.statements = 0

    async def types(self, statement: str) -> str:
        """What psql prints, errors included."""
        self.statements += 1
        command = ("psql", "-XAt", self._url, "-c", statement)
        child = await asyncio.create_subprocess_exec(
            *command, env={"PATH": str(binaries())}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        return (await child.communicate())[0].decode()


def insert(columns: Mapping[str, object]) -> str:
    values = [f"'{value if isinstance(value, str) else json.dumps(value)}'" for value in columns.values()]
    return f"INSERT INTO dispatch.tasks ({', '.join(columns)}) VALUES ({', '.join(values)}) RETURNING id"


@pytest.mark.slow
async def test_newcomer_with_psql_alone_gets_the_first_task_done_in_ten_statements(place: Place) -> None:
    """No page is read: each step follows from a comment, an error or a hint that psql has printed before."""
    async with first_day(place) as world:
        newcomer = Newcomer(place.database.url("team_a"))
        table = await newcomer.types(r"\d+ dispatch.tasks")
        assert len(re.findall("You set it", table)) >= 10
        row: dict[str, object] = {"queue": "report", "template": "trainer", "env": {"SCRIPT": "true"}}
        row["spec"] = {"memory": "1GB"}
        while (said := await newcomer.types(insert(row))).startswith("ERROR"):
            row = mended(row, said)
        task_id = int(said.splitlines()[0])
        await world.reaches(task_id, "succeeded")
        told = await newcomer.types(f"SELECT status, message FROM dispatch.task_explain WHERE id = {task_id}")
        assert told.startswith("succeeded|")
        assert newcomer.statements <= 10, newcomer.statements


def mended(row: Mapping[str, object], said: str) -> dict[str, object]:
    """The row after one step that the error names."""
    column = next(name for name in ("queue", "template", "spec") if said.startswith(f"ERROR:  {name}"))
    hint = said.partition("HINT:")[2]
    if column == "spec":
        return {**row, "spec": {"memory": example(hint)}}
    (nearest,) = re.findall(r'nearest name is "([^"]+)"', hint)
    return {**row, column: nearest}


def example(hint: str) -> str:
    """The first quantity of the hint."""
    found: Sequence[str] = re.findall(r'"(\d+\w+)"', hint)
    return found[0]
