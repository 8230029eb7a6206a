"""The policy when its lists change, when it is installed again, in one namespace, and in an overlay without it."""

import os
from pathlib import Path

import pytest
import yaml

from tests.contract.installed import Site, installed
from tests.contract.policy_cases import OTHER_SECRET, STOLEN, volume
from tests.controlplane.api import Json, KubeFault
from tests.controlplane.cluster import ControlPlane
from tests.deployed import BASE, NAMESPACED, ONE_NAMESPACE, POLICY_KINDS, moved

DRY_RUN = {"dryRun": "All"}


def thief(site: Site) -> Json:
    """A Job that mounts the login of the schema's owner."""
    job = site.job()
    job["spec"]["template"]["spec"] |= volume(secret={"secretName": STOLEN})
    return job


async def is_accepted(site: Site, job: Json) -> bool:
    try:
        await site.sends(site.dispatcher, job, **DRY_RUN)
    except KubeFault:
        return False
    return True


async def test_policy_that_is_installed_again_judges_by_its_new_lists(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """An API server that read lists from a ConfigMap (`paramKind`) would refuse everything the second time."""
    places = namespace, await control_plane.create_namespace()
    policy = [one for one in moved(tmp_path, BASE, places) if one["kind"] in POLICY_KINDS]
    rest = [one for one in moved(tmp_path, BASE, places) if one["kind"] not in POLICY_KINDS]
    again = moved(tmp_path, BASE, places, lists={"secrets": f"task-database, {STOLEN}"})
    async with installed(control_plane, namespace, rest) as there:
        site = Site(there, again)
        async with installed(control_plane, namespace, policy):
            await site.is_guarded()
            with pytest.raises(KubeFault, match=OTHER_SECRET):
                await site.sends(site.dispatcher, thief(site), **DRY_RUN)

        async def is_gone() -> bool:
            return await is_accepted(site, thief(site))

        await control_plane.wait_for(is_gone, "the policy is gone")
        async with installed(control_plane, namespace, [one for one in again if one["kind"] in POLICY_KINDS]):
            await site.is_guarded()
            await site.sends(site.dispatcher, thief(site), **DRY_RUN)


async def test_list_is_extended_without_a_rollout(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    places = namespace, await control_plane.create_namespace()
    objects = moved(tmp_path, BASE, places)
    async with installed(control_plane, namespace, objects) as there:
        site = Site(there, objects)
        await site.is_guarded()
        assert not await is_accepted(site, thief(site))
        opened = moved(tmp_path, BASE, places, lists={"secrets": f"task-database,{STOLEN}"})
        assert [one for one in opened if one not in objects] == [
            one for one in opened if one["kind"] == POLICY_KINDS[0]
        ]
        await control_plane.apply([one for one in opened if one["kind"] in POLICY_KINDS], namespace=namespace)

        async def is_open() -> bool:
            return await is_accepted(site, thief(site))

        await control_plane.wait_for(is_open, "the Secret is listed")
        await control_plane.apply(
            [one for one in moved(tmp_path, BASE, places, lists={"secrets": ""}) if one["kind"] in POLICY_KINDS],
            namespace=namespace,
        )

        async def is_closed() -> bool:
            return not await is_accepted(site, site.job())

        await control_plane.wait_for(is_closed, "an empty list opens nothing")


async def test_policy_in_one_namespace_protects_our_logins_from_tasks(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    objects = moved(tmp_path, ONE_NAMESPACE, (namespace, namespace))
    async with installed(control_plane, namespace, objects) as there:
        site = Site(there, objects)
        await site.is_guarded()
        with pytest.raises(KubeFault, match=OTHER_SECRET):
            await site.sends(site.dispatcher, thief(site))
        await site.sends(site.dispatcher, site.job(), **DRY_RUN)


async def test_namespaced_overlay_bounds_jobs_only_by_their_namespace(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """As the overlay says of itself."""
    objects = moved(tmp_path, NAMESPACED, (namespace, await control_plane.create_namespace()))
    async with installed(control_plane, namespace, objects) as there:
        site = Site(there, objects)
        for account in (site.dispatcher, site.janitor):
            await site.sends(account, thief(site), **DRY_RUN)
        with pytest.raises(KubeFault, match="cannot create resource"):
            await site.sends(site.dispatcher, thief(site) | {"metadata": {"name": "x"}}, namespace)


@pytest.mark.parametrize("folder", [NAMESPACED, ONE_NAMESPACE], ids=lambda folder: folder.name)
def test_overlay_with_less_protection_says_so_at_its_head(folder: Path) -> None:
    text = (folder / "kustomization.yaml").read_text()
    head = text[: text.index("apiVersion")]
    assert "policy" in head
    assert "Secret" in head
    assert os.path.relpath(BASE, folder) in yaml.safe_load(text)["resources"]
