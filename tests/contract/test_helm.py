"""The chart by helm on the real API server: install, upgrade, uninstall, and what goes wrong on the way."""

import asyncio
import json
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from dispatcher.runtime.health import take_nobody_new
from tests.contract.helming import Helm
from tests.contract.in_force import IN_FORCE_SECONDS, is_refused_with
from tests.contract.installed import a_job
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.operator_kinds import operator_kinds
from tests.rig.deployed import rendered
from tests.rig.pages import INSTALL, find_block, read_page

# Holds new Deployments at the API server, so that a test can act while a client waits for the answer.

HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
CLOSED_PORT = 1


@asynccontextmanager
async def deployments_held(plane: ControlPlane, namespace: str) -> AsyncIterator[asyncio.Event]:
    """The event is set when the first new Deployment of the namespace is held. No held one is made.

    Each waits for a webhook that does not answer, for up to 30 seconds. The same configuration refuses LimitRanges by a
    webhook that is not there. A refused LimitRange shows that the configuration is in force.
    """
    held, taken = asyncio.Event(), list[asyncio.StreamWriter]()

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(writer)
        held.set()

    probe = partial(is_probe_refused, plane, namespace)
    listener = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        hooks = [
            hook(namespace, "apps", "deployments", listener.sockets[0].getsockname()[1]),
            hook(namespace, "", "limitranges", CLOSED_PORT),
        ]
        await plane.admin("POST", HOOKS, {"metadata": {"name": namespace}, "webhooks": hooks})
        await plane.wait_for(probe, "the webhooks are in force", IN_FORCE_SECONDS)
        yield held
    finally:
        await plane.remove(f"{HOOKS}/{namespace}")
        await take_nobody_new(listener)
        listener.close()
        for writer in taken:
            writer.transport.abort()

    async def are_gone() -> bool:
        return not await probe()

    await plane.wait_for(are_gone, "the webhooks are gone", IN_FORCE_SECONDS)


async def is_probe_refused(plane: ControlPlane, namespace: str) -> bool:
    body = {"metadata": {"name": "probe"}, "spec": {"limits": []}}
    return await is_refused_with(plane, f"/api/v1/namespaces/{namespace}/limitranges", body, "failed calling webhook")


