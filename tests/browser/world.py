"""A world in which almost every reason is alive: one row at least waits for each, and its texts are hostile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import aiohttp

from dispatcher.model.verdicts import HoldReason
from tests.browser import texts
from tests.browser.containers import play
from tests.browser.pages import PAGES
from tests.browser.texts import SECRET
from tests.controlplane.api import Json
from tests.controlplane.player import Player
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place, QuickDispatcher
from tests.rig.janitoring import Janitor, take_name
from tests.rig.pools import POOL, a_pool
from tests.rig.postgres import url_with
from tests.rig.reasons import CRASHES, HUGE, SILENT, change
from tests.rig.steps import insert, limit, reaches, template_with
from tests.rig.unmanaged import lose, unmanaged_node

LOGIN: Final = f"reader_{SECRET.replace('-', '_')}"
MAKE_LOGIN: Final = f"CREATE ROLE {LOGIN} LOGIN PASSWORD '{LOGIN}' IN ROLE dispatch_reader"
QUEUES: Final = """
INSERT INTO dispatch.queues (name, max_jobs, max_jobs_per_submitter, paused_until, note) VALUES
    ('quiet', NULL, NULL, 'infinity', $1), ('narrow', 0, NULL, NULL, $2), ('mine', NULL, 0, NULL, NULL)
