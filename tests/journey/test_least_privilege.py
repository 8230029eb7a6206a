"""Rights fit both ways: what a program asks of the API server is what `deploy/` grants to its account, verb for verb.

Read from the server's own audit log, so a right that nobody uses shows as well as one that is missing. Asking what one
may do (SelfSubjectAccessReview) is granted to everybody by Kubernetes itself, and is not counted.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tests.controlplane.audit import AuditEvent
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.waiting import wait_for
from tests.deployed import BASE, NAMESPACED, ONE_NAMESPACE, Right, granted
from tests.dispatching import Dispatcher, Place
from tests.journey.home import Home, moved_in
from tests.postgres import Database

STAGES = ("ResponseComplete", "ResponseStarted")  # a watch that goes on has only started
FOR_EVERYBODY = "authorization.k8s.io"


Life = Callable[[Home], AbstractAsyncContextManager[Dispatcher]]


def asked(home: Home, program: str) -> set[Right]:
    """Everything the account has asked of the API server so far, refused or not."""
    user = f"system:serviceaccount:{home.namespace}:{home.account(program)}"
    return {
        Right(ref.namespace or "cluster", ref.api_group, ref.resource, event.verb, name_asked(event))
        for stage in STAGES
        for event in home.place.control_plane.audit(user_prefix=user, stage=stage)
        if event.user == user and (ref := event.object_ref).resource and ref.api_group != FOR_EVERYBODY
    }


def name_asked(event: AuditEvent) -> str:
    """Where the right is limited by name: a create cannot be."""
    return event.object_ref.name if event.object_ref.resource == "leases" and event.verb != "create" else ""


@pytest.fixture
async def bare_place(
    control_plane: ControlPlane, nodes: list[str], namespace: str, database: Database, tmp_path: Path
) -> Place:
    """A place in which no rights were given to anybody yet."""
    return Place(control_plane, namespace, database, tmp_path)


def setting(home: Home, name: str) -> str | None:
    (settings,) = [one["data"] for one in home.objects if one["metadata"]["name"].startswith("dispatcher-settings-")]
    found: str | None = settings.get(f"DISPATCHER_{name}")
    return found


@asynccontextmanager
async def life_of_run(home: Home) -> AsyncIterator[Dispatcher]:
    """A row that succeeds and is swept, one whose Pod never starts, and one whose Job somebody deletes."""
    place = home.place
    place.template("stuck", steer={"waiting": "ImagePullBackOff"})
    settings = {"TOMBSTONE_SECONDS": 0, "START_DEADLINE_SECONDS": 10, "MAX_LAUNCHES": 1}
    dispatcher = await home.dispatcher(CHECK_ROOM=setting(home, "CHECK_ROOM"), **settings)
    async with place.playing(), dispatcher:
        await place.database.insert_task(template="stuck")
        await place.database.insert_task()
        lost = await place.database.insert_task(env={"PLAY": "hang"})

        async def has_started() -> bool:
            return bool((await place.database.task(lost))["status"] == "processing")

        await wait_for(has_started, "the row whose Job gets lost is started", 20, check=dispatcher.check)
        jobs = f"/apis/batch/v1/namespaces/{place.namespace}/jobs"
        which = {"labelSelector": f"dispatcher.internal/task-id={lost}", "propagationPolicy": "Background"}
        await place.control_plane.admin("DELETE", jobs, params=which)
        yield dispatcher


class Janitor(Dispatcher):
    """One process of `dispatcher janitor`."""

    async def start(self) -> None:
        with self._log.open("a") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.program, "janitor", cwd=self.folder, env=self._environment, stdout=log, stderr=log
            )


@asynccontextmanager
async def life_of_janitor(home: Home) -> AsyncIterator[Dispatcher]:
    """A row that nobody launches for so long that the janitor asks whether it can be launched at all."""
    place = home.place
    plane, token = place.control_plane, await home.token("dispatcher-janitor")
    plane.kubeconfig(place.folder / "kubeconfig", token=token, namespace=place.namespace)
    await place.database.insert_task()
    login = place.database.url("janitor")
    async with Janitor(place, DATABASE_URL=login, CHECK_ROOM=setting(home, "CHECK_ROOM"), PARK_SECONDS=1) as janitor:
        yield janitor
    user = f"system:serviceaccount:{home.namespace}:{home.account('dispatcher-janitor')}"
    creates = plane.audit(user_prefix=user, verb="create", resource="jobs")
    assert all("dryRun=All" in event.uri for event in creates), "RBAC cannot ask for that"
    assert not await place.jobs()


LIVES: dict[str, Life] = {"dispatcher": life_of_run, "dispatcher-janitor": life_of_janitor}


@pytest.mark.parametrize("account", LIVES)
@pytest.mark.parametrize("folder", [BASE, NAMESPACED, ONE_NAMESPACE], ids=lambda folder: folder.name)
async def test_program_uses_every_right_it_has_and_no_other(bare_place: Place, folder: Path, account: str) -> None:
    async with moved_in(bare_place, folder) as home:
        rights = granted(home.objects, home.account(account))
        async with LIVES[account](home) as program:

            async def all_used() -> bool:
                return rights <= asked(home, account)

            try:
                await wait_for(all_used, "every right is used", 45, check=program.check)
            except TimeoutError:
                unused = rights - asked(home, account)
                pytest.fail(f"granted and never used: {sorted(unused)}; its log: {program.log[-2000:]}")
        assert asked(home, account) == rights
