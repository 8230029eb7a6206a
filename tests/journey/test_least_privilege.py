"""The requests of a program are exactly the rights that `deploy/` grants to its account, verb for verb.

The requests come from the audit log of the API server, so unused rights show as well as missing ones. Kubernetes itself
grants SelfSubjectAccessReview to every account; it is not counted.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tests.controlplane.audit import AuditEvent
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.waiting import wait_for
from tests.journey.installation import Installation, install
from tests.rig.deployed import Right, granted
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.in_pod import write_account
from tests.rig.janitoring import delete_jobs
from tests.rig.postgres import Database
from tests.rig.rows import insert_unjudged
from tests.rig.steps import core_path, reaches, template_with

STAGES = ("ResponseComplete", "ResponseStarted")  # a watch that goes on has only started
FOR_EVERYBODY = "authorization.k8s.io"


Life = Callable[[Installation], AbstractAsyncContextManager[Dispatcher]]


def asked(installation: Installation, program: str) -> set[Right]:
    """All requests of the account so far, refused ones included."""
    user = f"system:serviceaccount:{installation.namespace}:{program}"
    return {
        Right(ref.namespace or "cluster", ref.api_group, ref.resource, event.verb, name_asked(event))
        for stage in STAGES
        for event in installation.place.control_plane.audit(user_prefix=user, stage=stage)
        if event.user == user and (ref := event.object_ref).resource and ref.api_group != FOR_EVERYBODY
    }


BY_NAME = {"leases", "configmaps"}


def name_asked(event: AuditEvent) -> str:
    """The object's name where the right is limited by name. RBAC cannot limit a create by name."""
    return event.object_ref.name if event.object_ref.resource in BY_NAME and event.verb != "create" else ""


@pytest.fixture
async def bare_place(
    control_plane: ControlPlane, nodes: list[str], namespace: str, database: Database, tmp_path: Path
) -> Place:
    """A place without any rights yet."""
    return Place(control_plane, namespace, database, tmp_path)


def setting(installation: Installation, name: str) -> str | None:
    (settings,) = [
        one["data"] for one in installation.objects if one["metadata"]["name"].startswith("dispatcher-settings")
    ]
    found: str | None = settings.get(f"DISPATCHER_{name}")
    return found


@asynccontextmanager
async def life_of_run(installation: Installation) -> AsyncIterator[Dispatcher]:
    """A dispatcher with four rows.

    One succeeds and is swept. The Pod of one never starts, that of another is refused. The test deletes the Job of one.
    """
    place = installation.place
    place.template("stuck", steer={"waiting": "ImagePullBackOff"})
    template_with(place, "refused", {"container": {"resources": {"requests": {"cpu": "9"}, "limits": {"cpu": "9"}}}})
    most = {"limits": [{"type": "Container", "max": {"cpu": "8"}}]}
    await place.control_plane.admin("POST", core_path(place, "limitranges"), {"metadata": {"name": "m"}, "spec": most})
    settings = {"TOMBSTONE_SECONDS": 0, "START_DEADLINE_SECONDS": 10, "MAX_LAUNCHES": 1}
    dispatcher = await installation.dispatcher(CHECK_ROOM=setting(installation, "CHECK_ROOM"), **settings)
    dispatcher.arguments = ("quick",)
    async with place.playing(), dispatcher:
        for template in ("stuck", "refused"):
            await insert_unjudged(place.database, template=template)
        await place.database.insert_task()
        lost = await place.database.insert_task(env={"PLAY": "hang"})
        await reaches(place, dispatcher, lost, "processing")
        await delete_jobs(place, lost)
        yield dispatcher


@asynccontextmanager
async def life_of_janitor(installation: Installation) -> AsyncIterator[Dispatcher]:
    """A janitor and a row that nobody launches. After PARK_SECONDS the janitor asks by dry run whether it could run."""
    place = installation.place
    plane, token = place.control_plane, await installation.token("dispatcher-janitor")
    pod = write_account(place.folder / "janitor-account", plane, token=token, namespace=installation.namespace)
    await place.database.insert_task()
    login = place.database.url("janitor")
    janitor = Dispatcher(place, DATABASE_URL=login, CHECK_ROOM=setting(installation, "CHECK_ROOM"), PARK_SECONDS=1)
    janitor.move_into_a_pod(pod)
    janitor.arguments = ("janitor",)
    async with janitor:
        yield janitor
    user = f"system:serviceaccount:{installation.namespace}:{'dispatcher-janitor'}"
    creates = plane.audit(user_prefix=user, verb="create", resource="jobs")
    assert all("dryRun=All" in event.uri for event in creates), "RBAC cannot demand a dry run"
    assert not await place.jobs()


OF_OTHERS = {"kueue.x-k8s.io"}
"""Groups of kinds that this cluster does not have (tests/kueue uses them)."""
LIVES: dict[str, Life] = {"dispatcher-janitor": life_of_janitor, "dispatcher": life_of_run}
"""The janitor comes first: in its life there is no Job."""


@pytest.mark.promise
@pytest.mark.parametrize(
    "variant", ["default", *(pytest.param(one, marks=pytest.mark.slow) for one in ("namespaced", "one-namespace"))]
)
async def test_each_program_uses_every_right_it_has_and_no_other(bare_place: Place, variant: str) -> None:
    async with install(bare_place, variant) as installation:
        for account in LIVES:
            await check_rights(installation, account)


async def check_rights(installation: Installation, account: str) -> None:
    rights = {one for one in granted(installation.objects, account) if one.group not in OF_OTHERS}
    async with LIVES[account](installation) as program:
        try:
            used = "every right is used"
            await wait_for(lambda: rights <= asked(installation, account), used, 45, check=program.check)
        except TimeoutError:
            unused = rights - asked(installation, account)
            pytest.fail(f"granted and never used: {sorted(unused)}; its log: {program.log[-2000:]}")
    assert asked(installation, account) == rights, account
