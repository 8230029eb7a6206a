"""The shipped alerts on a real Prometheus that scrapes real programs: silent in health, and firing for real causes.

Also there: each panel of the board has data, and the commands of the runbooks run in the Pods that they name.
"""

import asyncio
import json
import shlex
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from functools import partial, reduce
from pathlib import Path

import pytest
import pytest_asyncio

from docs.make_board import BOARD
from tests.controlplane.cluster import ControlPlane
from tests.rig.commands import command
from tests.rig.deployed import rendered
from tests.rig.dispatching import Dispatcher, QuickDispatcher
from tests.rig.keeping import Keeper
from tests.rig.pages import RUNBOOKS, lines_for_a_cluster
from tests.rig.postgres import Database, PostgresServer
from tests.rig.steps import insert, succeeded, template_with
from tests.rig.watched import INSTALLATION, Watched, watching

TORN = {"container": {"volumeMounts": [{"name": "nowhere", "mountPath": "/x"}]}}
ROWS = 20
PANELS = json.loads(BOARD.read_text())["panels"]
VARIABLES = {"$namespace": ".*", "$installation": INSTALLATION, "$__rate_interval": "1m"}
EXEC = [line for line in lines_for_a_cluster(*RUNBOOKS) if " exec deployment/" in line]
KEEPER = [line for line in lines_for_a_cluster(*RUNBOOKS) if " exec daemonset/" in line]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def watched(
    control_plane: ControlPlane, nodes: list[str], one_database: Database, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Watched]:
    async with watching(control_plane, one_database, tmp_path_factory.mktemp("watched")) as made:
        await made.dispatcher.ready()
        await made.janitor.ready()
        await made.extender.ready()
        known = (
            'count(dispatcher_ready) == 3 and on () dispatcher_last_round_timestamp_seconds{component="janitor"} > 0'
        )
        await made.prometheus.wait_for(partial(made.prometheus.query, known), "Prometheus knows all programs")
        yield made


async def work(watched: Watched, rows: int) -> None:
    """Lets the dispatcher finish so many rows, and the extender answer kube-scheduler's two calls."""
    done = len(await watched.place.rows("status = 'succeeded'"))
    await insert(watched.place, rows)
    await succeeded(watched.place, watched.dispatcher, done + rows)
    for verb in ("filter", "prioritize"):
        assert (await watched.extender.post(verb, {"Pod": {}, "NodeNames": ["a", "b"]}))[0] == 200


@pytest.mark.slow
async def test_no_alert_fires_while_an_installation_works(watched: Watched) -> None:
    async def is_silent() -> bool:
        return not await watched.alerts()

    await watched.prometheus.wait_for(is_silent, "the start and other tests are over", 60)
    began = asyncio.get_running_loop().time()
    await work(watched, ROWS)
    for known in (f'dispatcher_launches_total{{launch="first"}} >= {ROWS}', "dispatcher_jobs_ended_total > 0"):
        await watched.prometheus.wait_for(partial(watched.prometheus.query, known), known)
    assert await watched.fired_since(began) == []


async def test_refused_creates_and_parked_rows_fire(watched: Watched) -> None:
    for number in range(4):
        template_with(watched.place, f"torn-{number}", TORN)
    for number in range(4):
        await insert(watched.place, 1, template=f"torn-{number}")
    await watched.fires("ParkedRows", reason="Poison", severity="ticket")
    await watched.fires("CreateErrors", outcome="poison", severity="ticket")


@pytest.mark.slow
async def test_each_query_of_the_board_has_data(watched: Watched) -> None:
    """One row is parked, and another succeeds. When the janitor has failed the first, it has changed rows."""
    template_with(watched.place, "torn", TORN)
    await insert(watched.place, 1, template="torn")
    await work(watched, 1)
    left = {(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]}
    assert len(left) >= len(PANELS) >= 12

    async def are_all_answered() -> bool:
        for panel, query in sorted(left):
            filled = reduce(lambda text, pair: text.replace(*pair), VARIABLES.items(), query)
            assert "$" not in filled
            if await watched.prometheus.query(filled):
                left.remove((panel, query))
        return not left

    try:
        await watched.prometheus.wait_for(are_all_answered, "every query has data", 40)
    except TimeoutError as late:
        raise AssertionError(f"no data: {sorted(left)}") from late


