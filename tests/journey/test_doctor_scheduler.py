"""`dispatcher doctor` with the chart's scheduler and a Prometheus, and as a command that people read.

kwok plays the Pods of the scheduler, so nobody forwards a port to them.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from dispatcher.doctor.finding import FindingState
from dispatcher.doctor.program import DoctorEnvironment, DoctorReport
from tests.contract.installed import installed
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.prometheus.exporter import Container, Exporter
from tests.prometheus.server import PrometheusServer, Target
from tests.rig.deployed import rendered
from tests.rig.dispatching import ROOT
from tests.rig.doctoring import SECRET_VALUE, Site, an_installation
from tests.rig.postgres import Database
from tests.scheduling.own_extender import OwnExtender

NAME = "dispatcher-scheduler"
ADDRESS = "127.77.3.9"
"""Address of the extender in place of its Pod. The port is fixed, so no other test may use this address."""
EVIL = "x\n  FAULT DatabaseAway: all is lost\x1b[31m'; touch evil; '"
Settings = dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(
    control_plane: ControlPlane, nodes: list[str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("doctor")
    async with an_installation(control_plane, folder) as made:
        parts = [one for only in ("scheduler-rbac", "scheduler") for one in rendered("everything", made.ours, only)]
        objects = [one_replica(one) for one in parts]
        async with installed(control_plane, made.ours, objects):
            yield made


def one_replica(one: Json) -> Json:
    return one | {"spec": one["spec"] | {"replicas": 1}} if one["kind"] == "Deployment" else one


@pytest.fixture
def settings(site: Site, one_database: Database) -> Settings:
    return site.environment(one_database.url("reader"), SCHEDULER_NAME=NAME)


async def scheduler_pod(site: Site) -> Json:
    """The Pod, once it is ready."""

    async def ready() -> Json | None:
        found = (await site.plane.admin("GET", f"/api/v1/namespaces/{site.ours}/pods"))["items"]
        return next((pod for pod in found if any(is_ready(one) for one in pod["status"].get("conditions", ()))), None)

    found = await site.plane.wait_for(ready, "the scheduler's Pod is ready", 30)
    assert found is not None
    return found


def is_ready(condition: Json) -> bool:
    return bool((condition["type"], condition["status"]) == ("Ready", "True"))


async def test_healthy_scheduler_and_prometheus_have_no_fault(
    site: Site, settings: Settings, prometheus: PrometheusServer, exporter: Exporter
) -> None:
    await scheduler_pod(site)
    exporter.start(one := Container(site.jobs, "any", "task"))
    with_prometheus = settings | {"DISPATCHER_PROMETHEUS_URL": prometheus.url}

    async def is_healthy() -> bool:
        return await site.faults(with_prometheus) == {}

    await site.plane.wait_for(is_healthy, "the doctor finds no fault", 30)
    found = await site.findings(with_prometheus)
    unread = {one.what for one in found if one.state is FindingState.NOT_CHECKED}
    assert unread == {"JobControllerSlow", "ExtenderMisused"}
    exporter.stop(one)


@pytest.mark.slow  # with Prometheus
async def test_prometheus_without_metrics_of_containers_is_named(
    site: Site, settings: Settings, control_plane: ControlPlane
) -> None:
    async with PrometheusServer(Target("127.0.0.1:1")) as empty:
        found = await site.names(settings | {"DISPATCHER_PROMETHEUS_URL": empty.url}, "MetricUnknown")
        assert "container_memory_working_set_bytes" in found.message


async def test_extender_that_does_not_answer_is_named(site: Site, settings: Settings) -> None:
    pod = await scheduler_pod(site)
    path = f"/api/v1/namespaces/{site.ours}/pods/{pod['metadata']['name']}/status"
    before = pod["status"]["containerStatuses"]
    away = [one | {"ready": one["name"] != "extender"} for one in before]
    await site.plane.admin("PATCH", path, {"status": {"containerStatuses": away}})
    try:
        found = await site.names(settings, "ExtenderNotAnswering")
        assert found.mend.startswith(f"kubectl -n {site.ours} logs {pod['metadata']['name']} -c extender")
    finally:
        await site.plane.admin("PATCH", path, {"status": {"containerStatuses": before}})


@pytest.mark.slow
async def test_extender_that_two_schedulers_call_is_named(site: Site, settings: Settings) -> None:
    """A real extender counts its callers. The doctor asks it as from inside the cluster, at the address of its Pod."""
    pod = await scheduler_pod(site)
    path = f"/api/v1/namespaces/{site.ours}/pods/{pod['metadata']['name']}/status"
    before = {key: pod["status"][key] for key in ("podIP", "podIPs")}
    here = {"podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}]}
    async with OwnExtender(site.folder / "kubeconfig", LISTEN_ADDRESS=f"{ADDRESS}:8080") as extender:
        await site.plane.admin("PATCH", path, {"status": here})
        try:
            assert await in_its_pod(site, settings) == {}
            await call_in_turn(extender)
            found = await in_its_pod(site, settings)
        finally:
            await site.plane.admin("PATCH", path, {"status": before})
    assert list(found) == ["ExtenderMisused"]
    assert found["ExtenderMisused"].startswith("two-callers: two schedulers ask in turn")


async def in_its_pod(site: Site, settings: Settings) -> dict[str, str]:
    """The faults that the doctor finds in a Pod of `run`, once it has reached the extender."""
    faults = dict[str, str]()

    async def is_reached() -> bool:
        nonlocal faults
        found = await site.findings(settings, DoctorEnvironment(log_in=site.own_login))
        faults = {one.what: one.message for one in found if one.state is FindingState.FAULT}
        return all(one.state is not FindingState.NOT_CHECKED for one in found if one.what == "ExtenderMisused")

    await site.plane.wait_for(is_reached, "the extender answers", 60)
    return faults


async def call_in_turn(extender: OwnExtender) -> None:
    """Two schedulers ask for the nodes of a Pod, each over a connection of its own."""
    pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    body = {"Pod": pod, "Nodes": None, "NodeNames": ["one", "two"]}
    async with aiohttp.ClientSession() as first, aiohttp.ClientSession() as second:
        for session in (first, second) * 5:
            async with session.post(f"{extender.url}/filter", json=body) as answer:
                assert answer.status == 200, await answer.text()
                await answer.read()


async def test_scheduler_of_another_installation_in_the_namespace_is_not_judged(site: Site, settings: Settings) -> None:
    """Its extender does not answer, which is a fault of the other installation."""
    labels = {"app.kubernetes.io/name": "dispatcher", "app.kubernetes.io/component": "scheduler"}
    pod = {
        "metadata": {"name": "of-another", "labels": labels | {"app.kubernetes.io/instance": "night"}},
        "spec": {"containers": [{"name": "extender", "image": "registry.example/extender:1"}]},
    }
    pods = f"/api/v1/namespaces/{site.ours}/pods"
    await site.plane.admin("POST", pods, pod)
    try:
        await scheduler_pod(site)
        away = {"containerStatuses": [status_of("extender", is_ready=False)]}
        await site.plane.admin("PATCH", f"{pods}/of-another/status", {"status": away})
        assert await site.faults(settings) == {}
    finally:
        await site.plane.admin("DELETE", f"{pods}/of-another")


def status_of(container: str, *, is_ready: bool) -> Json:
    image = {"image": "registry.example/extender:1", "imageID": ""}
    return {"name": container, "ready": is_ready, "restartCount": 0, **image}


async def test_scheduler_without_the_extender_is_named(site: Site, settings: Settings) -> None:
    pod = await scheduler_pod(site)
    (name,) = [one["configMap"]["name"] for one in pod["spec"]["volumes"] if "configMap" in one]
    path = f"/api/v1/namespaces/{site.ours}/configmaps/{name}"
    before = (await site.plane.admin("GET", path))["data"]["scheduler.yaml"]
    alone = before.partition("extenders:")[0]
    await site.plane.admin("PATCH", path, {"data": {"scheduler.yaml": alone}})
    try:
        found = await site.names(settings, "ExtenderNotConfigured")
        assert "no extender has filterVerb" in found.message
    finally:
        await site.plane.admin("PATCH", path, {"data": {"scheduler.yaml": before}})


async def test_scheduler_that_is_absent_is_named(site: Site, settings: Settings) -> None:
    path = f"/apis/apps/v1/namespaces/{site.ours}/deployments/{NAME}"
    await site.plane.admin("PATCH", path, {"spec": {"replicas": 0}})
    try:
        found = await site.names(settings, "SchedulerAbsent")
        assert found.where == f"scheduler {NAME}"
    finally:
        await site.plane.admin("PATCH", path, {"spec": {"replicas": 1}})
        await scheduler_pod(site)


async def command(environment: Settings, *arguments: str) -> tuple[int, str]:
    """`dispatcher doctor` as people run it: exit status and all output."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dispatcher", "doctor", *arguments, cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "DISPATCHER_LOG_LEVEL": "error", **environment},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said = (await child.communicate())[0].decode()
    assert child.returncode is not None
    return child.returncode, said


