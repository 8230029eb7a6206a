"""The policy when its lists change, when it is installed again, in one namespace, and in an installation without it."""

import pytest

from tests.contract.installed import Site, installed
from tests.contract.policy_cases import OTHER_SECRET, STOLEN, volume
from tests.controlplane.api import Json, KubeFault
from tests.controlplane.cluster import ControlPlane
from tests.rig.deployed import POLICY_KINDS, RENDERED, rendered

DRY_RUN = {"dryRun": "All"}


def thief(site: Site) -> Json:
    """A Job that mounts the login of the schema's owner."""
    job = site.job()
    job["spec"]["template"]["spec"] |= volume(secret={"secretName": STOLEN})
    return job


def of_lists(places: tuple[str, str], **lists: list[str]) -> tuple[Json, ...]:
    """An installation in two namespaces whose policy has these lists."""
    ours, jobs = places
    return rendered(namespace=ours, jobsNamespace=jobs, policy=lists)


async def is_accepted(site: Site, job: Json) -> bool:
    try:
        await site.sends(site.dispatcher, job, **DRY_RUN)
    except KubeFault:
        return False
    return True


@pytest.mark.slow
async def test_policy_that_is_installed_again_judges_by_its_new_lists(
    control_plane: ControlPlane, namespace: str
) -> None:
    """An API server that read lists from a ConfigMap (`paramKind`) would refuse everything the second time."""
    places = namespace, await control_plane.create_namespace()
    policy = [one for one in of_lists(places) if one["kind"] in POLICY_KINDS]
    rest = [one for one in of_lists(places) if one["kind"] not in POLICY_KINDS]
    again = of_lists(places, secrets=[STOLEN])
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


@pytest.mark.slow
async def test_list_is_extended_without_a_rollout(control_plane: ControlPlane, namespace: str) -> None:
    places = namespace, await control_plane.create_namespace()
    objects = of_lists(places)
    async with installed(control_plane, namespace, objects) as there:
        site = Site(there, objects)
        await site.is_guarded()
        assert not await is_accepted(site, thief(site))
        opened = of_lists(places, secrets=[STOLEN])
        assert [one for one in opened if one not in objects] == [
            one for one in opened if one["kind"] == POLICY_KINDS[0] and "-words." not in one["metadata"]["name"]
        ]
        await control_plane.apply([one for one in opened if one["kind"] in POLICY_KINDS], namespace=namespace)

        async def is_open() -> bool:
            return await is_accepted(site, thief(site))

        await control_plane.wait_for(is_open, "the Secret is listed")
        await control_plane.apply(
            [one for one in of_lists(places, serviceAccounts=[]) if one["kind"] in POLICY_KINDS],
            namespace=namespace,
        )

        async def is_closed() -> bool:
            return not await is_accepted(site, site.job())

        await control_plane.wait_for(is_closed, "an empty list opens nothing")


async def test_policy_in_one_namespace_protects_our_logins_from_tasks(
    control_plane: ControlPlane, namespace: str
) -> None:
    objects = rendered("one-namespace", namespace)
    async with installed(control_plane, namespace, objects) as there:
        site = Site(there, objects)
        await site.is_guarded()
        with pytest.raises(KubeFault, match=OTHER_SECRET):
            await site.sends(site.dispatcher, thief(site))
        await site.sends(site.dispatcher, site.job(), **DRY_RUN)


async def test_namespaced_installation_bounds_jobs_only_by_their_namespace(
    control_plane: ControlPlane, namespace: str
) -> None:
    """As its values say."""
    objects = rendered("namespaced", namespace, jobsNamespace=await control_plane.create_namespace())
    async with installed(control_plane, namespace, objects) as there:
        site = Site(there, objects)
        for account in (site.dispatcher, site.janitor):
            await site.sends(account, thief(site), **DRY_RUN)
        with pytest.raises(KubeFault, match="cannot create resource"):
            await site.sends(site.dispatcher, thief(site) | {"metadata": {"name": "x"}}, namespace)


@pytest.mark.parametrize("variant", ["namespaced", "one-namespace"])
def test_variant_with_less_protection_says_so_at_its_head(variant: str) -> None:
    text = (RENDERED / "values" / f"{variant}.yaml").read_text()
    head = [line for line in text.splitlines() if line.startswith("#")]
    assert "policy" in " ".join(head)
    assert "Secret" in " ".join(head)
