"""Every command of the operator's page and of the runbooks runs as it is pasted, where Pods run.

The names of the pages stand for objects of this site: a row whose task runs, its Pod, a node, a namespace `team`.
Commands that restart a program come last, and together.
"""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Final, NamedTuple

import pytest
import pytest_asyncio

from tests.node.install import JOBS, Shell, ready
from tests.node.installation import Installation
from tests.node.page_commands import COMMANDS

DEPLOYMENTS: Final = ("dispatcher", "dispatcher-janitor", "dispatcher-scheduler")
RESTARTS: Final = re.compile(r" rollout restart | delete lease ")
TRIES: Final = 5
LISTENS: Final = " &"
"""The end of a line that serves the next one, until the shell ends."""
QUIET: Final = [
    line for line in COMMANDS if not (RESTARTS.search(line) or " rollout status " in line or line.endswith(LISTENS))
]
ANSWERS: Final[Mapping[str, str]] = {
    "dispatcher explain": r"task \d+",
    "dispatcher logs 4711": "^start$",
    "dispatcher status": "; as of |parked",  # any replica answers
    "dispatcher-status ": '"as_of":',
    "dispatcher-reasons ": r'"?\[',
    "auth can-i ": "^yes$",
    "8081/": "<h1>Overview</h1>",
    "/explain": '"real-[12]"',
    "--print-scheduler-config": "extenders:",
    "label node": "labeled",
    "taint node": "tainted",
}
"""What some of the commands answer, by a part of the command. All others are only required to succeed."""
AFTERWARDS: Final[Mapping[str, str]] = {
    "kubectl label node ": "kubectl label node n1 dispatcher.internal/private-machine-",
    "kubectl taint node ": "kubectl taint node n1 dispatcher.internal/private-machine-",
    "kubectl -n team create rolebinding ": (
        "kubectl auth can-i create nodereservations.dispatcher.internal -n team --as=somebody --as-group=team-a"
    ),
}
"""What undoes a command, or shows what it did."""


class Named(NamedTuple):
    """What the names of the pages stand for."""

    row: int
    pod: str
    node: str
    database_url: str

    def here(self, line: str) -> str:
        names = {
            "dispatcher-4711-1c2e9f04-1-x7k2p": self.pod,
            "4711": str(self.row),
            " n1 ": f" {self.node} ",
            "psql work ": f"psql {self.database_url} ",
        }
        for name, here in names.items():
            line = line.replace(name, here)
        return line


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def named(scheduled: Installation) -> AsyncIterator[Named]:
    row = await scheduled.insert("sleep", 600)
    await scheduled.shell.run("kubectl create namespace team")

    async def has_begun() -> bool:
        return bool((await scheduled.traces([row]))[row])

    await scheduled.site.plane.wait_for(has_begun, "the row of the pages runs", 60)
    (pod,) = await scheduled.pods(JOBS, **{"dispatcher.internal/task-id": str(row)})
    node = scheduled.site.nodes[0].name
    yield Named(row, pod["metadata"]["name"], node, scheduled.database.admin_url)
    await (await scheduled.database.session("team_a")).execute("SELECT dispatch.task_cancel($1)", row)
    await scheduled.shell.run("kubectl delete namespace team --wait=false")


def with_its_server(line: str) -> str:
    """The command, with the line before it on the page if that one listens for it."""
    before = COMMANDS[COMMANDS.index(line) - 1]
    return f"trap 'kill $!' EXIT\n{before}\n{line}" if before.endswith(LISTENS) else line


async def pasted(shell: Shell, line: str) -> str:
    """The output. `describe` reads a list and then each object: one that is swept meanwhile is not found."""
    for _ in range(TRIES):
        try:
            return await shell.run(line)
        except AssertionError as failed:
            if " describe " not in line or "(NotFound)" not in str(failed):
                raise
    raise AssertionError(f"an object was gone {TRIES} times: {line}")


@pytest.mark.parametrize("line", QUIET)
async def test_command_of_a_page_runs_as_it_is_pasted(line: str, named: Named, scheduled: Installation) -> None:
    said = await pasted(scheduled.shell, named.here(with_its_server(line)))
    wanted = [answer for part, answer in ANSWERS.items() if part in line]
    assert [answer for answer in wanted if not re.search(answer, said, re.MULTILINE)] == [], said
    for beginning, command in AFTERWARDS.items():
        if line.startswith(beginning):
            await scheduled.shell.run(named.here(command))


def test_every_answer_is_that_of_a_command() -> None:
    beginnings = [one for one in AFTERWARDS if not any(line.startswith(one) for line in QUIET)]
    assert [part for part in ANSWERS if not any(part in line for line in QUIET)] + beginnings == []


async def test_restarts_of_the_runbooks_bring_every_program_back(named: Named, scheduled: Installation) -> None:
    restarts = [line for line in COMMANDS if RESTARTS.search(line)]
    waits = [line for line in COMMANDS if " rollout status " in line]
    assert len(restarts) == len(DEPLOYMENTS) + 1
    await scheduled.shell.run("\n".join([*restarts, *waits]))
    await ready(scheduled.site, DEPLOYMENTS)
    row = await scheduled.insert("sleep", 0.1)
    assert (await scheduled.ended(row))["status"] == "succeeded"
    assert (await scheduled.database.task(named.row))["status"] == "processing"