@pytest.mark.parametrize("line", KEEPER)
async def test_command_of_a_runbook_runs_in_the_pod_of_a_cache_keeper(
    line: str, watched: Watched, tmp_path: Path
) -> None:
    plane, namespace = watched.place.control_plane, watched.place.namespace
    config = plane.kubeconfig(tmp_path / "k", token=plane.admin_token, namespace=namespace)
    program, *arguments = shlex.split(line)[shlex.split(line).index("--") + 1 :]
    assert program == "dispatcher"
    assert "0 cache directories" in await Keeper(watched.place, "node-1", tmp_path).command(config, *arguments)


@pytest.mark.parametrize("line", EXEC)
async def test_command_of_a_runbook_runs_in_its_pod(line: str, watched: Watched) -> None:
    words = shlex.split(line, comments=True)
    pods = {"": watched.dispatcher, "-janitor": watched.janitor, "-scheduler": watched.extender}
    (of,) = [word.removeprefix("deployment/dispatcher") for word in words if word.startswith("deployment/")]
    program, *arguments = words[words.index("--") + 1 :]
    assert program == "dispatcher"
    status, said = await inside(pods[of], *arguments)
    assert status == 0, said
    assert said


@pytest.mark.slow
async def test_lost_launches_fire(watched: Watched) -> None:
    watched.place.template("shaky", steer={"evicted-after-seconds": "0"})
    await insert(watched.place, 8, template="shaky", env={"PLAY": "hang"})
    await watched.fires("Relaunches", severity="ticket")


@pytest.mark.slow
async def test_row_that_waits_longer_than_usual_fires(watched: Watched) -> None:
    operator = await watched.place.database.connect("operator")
    await operator.execute("INSERT INTO dispatch.queues (name, max_jobs) VALUES ('narrow', 1)")
    await insert(watched.place, 2, queue="narrow", env={"PLAY": "hang"})
    await watched.fires("OldestWait", queue="narrow", severity="ticket")
    await operator.execute("SELECT dispatch.task_cancel(id) FROM dispatch.tasks WHERE queue = 'narrow'")


@pytest.mark.slow
async def test_missing_rights_fire_and_their_return_ends_it(watched: Watched) -> None:
    plane, namespace = watched.place.control_plane, watched.place.namespace
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    await plane.admin("DELETE", f"{bindings}/dispatcher-jobs")
    await insert(watched.place, 1)
    await watched.fires("NothingLaunched", severity="page")
    await plane.apply(rendered("one-namespace", only="rbac"), namespace=namespace)
    await watched.ends("NothingLaunched")


@pytest.mark.slow
async def test_wrong_calls_of_the_extender_fire(watched: Watched) -> None:
    node = {"metadata": {"name": "a"}}
    await watched.extender.post("filter", {"Pod": {}, "Nodes": {"items": [node, node]}})
    await watched.fires("ExtenderMisconfigured", fault="uncached", severity="ticket")

    async def is_late() -> bool:
        await watched.extender.post("filter", b"half a bod")
        return bool(await watched.firing("ExtenderLate"))

    await watched.prometheus.wait_for(is_late, "the alert of refused requests")
    await watched.fires("ExtenderLate", severity="page")
    await watched.start_again(watched.extender)


async def test_program_without_rights_and_with_old_credentials_fires(watched: Watched) -> None:
    await watched.odd.start()
    await watched.fires("StoreStale", resource="nodes", severity="ticket")
    await watched.fires("CertificateEnds", credential="server-certificate", severity="page")
    await watched.fires("CertificateEnds", credential="authority", severity="page")
    await watched.fires("TokenEnds", severity="ticket")
    await watched.odd.stop()
    await watched.ends("TokenEnds")


async def test_closed_database_fires_and_its_return_ends_it(watched: Watched, postgres: PostgresServer) -> None:
    name = watched.place.database.name
    await postgres.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
    await postgres.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
    await watched.fires("DatabaseAway", severity="page")
    await postgres.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
    await watched.ends("DatabaseAway")


@pytest.mark.slow
async def test_janitor_that_was_killed_fires(watched: Watched) -> None:
    await watched.janitor.kill()
    await watched.fires("JanitorSilent", severity="ticket")
    await watched.start_again(watched.janitor)


@pytest.mark.slow
async def test_killed_dispatcher_leaves_no_leader(watched: Watched) -> None:
    await watched.dispatcher.kill()
    await watched.fires("NoLeader", severity="page")
    await watched.start_again(watched.dispatcher)


async def inside(program: Dispatcher, *arguments: str) -> tuple[int, str]:
    """Runs a command of ours with the environment of that program's Pod."""
    if isinstance(program, QuickDispatcher):
        return await command(program, *arguments)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dispatcher", *arguments, env=program._environment, stdout=PIPE, stderr=STDOUT
    )
    said, _ = await child.communicate()
    assert child.returncode is not None
    return child.returncode, said.decode()
