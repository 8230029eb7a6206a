"""`dispatcher doctor` on a real control plane: cache keepers that do not work, and disks that stay full."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from dispatcher.doctor.checks import Part
from dispatcher.doctor.finding import FindingState
from dispatcher.doctor.program import DoctorEnvironment
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.player import STEER
from tests.rig.deployed import rendered
from tests.rig.doctoring import Site, an_installation, now
from tests.rig.postgres import Database

CACHES = {"CACHE_ROOT": "/caches"}
NAME = "dispatcher-cache-keeper"
EVENTS = "/api/v1/namespaces/default/events"
Settings = dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(
    control_plane: ControlPlane, nodes: list[str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    async with an_installation(control_plane, tmp_path_factory.mktemp("doctor"), settings=CACHES) as made:
        yield made


@pytest.fixture
def settings(site: Site, one_database: Database) -> Settings:
    return site.environment(one_database.url("reader"), CACHE_ROOT="/caches")


def daemon_set(site: Site, **annotations: str) -> Json:
    (one,) = [
        one for one in rendered(namespace=site.ours, settings=CACHES, only="cache-keeper") if one["kind"] == "DaemonSet"
    ]
    one["spec"]["template"]["metadata"]["annotations"] |= annotations
    return one


def event(node: str, at: str, reason: str = "CacheDiskFull") -> Json:
    about = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node}
    return {
        "metadata": {"generateName": "full.", "namespace": "default"}, "involvedObject": about, "type": "Warning",
        "reason": reason, "message": f"The disk of {node} is full", "lastTimestamp": at,
    }  # fmt: skip


@pytest.mark.slow
async def test_installation_without_keepers_is_a_warning(site: Site, settings: Settings) -> None:
    found = {one.what: one for one in await site.findings(settings) if one.part is Part.CACHES}
    assert {what: one.state for what, one in found.items()} == {
        "CacheKeeperAbsent": FindingState.WARNING, "CacheDiskFull": FindingState.GOOD,
    }  # fmt: skip
    assert "nobody removes cache directories" in found["CacheKeeperAbsent"].message


async def test_person_without_rights_hears_what_was_not_checked(site: Site, settings: Settings) -> None:
    found = await site.findings(settings, DoctorEnvironment(log_in=site.own_login))
    unread = {one.what for one in found if one.part is Part.CACHES and one.state is FindingState.NOT_CHECKED}
    assert unread == {"CacheKeeperAbsent", "CacheDiskFull"}


async def test_cache_keeper_that_is_not_ready_is_named(site: Site, settings: Settings) -> None:
    path = f"/apis/apps/v1/namespaces/{site.ours}/daemonsets"
    await site.plane.admin("POST", path, daemon_set(site, **{f"{STEER}/never-starts": "true"}))
    try:
        found = await site.names(settings, "CacheKeeperAbsent")
        assert found.message.startswith("0 of ")
        assert found.mend.startswith(f"kubectl -n {site.ours} describe daemonset {NAME}")
    finally:
        await site.plane.admin("DELETE", f"{path}/{NAME}")


async def test_disk_that_stays_full_is_named(site: Site, settings: Settings) -> None:
    long_ago = now().replace(year=2020)
    made = [
        await site.plane.admin("POST", EVENTS, event("old", long_ago.strftime("%Y-%m-%dT%H:%M:%SZ"))),
        await site.plane.admin("POST", EVENTS, event("other", now().strftime("%Y-%m-%dT%H:%M:%SZ"), "Rebooted")),
        await site.plane.admin("POST", EVENTS, event("node-7", now().strftime("%Y-%m-%dT%H:%M:%SZ"))),
    ]
    try:
        found = await site.names(settings, "CacheDiskFull")
        assert (found.where, found.message) == ("node node-7", "The disk of node-7 is full")
    finally:
        for one in made:
            await site.plane.admin("DELETE", f"{EVENTS}/{one['metadata']['name']}")