@pytest.mark.slow
async def test_command_ends_with_0_in_health_and_shows_no_secret(site: Site, settings: Settings) -> None:
    quiet = {name: value for name, value in settings.items() if "SCHEDULER" not in name}
    status, said = await command(quiet)
    assert status == 0, said
    assert said.startswith("settings: 1 good\n")
    assert "FAULT" not in said
    status, shown = await command(quiet, "--json")
    report = msgspec.json.decode(shown, type=DoctorReport)
    assert (status, report.faults, report.installation) == (0, 0, "dispatcher")
    for hidden in (SECRET_VALUE, "a-password", "reader:reader"):
        assert hidden not in said + shown


@pytest.mark.slow
async def test_words_of_others_stay_on_their_line_and_out_of_the_shell(
    site: Site, settings: Settings, database: Database, tmp_path: Path
) -> None:
    """A function with an odd name is a fault, twice. No command holds a name that psql would not get as it is."""
    admin = await database.session("admin")
    await admin.execute(
        f'CREATE FUNCTION dispatch."{EVIL}"() RETURNS int SECURITY DEFINER LANGUAGE sql AS $$SELECT 1$$'
    )
    await admin.execute(f'REVOKE ALL ON FUNCTION dispatch."{EVIL}"() FROM PUBLIC')
    await admin.execute(f'GRANT EXECUTE ON FUNCTION dispatch."{EVIL}"() TO reader')
    own = settings | {"DISPATCHER_DATABASE_URL": database.url("reader")}
    status, said = await command(own)
    faults = [line for line in said.split("\n") if line.startswith("  FAULT")]
    assert (status, len(faults)) == (1, 2), said
    assert "\x1b" not in said
    mends = [line.removeprefix("    mend: ") for line in said.splitlines() if line.startswith("    mend: psql")]
    for mend in mends:
        assert "touch evil" not in arguments_of(mend, tmp_path)
    assert not is_there(tmp_path / "evil")


def arguments_of(command_line: str, folder: Path) -> str:
    """The arguments that psql gets if a shell runs this line. The psql is a script of the test."""
    psql = folder / "psql"
    psql.write_text('#!/bin/sh\nfor one; do echo "$one"; done\n')
    psql.chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", command_line], cwd=folder, env={"PATH": path}, capture_output=True, text=True, check=True
    )
    return done.stdout


def is_there(path: Path) -> bool:
    return path.exists()


@pytest.mark.slow
async def test_env_of_a_template_is_not_shown(site: Site, settings: Settings) -> None:
    env = [{"name": "KEY", "value": "a-value-that-nobody-may-see"}]
    path = site.template("odd", **site.container(env=env, imagePullPolicy="Sometimes"))
    try:
        status, said = await command(settings, "--json")
    finally:
        path.unlink()
    assert status == 1
    assert "JobRefused" in said
    assert "nobody-may-see" not in said


async def test_command_ends_with_2_for_a_faulty_setting(site: Site, settings: Settings) -> None:
    status, said = await command(settings | {"DISPATCHER_MAX_JOBS": "many"})
    assert status == 2
    assert "DISPATCHER_MAX_JOBS" in said