def hook(namespace: str, group: str, resource: str, port: int) -> Json:
    """A webhook for new objects of this kind."""
    creates = {"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [resource]}
    return {
        "name": f"{resource}.test.internal",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/x"},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 30,
        "rules": [creates],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    }


TAKES = "--take-ownership"
KIND = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodereservations.dispatcher.internal"
HELD_SECONDS = 120


@pytest_asyncio.fixture(loop_scope="session")
async def jobs(control_plane: ControlPlane) -> str:
    """The namespace of Jobs."""
    return await control_plane.create_namespace()


@asynccontextmanager
async def a_release(plane: ControlPlane, folder: Path, namespace: str) -> AsyncIterator[Helm]:
    made = Helm(plane, folder, namespace)
    yield made
    await made("uninstall", "dispatcher", "--ignore-not-found")


@pytest_asyncio.fixture(loop_scope="session")
async def helm(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> AsyncIterator[Helm]:
    async with a_release(control_plane, tmp_path, namespace) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def shared_reservations(control_plane: ControlPlane) -> AsyncIterator[None]:
    """The kind and its cluster roles are there, without helm. They are there again afterwards, for other tests."""
    kind = rendered("everything", only="reservations")
    await control_plane.apply(kind, namespace="default")
    yield
    await control_plane.apply(kind, namespace="default")


async def installed(helm: Helm, variant: str = "default", **values: object) -> dict[str, Json]:
    """The objects of the release once it is installed, without what controllers write."""
    said = await helm.install(variant, **values)
    assert said.status == 0, said.err
    objects = await helm.objects()
    for one in objects.values():
        if one.pop("status", None) is not None:
            del one["metadata"]["resourceVersion"]
        one["metadata"].pop("managedFields", None)
        one["metadata"].pop("annotations", None)  # a controller counts the revisions of a Deployment
    return objects


@pytest.mark.slow
async def test_second_apply_changes_no_object(helm: Helm, jobs: str) -> None:
    first = await installed(helm, jobsNamespace=jobs)
    assert await installed(helm, jobsNamespace=jobs) == first


@pytest.mark.slow
@pytest.mark.usefixtures("shared_reservations")  # before helm: its end comes after helm's
async def test_everything_is_accepted_and_removed_but_for_the_kind_and_the_jobs(helm: Helm, jobs: str) -> None:
    plane = helm.plane
    await plane.apply(operator_kinds(), namespace="default")
    await plane.wait_for(lambda: helm.knows("PodMonitor", "PrometheusRule"), "the operator's kinds are served", 30)
    refused = await helm.install("everything", jobsNamespace=jobs)
    assert refused.status == 1
    assert "cannot be imported into the current release" in refused.err
    helm.options = (TAKES,)
    objects = await installed(helm, "everything", jobsNamespace=jobs)
    assert {one["kind"] for one in objects.values()} == {one["kind"] for one in rendered("everything")}
    await plane.admin("POST", f"/apis/batch/v1/namespaces/{jobs}/jobs", a_job())
    assert (await helm("uninstall", "dispatcher")).status == 0
    left = {path for path in objects if await plane.exists(path)}
    assert left == {KIND}
    assert await plane.exists(f"/apis/batch/v1/namespaces/{jobs}/jobs/of-a-task")
    helm.options = ()
    again = await installed(helm, "everything", jobsNamespace=jobs)
    assert again.keys() == objects.keys()


def test_page_names_the_option_that_takes_the_kind_over() -> None:
    assert f"`{TAKES}`" in read_page(INSTALL)


async def test_missing_namespace_of_jobs_is_named_before_anything_is_made(helm: Helm) -> None:
    said = await helm.install(jobsNamespace="nowhere-at-all")
    assert said.status == 1
    assert "namespace nowhere-at-all does not exist: kubectl create namespace nowhere-at-all" in said.err
    accounts = await helm.plane.admin("GET", f"/api/v1/namespaces/{helm.namespace}/serviceaccounts")
    assert {one["metadata"]["name"] for one in accounts["items"]} <= {"default"}


async def test_kube_scheduler_newer_than_the_api_server_is_named_before_the_install(helm: Helm, jobs: str) -> None:
    """It would wait for ever for kinds that the API server does not have, and Pods of ours for it."""
    image = "registry.example:5000/kube-scheduler:v1.99.0"
    said = await helm.install(jobsNamespace=jobs, scheduler={"enabled": True, "image": image})
    assert said.status == 1
    assert f"scheduler.image is {image}, and the API server is Kubernetes 1." in said.err
    accounts = await helm.plane.admin("GET", f"/api/v1/namespaces/{helm.namespace}/serviceaccounts")
    assert {one["metadata"]["name"] for one in accounts["items"]} <= {"default"}


async def test_second_installation_of_a_namespace_needs_a_login_of_its_own(helm: Helm, jobs: str) -> None:
    """With one database each would take the runs of the other for lost."""
    first = next(one for one in rendered(only="run", namespace=helm.namespace) if one["kind"] == "Deployment")
    first["spec"]["replicas"] = 0
    await helm.plane.apply((first,), namespace=helm.namespace)
    said = await helm.install(jobsNamespace=jobs, installation="blue")
    assert said.status == 1
    assert "installation dispatcher of this namespace has the login in the Secret dispatcher-database, too" in said.err
    secrets = {one: f"blue-{one.lower()}" for one in ("database", "janitorDatabase", "migrateDatabase", "taskDatabase")}
    assert (await helm.install(jobsNamespace=jobs, installation="blue", secrets=secrets)).status == 0


async def test_namespaced_installation_into_a_missing_namespace_is_removed_by_uninstall(helm: Helm) -> None:
    """The chart asks for no namespace here, because the installer may not read any."""
    said = await helm.install("namespaced", jobsNamespace="nowhere-at-all")
    assert said.status == 1
    assert 'namespaces "nowhere-at-all" not found' in said.err
    assert (await helm("uninstall", "dispatcher")).status == 0
    for path in ("/api/v1/namespaces/{}/serviceaccounts", "/apis/apps/v1/namespaces/{}/deployments"):
        found = await helm.plane.admin("GET", path.format(helm.namespace))
        assert {one["metadata"]["name"] for one in found["items"]} <= {"default"}


@pytest.mark.slow
async def test_migration_that_failed_is_made_again_by_the_commands_of_the_page(helm: Helm, jobs: str) -> None:
    before = await installed(helm, jobsNamespace=jobs)
    (path,) = [path for path in before if "migrate-" in path and "/jobs/" in path]
    block = find_block(INSTALL, "# needs a cluster\n# after a migration that failed")
    (delete, upgrade) = block.splitlines()[2:]
    done = await helm.kubectl(*shlex.split(delete.replace("-n dispatcher", f"-n {helm.namespace}"))[1:])
    assert (done.status, done.out.count("deleted")) == (0, 1), done
    assert not await helm.plane.exists(path)
    assert upgrade == "helm upgrade dispatcher deploy/chart -n dispatcher -f values.yaml"
    after = await installed(helm, jobsNamespace=jobs)
    assert after[path]["metadata"]["uid"] != before[path]["metadata"]["uid"]


@pytest.mark.slow
async def test_second_installation_of_one_name_is_refused_for_the_same_jobs(
    helm: Helm, control_plane: ControlPlane, tmp_path: Path, jobs: str
) -> None:
    """Both would take the same Jobs for theirs."""
    before = await installed(helm, jobsNamespace=jobs)
    other = await control_plane.create_namespace()
    (tmp_path / "other").mkdir()
    async with a_release(control_plane, tmp_path / "other", other) as second:
        said = await second.install(jobsNamespace=jobs)
        assert said.status == 1
        assert f'"dispatcher-jobs" in namespace "{jobs}" exists and cannot be imported' in said.err
        await installed(second, jobsNamespace=jobs, installation="another")
    assert await installed(helm, jobsNamespace=jobs) == before


async def kill_on_the_way(helm: Helm, jobs: str, path: str) -> None:
    """Kills helm while it makes a Deployment, after the object, and shows that helm then refuses to go on."""
    async with deployments_held(helm.plane, helm.namespace) as held:
        child = await helm.installing()
        assert child.stdin is not None
        moved = {"jobsNamespace": jobs, "installation": Path(path).name, "moveFrom": f"dispatcher/{jobs}"}
        child.stdin.write(json.dumps(moved).encode())
        child.stdin.close()
        await helm.plane.wait_for(
            lambda: held.is_set() or child.returncode is not None, "helm makes a Deployment", HELD_SECONDS
        )
        assert child.returncode is None, await child.communicate()
        assert await helm.plane.exists(path)
        child.kill()
        await child.wait()
    assert "another operation (install/upgrade/rollback) is in progress" in (await helm.install()).err


@pytest.mark.slow
async def test_killed_installation_is_uninstalled_and_made_again(helm: Helm, jobs: str) -> None:
    await kill_on_the_way(helm, jobs, f"/api/v1/namespaces/{helm.namespace}/serviceaccounts/dispatcher")
    assert (await helm("uninstall", "dispatcher")).status == 0
    assert len(await installed(helm, jobsNamespace=jobs)) == len(rendered())


@pytest.mark.slow
async def test_killed_upgrade_is_rolled_back_and_made_again(helm: Helm, jobs: str) -> None:
    before = await installed(helm, jobsNamespace=jobs)
    account = f"/api/v1/namespaces/{helm.namespace}/serviceaccounts/another"
    await kill_on_the_way(helm, jobs, account)
    said = await helm("rollback", "dispatcher")
    assert said.status == 0, said.err
    assert not await helm.plane.exists(account)
    assert await installed(helm, jobsNamespace=jobs) == before


@pytest.mark.slow
async def test_changed_setting_rolls_the_programs_out_and_leaves_the_rest(helm: Helm, jobs: str) -> None:
    before = await installed(helm, jobsNamespace=jobs)
    after = await installed(helm, jobsNamespace=jobs, settings={"MAX_JOBS": 7})
    changed = {(after[path]["kind"], after[path]["metadata"]["name"]) for path in after if after[path] != before[path]}
    assert changed == {
        ("ConfigMap", "dispatcher-settings"), ("Deployment", "dispatcher"), ("Deployment", "dispatcher-janitor"),
    }  # fmt: skip


@pytest.mark.slow
async def test_another_image_at_the_same_version_installs(helm: Helm, jobs: str) -> None:
    before = await installed(helm, jobsNamespace=jobs)
    after = await installed(helm, jobsNamespace=jobs, image={"repository": "other.example/dispatcher"})
    migrations = [[path for path in objects if "migrate-" in path] for objects in (before, after)]
    assert [len(paths) for paths in migrations] == [1, 1]
    assert migrations[0] != migrations[1]


@pytest.mark.slow
async def test_rollback_brings_the_settings_back(helm: Helm, jobs: str) -> None:
    before = await installed(helm, jobsNamespace=jobs)
    await installed(helm, jobsNamespace=jobs, settings={"MAX_JOBS": 7})
    said = await helm("rollback", "dispatcher", "1")
    assert said.status == 0, said.err
    path = f"/api/v1/namespaces/{helm.namespace}/configmaps/dispatcher-settings"
    assert (await helm.plane.admin("GET", path))["data"] == before[path]["data"]


@pytest.mark.slow
async def test_notes_name_secrets_alerts_of_kept_jobs_and_caches_without_a_keeper(helm: Helm, jobs: str) -> None:
    said = await helm.install(jobsNamespace=jobs, settings={"CACHE_ROOT": "/caches"}, cacheKeeper={"enabled": False})
    assert "Nobody removes cache directories below /caches" in said.out
    for name in ("dispatcher-database", "dispatcher-janitor-database", "dispatcher-migrate-database"):
        assert f"  {name} with the key url, in namespace {helm.namespace}" in said.out.splitlines()
    assert f"  task-database with the key TASK_DATABASE_URL, in namespace {jobs}" in said.out.splitlines()
    assert "KubeJobFailed" in said.out
    assert f'namespace="{jobs}"' in said.out
    said = await helm.install(jobsNamespace=jobs, migrate={"enabled": False}, queues=[{"name": "reports"}])
    assert "Nobody inserts the queues of the values" in said.out


@pytest.mark.promise
async def test_upgrade_that_would_leave_jobs_behind_is_refused_until_it_is_confirmed(helm: Helm, jobs: str) -> None:
    """helm forgets an earlier --set. No program sees the Jobs of another namespace, so rows would run twice."""
    await installed(helm, jobsNamespace=jobs, image={"repository": "other.example/dispatcher"})
    there = f"dispatcher/{jobs}"
    image = {"repository": "other.example/dispatcher"}
    for moved in ({"jobsNamespace": helm.namespace}, {"jobsNamespace": jobs, "installation": "another"}):
        for confirmed in ("", "dispatcher/elsewhere"):
            said = await helm.install(**moved, image=image, moveFrom=confirmed)
            assert said.status == 1
            assert f"--set installation=dispatcher,jobsNamespace={jobs}" in said.err
            assert f"--set moveFrom={there}" in said.err
    said = await helm.install(jobsNamespace=jobs)
    assert "image.repository is registry.example/dispatcher, the placeholder of the chart" in said.err
    await installed(helm, jobsNamespace=helm.namespace, image=image, moveFrom=there)
    again = await helm.install(jobsNamespace=jobs, image=image, moveFrom=there)
    assert f"--set moveFrom=dispatcher/{helm.namespace}" in again.err, "what confirmed one move confirms no other"


async def test_installation_beside_what_an_earlier_one_has_told_is_a_move(helm: Helm, jobs: str) -> None:
    """`helm uninstall` leaves the Jobs, and what the leader told last."""
    told = {"metadata": {"name": "dispatcher-status"}, "data": {"status.json": f'{{"jobs_namespace": "{jobs}"}}'}}
    await helm.plane.admin("POST", f"/api/v1/namespaces/{helm.namespace}/configmaps", told)
    said = await helm.install(jobsNamespace=helm.namespace)
    assert (said.status, f"--set moveFrom=dispatcher/{jobs}" in said.err) == (1, True)
    await installed(helm, jobsNamespace=jobs)