"""
IN_POOL: Final = 6
CORES_OF_POOL: Final = 4
EXHAUSTED: Final = ("LaunchesExhausted", "LaunchesExhausted 1", "LaunchesExhausted 2")
NOT_AT_ONCE: Final[Mapping[HoldReason, str]] = {
    HoldReason.BACKOFF: "a launch is tried again after seconds",
    HoldReason.DISRUPTED_TOO_OFTEN: "a row has to lose twenty launches in a day",
    HoldReason.JOB_CHANGED: "a policy for the whole cluster has to change Jobs",
    HoldReason.DISPATCHER_NOT_READY: "no other row would be judged",
    HoldReason.FAILURES_EXHAUSTED: "the janitor ends such a row soon",
    HoldReason.JOB_CAP: "no row would wait for room or quota",
    HoldReason.PENDING_PODS: "the rule of a cluster whose room is not known",
    HoldReason.RATE_LIMITED: "it lasts a second",
    HoldReason.NEXT_CYCLE: "it lasts a cycle",
    HoldReason.IN_LINE: "it needs hundreds of rows",
    HoldReason.UNJUDGED: "the view task_explain alone tells it",
}
"""Reasons of which no row is in the world, and why."""


@dataclass
class World:
    """What the tests of the pages look at.

    rows: the id of a row by what it is: the reason it waits for, or what became of it.
    """

    place: Place
    dispatcher: Dispatcher
    player: Player
    rows: dict[str, int] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.dispatcher.api_port}"

    def address(self, name: str) -> str:
        """Of the page that is called so."""
        return self.origin + PAGES[name].format_map(self.rows)

    async def secrets(self) -> dict[str, str]:
        """Every value that must be shown nowhere, by what it is."""
        start_key = self.place.database.start_key
        keys = {f"start key of {name}": str(await start_key(id_)) for name, id_ in self.rows.items()}
        tokens = {f"run token in {run.pod}": str(run.started.run_token) for run in self.player.runs if run.started}
        token = (self.place.folder / "kubeconfig").read_text().rpartition("token: ")[2].split()[0]
        return {"a planted value": SECRET, "the login": LOGIN, "the token of the account": token, **keys, **tokens}


@asynccontextmanager
async def a_world(place: Place) -> AsyncIterator[World]:
    admin = await place.database.session("admin")
    await admin.execute(MAKE_LOGIN)
    await admin.execute(QUEUES, texts.ERROR, texts.UNBROKEN)
    url = url_with(place.database.admin_url, login=LOGIN)
    dispatcher = QuickDispatcher(
        place, DATABASE_URL=url, MAX_LAUNCHES=1, MAX_PENDING=1, START_DEADLINE_SECONDS=3600, PASS_ENV="PASSED_*"
    )
    player = Player(place.control_plane, place.namespace, place.database.url("task"), play)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(admin.execute, f"DROP OWNED BY {LOGIN}; DROP ROLE {LOGIN}")
        node = await stack.enter_async_context(unmanaged_node(place))
        await stack.enter_async_context(used_up_quota(place))
        await stack.enter_async_context(a_pool(place, 1, cpu=str(CORES_OF_POOL)))
        await stack.enter_async_context(player)
        await stack.enter_async_context(dispatcher)
        world = World(place, dispatcher, player)
        await fill(world, node)
        await stack.enter_async_context(Janitor(place, PARK_SECONDS=86400))
        yield world


@asynccontextmanager
async def used_up_quota(place: Place) -> AsyncIterator[None]:
    """A quota for Pods of a PriorityClass that is called like the namespace: there may be none."""
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    one = {"metadata": {"name": place.namespace}, "value": 0, "preemptionPolicy": "Never"}
    await place.control_plane.admin("POST", classes, one)
    selected = {"scopeName": "PriorityClass", "operator": "In", "values": [place.namespace]}
    await limit(place, {"pods": "0"}, {"matchExpressions": [selected]})
    yield
    await place.control_plane.admin("DELETE", f"{classes}/{place.namespace}")


async def fill(world: World, node: str) -> None:
    """Inserts the rows, and waits until each is what it is called."""
    await lose_one(world, node)
    make_templates(world.place)
    await ended(world)
    await parked(world)
    await under_way(world)
    await held_back(world)
    await told(world)


def asking(cpu: str) -> Json:
    return {"container": {"resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}}}


def make_templates(place: Place) -> None:
    template_with(place, "silent", SILENT)
    template_with(place, "crashing", CRASHES)
    template_with(place, "huge", HUGE)
    template_with(place, "torn", {"container": {"volumeMounts": [{"name": texts.ELEMENT, "mountPath": "/x"}]}})
    template_with(place, "refused", {"serviceAccountName": "nobody"})
    template_with(place, "core", asking("1") | {"nodeSelector": {POOL: place.namespace}})
    template_with(place, "greedy", {"priorityClassName": place.namespace})
    place.template("broken", steer={"start-error": texts.ELEMENT})
    place.template("slow", steer={"never-starts": "true"})
    place.template("nowhere", steer={"waiting": "ErrImagePull"})
    place.template("stubborn", steer={"stop-seconds": "86400"})
    (place.templates / "faulty.yaml").write_text(f"kind: {texts.ELEMENT}\n")


async def lose_one(world: World, node: str) -> None:
    pod = await lose(world.place, world.dispatcher, node)
    world.rows["NodeLost"] = int(pod["metadata"]["labels"]["dispatcher.internal/task-id"])


async def one(world: World, name: str, **columns: Any) -> int:
    """A new row with secrets of its own."""
    env = {"PASSWORD": SECRET, **columns.pop("env", {})}
    given = {"payload": {"secret": SECRET}, "cache_key": f"cache of {name}", "env": env, **columns}
    (world.rows[name],) = await insert(world.place, 1, **given)
    return world.rows[name]


async def ended(world: World) -> None:
    for name, says in (("failed", "say-html"), ("failed with 8 KiB", "say-unbroken")):
        await one(world, name, env={"SAY": says}, batch=texts.BATCH, labels=texts.LABELS)
    await one(world, "succeeded", batch=texts.BATCH)
    await one(world, "cancelled", batch="nightly", run_at=datetime.now(UTC) + timedelta(days=1))
    await one(world, "retried", batch="nightly")
    team = await world.place.database.session("team_a")
    await team.execute("SELECT dispatch.task_cancel($1, $2)", world.rows["cancelled"], texts.ERROR)
    ends = {"failed": "failed", "failed with 8 KiB": "failed", "succeeded": "succeeded", "retried": "succeeded"}
    for name, status in ends.items():
        await reaches(world.place, world.dispatcher, world.rows[name], status, 60)
    await team.execute("SELECT dispatch.task_retry($1)", world.rows["retried"])
    await reaches(world.place, world.dispatcher, world.rows["retried"], "succeeded", 60)


async def parked(world: World) -> None:
    """Rows that need a person."""
    await one(world, "UnknownTemplate", template="t" * 63, env={"E" * 255: "x"})
    await one(world, "InvalidTemplate", template="faulty")
    await one(world, "PolicyDenied", spec={"cpu": "20m"})
    await one(world, "Poison", template="torn")
    await one(world, "ExitedWithoutReport", template="silent")
    await one(world, "exhausted", template="crashing", max_failures=1)
    collision = await one(world, "NameCollision", run_at=datetime.now(UTC) + timedelta(days=1))
    await take_name(world.place, collision)
    admin = await world.place.database.session("admin")
    await admin.execute("UPDATE dispatch_private.tasks SET run_at = NULL WHERE id = $1", collision)
    for name in EXHAUSTED:
        await one(world, name, template="broken")


async def under_way(world: World) -> None:
    """Rows with a Job."""
    await one(world, "noted", env={"SAY": "say-note"}, labels=texts.LABELS, batch="nightly")
    await one(world, "running", env={"PLAY": "hang"}, batch="nightly", timeout_seconds=86400)
    await one(world, "Finishing", template="stubborn", env={"PLAY": "hang"})
    await one(world, "Launched", template="slow")
    await one(world, "Launched ImagePull", template="nowhere")
    await one(world, "refused Pod", template="refused")
    await one(world, "Launched Suspended", template="slow")
    for name in ("noted", "running", "Finishing"):
        await reaches(world.place, world.dispatcher, world.rows[name], "processing", 60)
    await wait_for(lambda: suspended(world), "a Job is suspended", 30, check=world.dispatcher.check)
    team = await world.place.database.session("team_a")
    await team.execute("SELECT dispatch.task_retry($1)", world.rows["Finishing"])


async def suspended(world: World) -> bool:
    try:
        await change(world.place, world.rows["Launched Suspended"], "jobs", {"spec": {"suspend": True}})
    except ValueError:  # no Job yet
        return False
    return True


async def held_back(world: World) -> None:
    """Rows without a Job that go on by themselves."""
    await one(world, "NotDue", run_at=datetime.now(UTC) + timedelta(hours=1))
    await one(world, "Paused", queue="quiet", batch=texts.BATCH, labels=texts.LABELS)
    await one(world, "QueueCap", queue="narrow")
    await one(world, "SubmitterCap", queue="mine")
    await one(world, "Launched Unschedulable", template="huge")
    await explained(world, "Launched Unschedulable")
    await one(world, "NeverFits", template="huge")
    for number in range(IN_POOL):
        name = "NoRoomNow" if number == IN_POOL - 1 else f"in the pool {number}"
        await one(world, name, template="core", env={"PLAY": "hang"})
    await explained(world, "NoRoomNow")
    await one(world, "QuotaExceeded", template="greedy")
    for name in EXHAUSTED:  # three known failures, and not fewer, stop the launches of a template
        await explained(world, name)
    world.place.template("broken", steer={"never-starts": "true"})
    await one(world, "Launched alone", template="broken")
    await explained(world, "Launched alone")
    await one(world, "TemplateFailing", template="broken")


async def told(world: World) -> None:
    for name in world.rows:
        if name.split(maxsplit=1)[0] in set(HoldReason):
            await explained(world, name)


async def explained(world: World, name: str) -> Json:
    """The explanation of the row, once it has the reason that it is called by."""
    reason = name.split(maxsplit=1)[0]

    last: Json = {}

    async def is_so() -> bool:
        nonlocal last
        _, last = await world.dispatcher.explain(world.rows[name])
        return bool(last.get("reason") == reason)

    try:
        await wait_for(is_so, f"{name} is told", 60, check=world.dispatcher.check)
    except TimeoutError as late:
        raise TimeoutError(f"{late}; it said {last}") from late
    return last


async def asked(world: World, path: str) -> tuple[int, dict[str, str], str]:
    """Status, headers and body. A client that asks too much is refused for a while, and asks again."""

    async def answer() -> tuple[int, dict[str, str], str] | None:
        async with aiohttp.ClientSession() as session, session.get(world.origin + path.format_map(world.rows)) as got:
            told = {name.lower(): value for name, value in got.headers.items()}
            return None if got.status == 429 else (got.status, told, await got.text())

    found = await wait_for(answer, f"an answer of {path}", 60, check=world.dispatcher.check)
    assert found is not None
    return found
